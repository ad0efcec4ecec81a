"""Exports one experiment into a directory, in jobs that are whole or not there: what was broken off goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from tbupload.errors import Unreachable, Unreadable
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.destination import Destination
from tbupload.export.directory_names import is_renamed, run_directory
from tbupload.export.event_files import EventFileExporter, RunFiles
from tbupload.export.plan import Job, RunGroup, run_groups, table_jobs
from tbupload.export.progress import ExportProgress
from tbupload.export.remote_series import DATA_CLASSES, LostPoint
from tbupload.export.tables import table_path, write_table

EVENTS: Final = "events"

FORMATS: Final = ("parquet", "csv", EVENTS)

JOB_ATTEMPTS: Final = 3
"""How often a job is begun whose answer breaks off."""

_JobResult = TypeVar("_JobResult")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported: one experiment's series that the filter accepts, in this format, into a directory."""

    server: str
    experiment_id: str
    file_format: str
    series_filter: SeriesFilter
    directory: Path

    def identity(self) -> dict[str, Any]:
        """What makes two exports the same."""
        return {
            "server": self.server,
            "experiment_id": self.experiment_id,
            "format": self.file_format,
            **filters_as_json(self.series_filter),
        }


@dataclass(slots=True)
class ExportSummary:
    """What is there; `bytes` of the files written now. Of `losses` none is a reason to do it again.

    `lost_points` ({run, tag, step, reason}) were left out: the server has lost the bytes of their objects.
    `renamed_runs` are those, by their directories, whose names are no place within ours.
    """

    experiment_id: str
    points: int = 0
    series: int = 0
    runs: int = 0
    files: int = 0
    bytes: int = 0
    was_complete: bool = False
    losses: dict[str, int] = field(default_factory=dict)
    lost_points: list[dict[str, Any]] = field(default_factory=list)
    renamed_runs: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return asdict(self)


def filters_as_json(series_filter: SeriesFilter) -> dict[str, Any]:
    """A choice of series as plain values."""
    patterns = ("include_runs", "exclude_runs", "include_tags", "exclude_tags")
    plugins = None if series_filter.plugins is None else sorted(series_filter.plugins)
    return {"plugins": plugins} | {
        name: _pattern(getattr(series_filter, name)) for name in patterns
    }


def _pattern(pattern: re.Pattern[str] | None) -> str | None:
    return None if pattern is None else pattern.pattern


class Exporter:
    """One run of an export."""

    def __init__(
        self, client: ExportClient, options: ExportOptions, progress: ExportProgress
    ) -> None:
        self._client = client
        self._options = options
        self._progress = progress

    def run(self) -> ExportSummary:
        """Writes what is not there yet. Raises UsageError, OutputError, ServerError; what is whole by then stays."""
        destination = Destination(self._options.directory, self._options.identity())
        with destination.locked():
            summary = ExportSummary(
                self._options.experiment_id, was_complete=destination.is_complete
            )
            if summary.was_complete:
                summary.lost_points = destination.lost_points
                return summary
            if destination.plan is None:
                destination.begin(self._plan())
            plan = destination.plan
            if self._options.file_format == EVENTS:
                self._write_events([_parse_group(fields) for fields in plan], summary, destination)
            else:
                self._write_tables([Job(**fields) for fields in plan], summary, destination)
            summary.lost_points = destination.lost_points
            summary.points -= len(summary.lost_points)
            destination.mark_complete(
                {name: value for name, value in summary.as_json().items() if name != "was_complete"}
            )
        return summary

    def _plan(self) -> list[dict[str, Any]]:
        series_filter = self._options.series_filter
        listed = {kind: self._client.list_series(kind) for kind in DATA_CLASSES}
        if self._options.file_format == EVENTS:
            start_times = self._client.get_start_times()
            return [asdict(group) for group in run_groups(start_times, listed, series_filter)]
        return [
            asdict(job)
            for kind in DATA_CLASSES
            for job in table_jobs(kind, listed[kind], series_filter)
        ]

    def _write_tables(
        self, jobs: list[Job], summary: ExportSummary, destination: Destination
    ) -> None:
        chosen = self._options.file_format
        self._progress.begin(sum(job.points for job in jobs))
        for number, job in enumerate(jobs, 1):
            path = table_path(self._options.directory, number, job, chosen)
            if not path.exists():
                summary.bytes += self._retry_job(
                    path.name, self._table_writer(job, path, destination)
                )
            self._progress.job_done(job.points)
            summary.files += 1
            summary.points += job.points
            summary.series += job.series
        summary.runs = len({run for job in jobs for run in job.runs})

    def _table_writer(self, job: Job, path: Path, destination: Destination) -> Callable[[], int]:
        chosen, arrived = self._options.file_format, self._progress.add_bytes
        return lambda: write_table(self._client, job, chosen, path, arrived, _keeper(destination))

    def _write_events(
        self, groups: list[RunGroup], summary: ExportSummary, destination: Destination
    ) -> None:
        series_filter, arrived = self._options.series_filter, self._progress.add_points
        export = EventFileExporter(self._client, series_filter, arrived, _keeper(destination))
        self._progress.begin(sum(job.points for group in groups for job in group.jobs))
        for group in groups:
            files = RunFiles(self._options.directory, group.start_times)
            if files.missing():
                summary.bytes += self._retry_job(
                    f"{len(group.runs)} runs", self._group_writer(export, group, files)
                )
            points = sum(job.points for job in group.jobs)
            self._progress.job_done(points)
            summary.files += len(group.runs)
            summary.runs += len(group.runs)
            summary.points += points
            summary.series += sum(job.series for job in group.jobs)
            summary.renamed_runs |= {
                run_directory(run): run for run in group.runs if is_renamed(run)
            }
        summary.losses = dict(export.notes)

    @staticmethod
    def _group_writer(
        export: EventFileExporter, group: RunGroup, files: RunFiles
    ) -> Callable[[], int]:
        return lambda: export.write(group, files)

    def _retry_job(self, name: str, job: Callable[[], _JobResult]) -> _JobResult:
        """Does a job, again when its answer broke off; a server that is away was waited for already."""
        attempts_left = JOB_ATTEMPTS
        while True:
            try:
                return job()
            except Unreachable as error:
                self._progress.job_failed()
                attempts_left -= not isinstance(
                    error, Unreadable
                )  # these have a bound of their own, in seconds
                if not attempts_left or not error.is_mid_response:
                    raise
                self._progress.warn(f"{name}: {error}; beginning it again")


def _keeper(destination: Destination) -> Callable[[list[LostPoint]], None]:
    """What keeps points that were left out in the destination's manifest."""

    def keep(lost: list[LostPoint]) -> None:
        names = ("run", "tag", "step", "reason")
        destination.add_lost_points(
            [{name: getattr(point, name) for name in names} for point in lost]
        )

    return keep


def _parse_group(fields: dict[str, Any]) -> RunGroup:
    return RunGroup(fields["start_times"], [Job(**job) for job in fields["jobs"]])
