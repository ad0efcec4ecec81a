"""`Verification`: reads a log directory as an upload does, and compares it with an experiment."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.console.texts import counted, size_text
from tbupload.errors import LogdirError
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.logdir.scan import LogdirScan, no_files_text, scan_logdir
from tbupload.recording.metrics_options import TAG_PREFIX, is_metrics_run
from tbupload.upload.plugins.projector_stream import PLUGIN as PROJECTOR
from tbupload.upload.plugins.projector_stream import ProjectorStream
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.round_robin import Segments, read_runs
from tbupload.upload.skipped_files import add_skipped
from tbupload.verify.findings import Finding, Status, VerifyResult
from tbupload.verify.local_series import LocalRuns
from tbupload.verify.lost_objects import LostObjects
from tbupload.verify.series_comparison import (
    SESSION_SERIES,
    SeriesComparison,
    StoredDigest,
    extra_finding,
)
from tbupload.verify.spool import Spool

GROUP_BYTES: Final = 8 << 20
"""Runs are compared in groups of about this many bytes of points, a larger run alone."""

RUNS_PER_REQUEST_MAX: Final = 256
"""Runs in one request, at most."""

NAME_CHARS_PER_REQUEST: Final = 50_000
"""Characters of run names in one request, approximately; the server accepts 1 MiB of JSON."""

OBJECT_CLASSES: Final = frozenset({"tensor", "blob_sequence"})
"""Data classes with points that may refer to objects."""

REPORT_SECONDS: Final = 10.0
"""Seconds between two messages on how many objects have been checked."""


@dataclass(frozen=True)
class VerifyOptions:
    """The files to read (those that an upload with these options sends), and the experiment.

    `is_strict`: data that is only in the experiment is an error. `is_deep`: the server reads the
    bytes of all objects, not only their sizes.
    """

    logdir: Path
    series_filter: SeriesFilter
    experiment_id: str
    is_strict: bool
    is_deep: bool = False


class Verification:
    """One pass over a log directory; `result` is complete when `run` is exhausted."""

    def __init__(self, client: Client, options: VerifyOptions, progress: ConsoleProgress) -> None:
        self.result = VerifyResult(
            options.experiment_id, options.is_strict, is_deep=options.is_deep
        )
        self._client = client
        self._comparison = SeriesComparison(client, options.experiment_id)
        self._options = options
        self._progress = progress
        self._total_bytes = 0
        self._reported_at = time.monotonic()

    def run(self) -> Iterator[Finding]:
        """Yield a finding per series of the files, and per series that only the experiment has.

        The latter only for runs that are in the files: other runs are in `result.extra_runs`.

        Raises:
            LogdirError: the log directory contains no files to verify.
            ServerError: a request failed.
        """
        limits = self._client.get_limits(self._options.experiment_id)
        scan = scan_logdir(self._options.logdir, self._options.series_filter, limits.name_chars_max)
        if scan.is_empty:
            raise LogdirError(no_files_text(self._options.logdir))
        for problem in scan.problems.values():
            self._count_problem("path that could not be used", problem)
        self._total_bytes = scan.bytes

        # Do not pack points: nothing is sent, and they would have to be unpacked again.
        read_options = ReadOptions(
            self._options.series_filter,
            replace(limits, packed_points_max=0),
            is_final=True,
            warn=self._progress.warn,
        )

        with closing(Spool()) as spool:
            local = LocalRuns(spool, limits.metadata_bytes_max)
            yield from self._verify(scan, read_options, local)

    def _verify(
        self, scan: LogdirScan, read_options: ReadOptions, local: LocalRuns
    ) -> Iterator[Finding]:
        runs: list[str] = []
        known: set[str] = set()

        for run in self._read_runs(scan, read_options, local):
            runs.append(run)
            known.add(run)
            self.result.runs += 1
            if (
                local.bytes >= GROUP_BYTES
                or len(runs) >= RUNS_PER_REQUEST_MAX
                or sum(map(len, runs)) >= NAME_CHARS_PER_REQUEST
            ):
                yield from self._compare(runs, local)
                runs = []

        if runs:
            yield from self._compare(runs, local)
        self._find_extra_runs(known)
        if self.result.statuses[Status.MISSING]:
            self.result.deleted_runs = self._client.find_deleted_runs(
                self._options.experiment_id, known
            )

    def _read_runs(
        self, scan: LogdirScan, read_options: ReadOptions, local: LocalRuns
    ) -> Iterator[str]:
        """Read run by run, in the order of an upload, and yield each run's name after it."""
        embeddings: defaultdict[str, list[ProjectorStream]] = defaultdict(list)
        for folder in scan.projector_folders:
            stream = ProjectorStream(
                folder, self._options.logdir, self._options.series_filter, read_options.limits
            )
            embeddings[stream.folder.run].append(stream)

        for run, segments in read_runs(scan.files, read_options):
            self._read_files(segments, local)
            self._read_embeddings(embeddings.pop(run, []), local)
            yield run
        for run, streams in embeddings.items():
            self._read_embeddings(streams, local)
            yield run

    def _read_files(self, segments: Segments, local: LocalRuns) -> None:
        """Read the files of one run."""
        for upload, segment in segments:
            if segment is not None:
                skipped = segment.skipped + local.add(upload.run, segment.body)
                self.result.skipped.update(skipped)
                add_skipped(self.result.skipped_files, str(upload.path), skipped)
                self.result.empty_values += segment.empty_values
                self.result.bytes += segment.end - segment.start
                self._show(local)
                continue
            if note := upload.incomplete_record_note():
                self.result.notes.append(note)
            if upload.error is not None:
                self._count_problem(upload.error.kind, upload.error.explanation)

    def _read_embeddings(self, streams: Iterable[ProjectorStream], local: LocalRuns) -> None:
        """Read the Embedding Projector's files of one run."""
        for stream in streams:
            segment, problems = stream.segment()
            if segment is not None:
                self.result.skipped.update(local.add(stream.folder.run, segment.body))
            for problem in problems:
                self._report_problem(problem)

    def _compare(self, runs: list[str], local: LocalRuns) -> Iterator[Finding]:
        """Compare the runs in `local`, and clear it.

        The digests are requested after reading the files, not before: otherwise points that a job
        appends in between would be reported as missing.
        """
        stored = {
            (digest["run"], digest["tag"]): digest
            for digest in self._client.list_digests(self._options.experiment_id, runs)
        }

        self.result.superseded += local.points
        lost = self._check_objects(runs, [stored[name] for name in local.series if name in stored])

        for name, series in local.series.items():
            finding = self._comparison.compare(local, series, stored.pop(name, None))
            if name in lost:
                finding = self._with_lost_objects(finding, lost[name])
            self.result.statuses[finding.status] += 1
            self.result.points += finding.points
            self.result.superseded -= finding.points
            self.result.embeddings += series.plugin == PROJECTOR
            self.result.set_sessions += finding.is_superseded
            yield finding

        for extra in stored.values():
            if (extra["plugin"], extra["tag"]) in SESSION_SERIES:
                self.result.set_sessions += 1
            elif self._options.series_filter.accepts_series(extra["tag"], extra["plugin"]):
                self.result.statuses[Status.EXTRA] += 1
                yield extra_finding(extra)

        local.clear()

    def _check_objects(
        self, runs: list[str], stored: list[StoredDigest]
    ) -> dict[tuple[str, str], LostObjects]:
        """Return the lost objects of these runs by (run, tag); request nothing without objects."""
        lost: defaultdict[tuple[str, str], LostObjects] = defaultdict(LostObjects)
        if not any(series["data_class"] in OBJECT_CLASSES for series in stored):
            return lost
        for page in self._client.check_objects(
            self._options.experiment_id, runs, is_deep=self._options.is_deep
        ):
            self.result.objects += page["objects"]
            self.result.object_bytes += page["bytes"]
            for fault in page["faults"]:
                lost[fault["run"], fault["tag"]].add(fault)
            if time.monotonic() - self._reported_at > REPORT_SECONDS:
                self._reported_at = time.monotonic()
                size = size_text(self.result.object_bytes)
                self._progress.info(
                    f"checked {counted(self.result.objects, 'object')} ({size}) in the object store"
                )
        return lost

    def _with_lost_objects(self, finding: Finding, lost: LostObjects) -> Finding:
        self.result.lost_objects.setdefault(finding.run, set()).update(lost.digests)
        is_damaged = finding.status in {Status.MATCHING, Status.EXTRA}
        return replace(
            finding, status=Status.DAMAGED if is_damaged else finding.status, lost_objects=lost
        )

    def _find_extra_runs(self, known: set[str]) -> None:
        for run in self._client.list_runs(self._options.experiment_id):
            if run not in known and self._options.series_filter.accepts_run(run):
                is_system = is_metrics_run(run) and self._has_metrics_alone(run)
                (self.result.system_runs if is_system else self.result.extra_runs).append(run)

    def _has_metrics_alone(self, run: str) -> bool:
        """Return whether all series of a run are system metrics: a run of that name may be any."""
        series = self._client.list_digests(self._options.experiment_id, [run])
        return all(each["tag"].startswith(TAG_PREFIX) for each in series)

    def _count_problem(self, kind: str, sentence: str) -> None:
        self.result.skipped[kind] += 1
        self._report_problem(sentence)

    def _report_problem(self, sentence: str) -> None:
        self.result.problems.append(sentence)
        self._progress.report_problem(sentence)

    def _show(self, local: LocalRuns) -> None:
        if self._progress.is_due():
            self._progress.show(
                ProgressState(
                    done_bytes=self.result.bytes,
                    total_bytes=self._total_bytes,
                    scalars=self.result.points,
                    runs=self.result.runs,
                    series=sum(self.result.statuses.values()) + len(local.series),
                    sent_bytes=self.result.bytes,
                    points=self.result.points,
                    skipped=self.result.skipped,
                )
            )
