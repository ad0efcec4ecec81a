"""Export of one experiment into a directory, as jobs that are atomic: so it can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

from tbupload.console.texts import counted
from tbupload.errors import Refused, Unreachable, Unreadable
from tbupload.export.client import ExportClient
from tbupload.export.destination import Destination
from tbupload.export.directory_names import is_renamed, run_directory
from tbupload.export.event_files import EventFileExporter, RunFiles
from tbupload.export.export_options import EVENTS, ExportOptions, ExportSummary
from tbupload.export.plan import (
    UPLOADS,
    Job,
    RunGroup,
    SeriesListing,
    TableJob,
    record_table_jobs,
    run_groups,
    table_jobs,
)
from tbupload.export.progress import ExportProgress
from tbupload.export.tables import (
    points_path,
    table_path,
    write_blob_files,
    write_points,
    write_table,
)
from tbwire.points import DATA_CLASSES, DataClassName

JOB_ATTEMPTS: Final = 3
"""How often a job is tried if its response breaks off."""

_TOO_LARGE: Final = 413
_NOT_SHOWN: Final = frozenset({401, 403})

_JobResult = TypeVar("_JobResult")


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
                summary.missing_tables = destination.missing_tables
                return summary

            if destination.plan is None:
                destination.begin(self._plan())
            plan = destination.plan

            if self._options.file_format == EVENTS:
                self._write_events([_parse_group(fields) for fields in plan], summary, destination)
            else:
                self._write_points(
                    [Job(**fields) for fields in plan if "table" not in fields],
                    summary,
                    destination,
                )
                self._write_tables(
                    [TableJob(**fields) for fields in plan if "table" in fields], summary
                )

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
        jobs = [
            job for kind in DATA_CLASSES for job in table_jobs(kind, listed[kind], series_filter)
        ]
        return [asdict(job) for job in jobs] + [
            asdict(job) for job in self._plan_tables(listed, jobs)
        ]

    def _plan_tables(
        self, listed: Mapping[DataClassName, SeriesListing], jobs: list[Job]
    ) -> list[TableJob]:
        """Return the jobs of tables, none for a server that has none."""
        if not self._client.has_tables():
            self._progress.warn(
                "the server has no tables of runs, series, sessions and blobs: its version is "
                "older than that of tbupload; only the points are exported"
            )
            return []
        runs = self._client.get_start_times()
        return list(record_table_jobs(runs, listed, jobs, self._options.series_filter))

    def _write_points(
        self, jobs: list[Job], summary: ExportSummary, destination: Destination
    ) -> None:
        directory, file_format = self._options.directory, self._options.file_format
        blob_points = sum(job.points for job in jobs if job.kind == "blob_sequences")
        if blob_points:
            self._progress.info(
                f"{counted(blob_points, 'point')} with blobs: each different image, audio clip or "
                "graph becomes a file of its own"
            )
        self._progress.begin(sum(job.points for job in jobs))
        callbacks = self._progress.add_bytes, destination.add_lost_points
        digests: set[bytes] = set()
        for number, job in enumerate(jobs, 1):
            path = points_path(directory, number, job, file_format)
            if not path.exists():
                write = partial(write_points, self._client, job, path, *callbacks)
                summary.bytes += self._retry_job(path.name, write)
            if job.kind == "blob_sequences":
                write_blobs = partial(write_blob_files, self._client, job, directory, *callbacks)
                written, size = self._retry_job(f"{path.name}: blobs", write_blobs)
                digests |= written
                summary.bytes += size
            self._progress.job_done(job.points)
            summary.files += 1
            summary.points += job.points
            summary.series += job.series
        summary.files += len(digests)
        summary.blob_files = len(digests)
        summary.runs = len({run for job in jobs for run in job.runs})

    def _write_tables(self, jobs: list[TableJob], summary: ExportSummary) -> None:
        """Write the tables; one that is over a limit of the server is left out.

        Readers of the experiment may not always see where it was uploaded from.
        """
        for job in jobs:
            path = table_path(self._options.directory, job, self._options.file_format)
            if not path.exists():
                write = partial(write_table, self._client, job, path, self._progress.add_bytes)
                try:
                    summary.bytes += self._retry_job(path.name, write)
                except Refused as refusal:
                    if job.table == UPLOADS and refusal.status in _NOT_SHOWN:
                        continue
                    if refusal.status != _TOO_LARGE:
                        raise
                    summary.missing_tables[job.table] = str(refusal)
                    continue
            summary.files += 1

    def _write_events(
        self, groups: list[RunGroup], summary: ExportSummary, destination: Destination
    ) -> None:
        export = EventFileExporter(
            self._client,
            self._options.series_filter,
            self._progress.add_points,
            destination.add_lost_points,
        )
        self._progress.begin(sum(job.points for group in groups for job in group.jobs))
        for group in groups:
            files = RunFiles(self._options.directory, group.start_times)
            if files.missing():
                summary.bytes += self._retry_job(
                    counted(len(group.runs), "run"), partial(export.write, group, files)
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


def _parse_group(fields: dict[str, Any]) -> RunGroup:
    return RunGroup(fields["start_times"], [Job(**job) for job in fields["jobs"]])
