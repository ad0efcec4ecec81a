"""Reads a logdir as an upload would, and tells what it would send; speaks to no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.console.texts import size_text
from tbupload.events.filters import SeriesFilter
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.scan import LogdirScan, no_files_text, scan_logdir
from tbupload.upload.file_upload import FileUpload, read_together
from tbupload.upload.projector_stream import ProjectorStream
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.round_robin import round_robin
from tbupload.upload.segments import EncodedSegment
from tbupload.upload.stream_cursors import StreamCursors
from tbupload.upload.summary import Summary, repeated_counts
from tbupload.upload.tag_owners import TagOwners

DEFAULT_LIMITS: Final = WireLimits(
    batch_bytes_max=16 << 20,
    blob_inline_bytes_max=256 << 10,
    blob_bytes_max=1 << 30,
    tensor_bytes_max=10 << 20,
    name_chars_max=10_000,
    metadata_bytes_max=4 << 20,
    tensor_object_bytes_max=64 << 20,
    logged_content_type_chars_max=255,
)
"""What a server usually takes: its own limits are known only to those who ask it."""


class DryRun:
    """Counts what an upload of everything that is in the logdir now would send, and what would be missing.

    `wire_bytes` are those of its requests before compression, each blob once. The summary is right at any time, for
    what was read until then.
    """

    def __init__(
        self, logdir: Path, series_filter: SeriesFilter, progress: ConsoleProgress
    ) -> None:
        self.wire_bytes = 0
        self._progress = progress
        self._series_filter = series_filter
        self._logdir = logdir
        self._scan = LogdirScan()
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._owners = TagOwners()
        self._runs: set[str] = set()
        self._blobs: set[bytes] = set()

    def run(self) -> None:
        """Reads everything."""
        self._progress.start()
        self._scan = scan_logdir(self._logdir, self._series_filter, DEFAULT_LIMITS.name_chars_max)
        if self._scan.is_empty:
            self._notes.append(no_files_text(self._logdir))
        for problem in self._scan.problems.values():
            self._count_problem("path that could not be used", problem)
        options = ReadOptions(
            self._series_filter, DEFAULT_LIMITS, is_final=True, warn=self._progress.warn
        )
        cursors = StreamCursors(self._series_filter.digest(), [])
        sources = (FileUpload(found, options, cursors) for found in self._scan.files)
        for run, of_run in groupby(
            read_together(sources, is_final=options.is_final), lambda source: source.run
        ):
            for source, segment in round_robin(of_run):
                self._count_next(run, source, segment)
        for folder in self._scan.projector_folders:
            self._read_projector(
                ProjectorStream(folder, self._logdir, self._series_filter, DEFAULT_LIMITS)
            )

    def summary(self) -> Summary:
        """What would be sent, and what would be missing."""
        return Summary(
            scalars=self._counts["scalars"],
            tensors=self._counts["tensors"],
            blobs=self._counts["blobs"],
            bytes=self._counts["bytes"],
            runs=len(self._runs),
            series=len(self._owners),
            empty_values=self._counts["empty_values"],
            repeated=repeated_counts(self._counts),
            skipped=self._skipped,
            problems=self._problems,
            notes=self._notes,
        )

    def lines(self, has_reported: Callable[[str], bool]) -> Iterator[str]:
        """The summary in sentences; `has_said` tells which problems a person has read."""
        first, *rest = self.summary().lines("would send", has_reported)
        yield first
        yield f"in requests of about {size_text(self.wire_bytes)} all together, before compression"
        yield from rest

    def _count_next(self, run: str, source: FileUpload, segment: EncodedSegment | None) -> None:
        """The next segment of a file, or None at its end."""
        if segment is not None:
            self._counts["bytes"] += segment.end - segment.start
            self._counts["empty_values"] += segment.empty_values
            self._counts.update(source.count_repeated(segment))
            self._count(run, segment)
            return
        if note := source.incomplete_record_note():
            self._notes.append(note)
        if source.error is not None:
            self._count_problem(source.error.kind, source.error.explanation)

    def _read_projector(self, stream: ProjectorStream) -> None:
        segment, problems = stream.segment()
        if segment is not None:
            self._count(stream.folder.run, segment)
        for problem in problems:
            self._report_problem(problem)

    def _count(self, run: str, segment: EncodedSegment) -> None:
        kept, misfits = self._owners.count_segment(run, segment)
        self._counts.update(kept)
        self._skipped.update(segment.skipped + misfits)
        if segment.metadata:
            self._runs.add(run)
        self.wire_bytes += len(segment.body)
        self.wire_bytes += sum(
            len(content) for digest, content in segment.blobs.items() if digest not in self._blobs
        )
        self._blobs.update(segment.blobs)
        if self._progress.is_due():
            self._progress.show(self._state())

    def _count_problem(self, kind: str, sentence: str) -> None:
        self._skipped[kind] += 1
        self._report_problem(sentence)

    def _report_problem(self, sentence: str) -> None:
        self._problems.append(sentence)
        self._progress.report_problem(sentence)

    def _state(self) -> ProgressState:
        return ProgressState(
            done_bytes=self._counts["bytes"],
            total_bytes=self._scan.bytes,
            scalars=self._counts["scalars"],
            runs=len(self._runs),
            series=len(self._owners),
            sent_bytes=self._counts["bytes"],
            points=self._counts["scalars"] + self._counts["tensors"] + self._counts["blobs"],
            skipped=self._skipped,
        )
