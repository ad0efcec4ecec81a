"""Reads a logdir as an upload would, run by run, and holds it beside the digests of what an experiment stores."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.console.texts import size_text
from tbupload.errors import LogdirError, Refused
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client
from tbupload.logdir.scan import LogdirScan, no_files_text, scan_logdir
from tbupload.upload.file_upload import FileUpload, read_together
from tbupload.upload.projector_stream import PLUGIN as PROJECTOR
from tbupload.upload.projector_stream import ProjectorStream
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.round_robin import round_robin
from tbupload.upload.stream_cursors import StreamCursors
from tbupload.verify.findings import Finding, Status, VerifyResult
from tbupload.verify.local_series import LocalRuns, LocalSeries
from tbupload.verify.lost_objects import LostObjects
from tbupload.verify.spool import Spool
from tbupload.verify.step_order import Differences, compare
from tbwire.digests import Records, SeriesDigest, deduplicate_steps, record_dtype

GROUP_BYTES: Final = 8 << 20
"""Bytes of points after which the runs read are compared; a larger run is compared alone."""

RUNS_PER_REQUEST_MAX: Final = 256
"""Runs in one question to the server, at most."""

NAME_CHARS_PER_REQUEST: Final = 50_000
"""Characters of runs' names in one question, about: the server takes 1 MiB of JSON."""

OBJECT_CLASSES: Final = frozenset({"tensor", "blob_sequence"})
"""The data classes whose points may refer to objects."""

REPORT_SECONDS: Final = 10.0
"""Seconds between two lines on how many objects have been checked."""

_NOT_FOUND: Final = 404

StoredDigest = dict[str, Any]
"""What the server tells of a series: see `Client.list_digests`."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What is verified: the files an upload with these options would send, and the experiment that should hold them.

    With `is_deep`, the server reads all bytes of the objects, not only their sizes.
    """

    logdir: Path
    series_filter: SeriesFilter
    experiment_id: str
    is_strict: bool
    is_deep: bool = False


class Verification:
    """One pass over a logdir; `verdict` is complete when `run` is."""

    def __init__(self, client: Client, options: VerifyOptions, progress: ConsoleProgress) -> None:
        self.result = VerifyResult(
            options.experiment_id, options.is_strict, is_deep=options.is_deep
        )
        self._client = client
        self._options = options
        self._progress = progress
        self._total_bytes = 0
        self._reported_at = time.monotonic()

    def run(self) -> Iterator[Finding]:
        """A finding for each series of the files, and for each of the same runs that only the experiment has.

        Raises LogdirError when there are no files for it, ServerError as the client does.
        """
        limits = self._client.get_limits(self._options.experiment_id)
        scan = scan_logdir(self._options.logdir, self._options.series_filter, limits.name_chars_max)
        if scan.is_empty:
            raise LogdirError(no_files_text(self._options.logdir))
        for problem in scan.problems.values():
            self._count_problem("path that could not be used", problem)
        self._total_bytes = scan.bytes
        # Packing is for the way, and nothing goes anywhere here.
        read_options = ReadOptions(
            self._options.series_filter,
            replace(limits, packed_points_max=0),
            is_final=True,
            warn=self._progress.warn,
        )
        spool = Spool()
        try:
            yield from self._verify(scan, read_options, LocalRuns(spool))
        finally:
            spool.close()

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

    def _read_runs(
        self, scan: LogdirScan, read_options: ReadOptions, local: LocalRuns
    ) -> Iterator[str]:
        """Reads run by run, each in the order in which an upload sends it, and names those that were read."""
        cursors = StreamCursors(self._options.series_filter.digest(), [])
        sources = read_together(
            (FileUpload(found, read_options, cursors) for found in scan.files),
            is_final=read_options.is_final,
        )
        embeddings: defaultdict[str, list[ProjectorStream]] = defaultdict(list)
        for folder in scan.projector_folders:
            stream = ProjectorStream(
                folder, self._options.logdir, self._options.series_filter, read_options.limits
            )
            embeddings[stream.folder.run].append(stream)
        for run, of_run in groupby(sources, lambda source: source.run):
            self._read_files(of_run, local)
            self._read_embeddings(embeddings.pop(run, []), local)
            yield run
        for run, streams in embeddings.items():
            self._read_embeddings(streams, local)
            yield run

    def _read_files(self, of_run: Iterable[FileUpload], local: LocalRuns) -> None:
        for source, segment in round_robin(of_run):
            if segment is not None:
                self.result.skipped.update(segment.skipped)
                self.result.empty_values += segment.empty_values
                self.result.skipped.update(local.add(source.run, segment.body))
                self.result.bytes += segment.end - segment.start
                self._show(local)
                continue
            if note := source.incomplete_record_note():
                self.result.notes.append(note)
            if source.error is not None:
                self._count_problem(source.error.kind, source.error.explanation)

    def _read_embeddings(self, of_run: Iterable[ProjectorStream], local: LocalRuns) -> None:
        for stream in of_run:
            segment, problems = stream.segment()
            if segment is not None:
                self.result.skipped.update(local.add(stream.folder.run, segment.body))
            for problem in problems:
                self._report_problem(problem)

    def _compare(self, runs: list[str], local: LocalRuns) -> Iterator[Finding]:
        """Compares the runs that were read, and forgets them. The server is asked after they were read, not before.

        So that what a job appends meanwhile is never taken for missing.
        """
        stored = {}
        for series in self._client.list_digests(self._options.experiment_id, runs):
            stored[series["run"], series["tag"]] = series
        self.result.superseded += local.points
        lost = self._check_objects(runs, [stored[name] for name in local.series if name in stored])
        for name, ours in local.series.items():
            finding = self._compare_series(local, ours, stored.pop(name, None))
            if name in lost:
                finding = self._with_lost_objects(finding, lost[name])
            self.result.statuses[finding.status] += 1
            self.result.points += finding.points
            self.result.superseded -= finding.points
            self.result.embeddings += ours.plugin == PROJECTOR
            yield finding
        for theirs in stored.values():
            if self._options.series_filter.accepts_series(theirs["tag"], theirs["plugin"]):
                self.result.statuses[Status.EXTRA] += 1
                yield _extra_finding(theirs)
        local.clear()

    def _compare_series(
        self, local: LocalRuns, ours: LocalSeries, theirs: StoredDigest | None
    ) -> Finding:
        digest = local.digest(ours)
        if theirs is None:
            return _make_finding(
                ours, digest, Status.MISSING, 0, None, ("the whole series is missing",)
            )
        reasons = tuple(_reasons(ours, theirs))
        if theirs["data_class"] != ours.data_class:
            return _make_finding(ours, digest, Status.DIFFERENT, theirs["count"], None, reasons)
        differences = None
        if ours.plugin == PROJECTOR:
            # Its wall time is that of the upload, which no file tells: no digest with it could be the same.
            differences = compare(
                map(_without_wall_times, local.records(ours)),
                map(_without_wall_times, self._stored_records(ours)),
            )
        elif (theirs["count"], theirs["sha256"]) != (digest.count, digest.hexdigest()):
            differences = compare(local.records(ours), self._stored_records(ours))
        status = _status(differences, reasons)
        return _make_finding(ours, digest, status, theirs["count"], differences, reasons)

    def _check_objects(
        self, runs: list[str], stored: list[StoredDigest]
    ) -> dict[tuple[str, str], LostObjects]:
        """What the object store has lost of these runs, by run and tag; asks only when they have such series."""
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
                    f"checked {self.result.objects:,} objects ({size}) in the object store"
                )
        return lost

    def _with_lost_objects(self, finding: Finding, lost: LostObjects) -> Finding:
        self.result.lost_objects.setdefault(finding.run, set()).update(lost.digests)
        is_damaged = finding.status in {Status.MATCHING, Status.EXTRA}
        return replace(
            finding, status=Status.DAMAGED if is_damaged else finding.status, lost_objects=lost
        )

    def _stored_records(self, series: LocalSeries) -> Iterator[Records]:
        """The stored points of a series; none when it was deleted meanwhile."""
        dtype = record_dtype(is_scalar=series.data_class == "scalar")
        try:
            for page in self._client.read_records(
                self._options.experiment_id, series.run, series.tag
            ):
                yield deduplicate_steps(np.frombuffer(page, dtype))
        except Refused as refusal:
            if refusal.status != _NOT_FOUND:
                raise

    def _find_extra_runs(self, known: set[str]) -> None:
        for run in self._client.list_runs(self._options.experiment_id):
            if run not in known and self._options.series_filter.accepts_run(run):
                self.result.extra_runs.append(run)

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


def _without_wall_times(records: Records) -> Records:
    """The records as if all were of one wall time."""
    undated = records.copy()
    undated["wall_time"] = 0.0
    return undated


def _make_finding(
    ours: LocalSeries,
    digest: SeriesDigest,
    status: Status,
    stored_points: int,
    differences: Differences | None,
    reasons: tuple[str, ...],
) -> Finding:
    return Finding(
        ours.run,
        ours.tag,
        ours.plugin,
        ours.data_class,
        status,
        digest.count,
        stored_points,
        differences,
        reasons,
    )


def _extra_finding(theirs: StoredDigest) -> Finding:
    return Finding(
        theirs["run"],
        theirs["tag"],
        theirs["plugin"],
        theirs["data_class"],
        Status.EXTRA,
        0,
        theirs["count"],
        reasons=(f"a series of {theirs['count']:,} points that is in none of the files",),
    )


def _reasons(ours: LocalSeries, theirs: StoredDigest) -> Iterator[str]:
    if theirs["plugin"] != ours.plugin:
        yield f"it belongs to plugin {theirs['plugin']!r} there, and to {ours.plugin!r} in the files"
    if theirs["data_class"] != ours.data_class:
        yield f"it is a {theirs['data_class']} series there, and a {ours.data_class} series in the files"
    elif theirs["plugin"] == ours.plugin and theirs["metadata_sha256"] != ours.metadata_sha256:
        yield "its summary metadata is another one"


def _status(differences: Differences | None, reasons: tuple[str, ...]) -> Status:
    if reasons or (
        differences is not None and (differences.missing.count or differences.different.count)
    ):
        return Status.DIFFERENT
    return Status.EXTRA if differences is not None and differences.extra.count else Status.MATCHING
