"""Options of an export, and its result."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tbupload.events.filters import SeriesFilter

EVENTS: Final = "events"


@dataclass(frozen=True)
class ExportOptions:
    """The experiment, the filter of its series, the file format, and the directory to write to.

    With `attempt`, restarted runs are exported as they were before their next attempt.
    """

    server: str
    experiment_id: str
    file_format: str
    series_filter: SeriesFilter
    directory: Path
    attempt: int | None = None

    def identity(self) -> dict[str, Any]:
        """Return the options that must be the same to resume an export."""
        return {
            "server": self.server,
            "experiment_id": self.experiment_id,
            "format": self.file_format,
            **filters_as_json(self.series_filter),
            **({} if self.attempt is None else {"attempt": self.attempt}),
        }


@dataclass
class ExportSummary:
    """Result of an export; counts are of the complete export, also if it was resumed.

    Attributes:
        experiment_id: the experiment.
        points: exported points.
        series: exported series.
        runs: exported runs.
        files: files of the export.
        blob_files: files that are blobs: one for each different content.
        bytes: bytes of the files that were written by this run of the export.
        was_complete: the export was complete before; nothing was written.
        losses: points that were exported without some of their fields, by reason; a repeated
            export would not change that.
        lost_points: {run, tag, step, reason} of points that were left out, since the server has
            lost the bytes of their objects.
        renamed_runs: runs with names that are not valid paths, by directory.
        missing_tables: why tables were left out, by name of the table.
    """

    experiment_id: str
    points: int = 0
    series: int = 0
    runs: int = 0
    files: int = 0
    blob_files: int = 0
    bytes: int = 0
    was_complete: bool = False
    losses: dict[str, int] = field(default_factory=dict)
    lost_points: list[dict[str, Any]] = field(default_factory=list)
    renamed_runs: dict[str, str] = field(default_factory=dict)
    missing_tables: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        return asdict(self)


def filters_as_json(series_filter: SeriesFilter) -> dict[str, Any]:
    """Return a filter as JSON values."""
    patterns = ("include_runs", "exclude_runs", "include_tags", "exclude_tags")
    plugins = None if series_filter.plugins is None else sorted(series_filter.plugins)
    return {"plugins": plugins} | {
        name: _pattern(getattr(series_filter, name)) for name in patterns
    }


def _pattern(pattern: re.Pattern[str] | None) -> str | None:
    return None if pattern is None else pattern.pattern
