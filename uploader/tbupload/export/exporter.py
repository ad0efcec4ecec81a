"""Export of one experiment into a directory, as jobs that are atomic: so it can be resumed."""

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
from tbupload.export.remote_series import LostPoint
from tbupload.export.tables import table_path, write_table
from tbwire.points import DATA_CLASSES

EVENTS: Final = "events"

FORMATS: Final = ("parquet", "csv", EVENTS)

JOB_ATTEMPTS: Final = 3
"""How often a job is tried if its response breaks off."""

_JobResult = TypeVar("_JobResult")


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
        points: exported points; of an earlier attempt, those that its series have now.
        series: exported series.
        runs: exported runs.
        files: files of the export.
        bytes: bytes of the files that were written by this run of the export.
        was_complete: the export was complete before; nothing was written.
        losses: points that were exported without some of their fields, by reason; a repeated
            export would not change that.
        lost_points: {run, tag, step, reason} of points that were left out, since the server has
            lost the bytes of their objects.
        renamed_runs: runs with names that are not valid paths, by directory.
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


class Exporter:
    """Runs an export, or resumes an interrupted one."""

    def __init__(
        self, client: ExportClient, options: ExportOptions, progress: ExportProgress
    ) -> None:
        self._client = client
        self._options = options
        self._progress = progress

    def run(self) -> ExportSummary:
        """Write the files that are missing; files that are complete when an error occurs are kept.

        Raises:
            UsageError: the directory contains something else.
            OutputError: a file cannot be written, or another export is running there.
            ServerError: a request failed.
        """
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
        """Return the groups of runs, or the jobs, as JSON for the manifest."""
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
        file_format = self._options.file_format
        self._progress.begin(sum(job.points for job in jobs))
        for number, job in enumerate(jobs, 1):
            path = table_path(self._options.directory, number, job, file_format)
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
        file_format, on_bytes = self._options.file_format, self._progress.add_bytes
        keep_lost = _lost_points_callback(destination)
        return lambda: write_table(self._client, job, file_format, path, on_bytes, keep_lost)

    def _write_events(
        self, groups: list[RunGroup], summary: ExportSummary, destination: Destination
    ) -> None:
        export = EventFileExporter(
            self._client,
            self._options.series_filter,
            self._progress.add_points,
            _lost_points_callback(destination),
        )
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
        """Run a job, repeatedly if its response breaks off; other failures were retried before."""
        attempts_left = JOB_ATTEMPTS
        while True:
            try:
                return job()
            except Unreachable as error:
                self._progress.job_failed()
                # Unreadable objects are not counted: they have the retry timeout as their bound.
                attempts_left -= not isinstance(error, Unreadable)
                if not attempts_left or not error.is_mid_response:
                    raise
                self._progress.warn(f"{name}: {error}; trying again")


def _lost_points_callback(destination: Destination) -> Callable[[list[LostPoint]], None]:
    """Return a function that adds lost points to the destination's manifest."""

    def keep(lost: list[LostPoint]) -> None:
        names = ("run", "tag", "step", "reason")
        destination.add_lost_points(
            [{name: getattr(point, name) for name in names} for point in lost]
        )

    return keep


def _parse_group(fields: dict[str, Any]) -> RunGroup:
    return RunGroup(fields["start_times"], [Job(**job) for job in fields["jobs"]])
