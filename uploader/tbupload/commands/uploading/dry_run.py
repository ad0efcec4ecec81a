"""`--dry-run`: reads a log directory as an upload does, and counts what it would send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.console.texts import size_text
from tbupload.events.filters import SeriesFilter
from tbupload.events.projector_files import CONFIG_NAME
from tbupload.http.wire_limits import WireLimits
from tbupload.logdir.scan import LogdirScan, no_files_text, scan_logdir
from tbupload.upload.file_upload import FileUpload
from tbupload.upload.plugins.hparams_file import HparamsFile
from tbupload.upload.plugins.projector_stream import ProjectorStream
from tbupload.upload.plugins.tag_owners import TagOwners
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.round_robin import read_runs
from tbupload.upload.segments import EncodedSegment
from tbupload.upload.skipped_files import add_skipped
from tbupload.upload.summary import Summary, repeated_counts
from tbwire.hparams import SESSION_START_TAG

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
"""Default limits of a server, since a dry run does not connect to one."""


class DryRun:
    """Counts what an upload of the log directory's current content would send and skip.

    `wire_bytes` is the size of the requests before compression, with each blob counted once.
    `summary` may be called at any time, and covers what has been read so far.
    """

    def __init__(
        self,
        logdir: Path,
        series_filter: SeriesFilter,
        hparams: HparamsFile,
        progress: ConsoleProgress,
    ) -> None:
        self.wire_bytes = 0
        self._progress = progress
        self._series_filter = series_filter
        self._hparams = hparams
        self._hparams_runs = 0
        self._logdir = logdir
        self._scan = LogdirScan()
        self._counts: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._skipped_files: dict[str, dict[str, int]] = {}
        self._problems: list[str] = []
        self._notes: list[str] = []
        self._owners = TagOwners()
        self._runs: set[str] = set()
        self._runs_with_hparams: set[str] = set()
        self._blobs: set[bytes] = set()

    def run(self) -> None:
        """Read all files, and count what they contain."""
        self._progress.start()
        self._scan = scan_logdir(self._logdir, self._series_filter, DEFAULT_LIMITS.name_chars_max)
        if self._scan.is_empty:
            self._notes.append(no_files_text(self._logdir))
        for problem in self._scan.problems.values():
            self._count_problem("path that could not be used", problem)

        options = ReadOptions(
            self._series_filter, DEFAULT_LIMITS, is_final=True, warn=self._progress.warn
        )
        for run, segments in read_runs(self._scan.files, options):
            for upload, segment in segments:
                self._count_next(run, upload, segment)

        for folder in self._scan.projector_folders:
            self._read_projector(
                ProjectorStream(folder, self._logdir, self._series_filter, DEFAULT_LIMITS)
            )
        self._count_hparams({file.run for file in self._scan.files})

    def summary(self) -> Summary:
        """Return what would be sent, and what would be skipped."""
        return Summary(
            scalars=self._counts["scalars"],
            tensors=self._counts["tensors"],
            blobs=self._counts["blobs"],
            bytes=self._counts["bytes"],
            runs=len(self._runs),
            series=len(self._owners),
            empty_values=self._counts["empty_values"],
            repeated=repeated_counts(self._counts),
            hparams_runs=self._hparams_runs,
            files=len(self._scan.files),
            file_bytes=self._scan.bytes,
            skipped=self._skipped,
            skipped_files=self._skipped_files,
            problems=self._problems,
            notes=self._notes,
        )

    def lines(self, has_reported: Callable[[str], bool]) -> Iterator[str]:
        """Yield the summary as sentences, without problems for which `has_reported` is true."""
        first, *rest = self.summary().lines("would send", has_reported)
        yield first
        yield f"in requests of about {size_text(self.wire_bytes)} in total, before compression"
        yield from rest

    def _count_next(self, run: str, upload: FileUpload, segment: EncodedSegment | None) -> None:
        """Count the next segment of a file, or report problems at its end (None)."""
        if segment is not None:
            self._counts["bytes"] += segment.end - segment.start
            self._counts["empty_values"] += segment.empty_values
            self._counts.update(upload.count_repeated(segment))
            self._count(run, segment, str(upload.path))
            return
        if note := upload.incomplete_record_note():
            self._notes.append(note)
        if upload.error is not None:
            self._count_problem(upload.error.kind, upload.error.explanation)

    def _read_projector(self, stream: ProjectorStream) -> None:
        segment, problems = stream.segment()
        if segment is not None:
            self._count(stream.folder.run, segment, f"{stream.folder.path}/{CONFIG_NAME}")
        for problem in problems:
            self._report_problem(problem)

    def _count(self, run: str, segment: EncodedSegment, path: str) -> None:
        accepted, misfits = self._owners.count_segment(run, segment)
        self._counts.update(accepted)
        self._skipped.update(segment.skipped + misfits)
        add_skipped(self._skipped_files, path, segment.skipped + misfits)
        if segment.metadata:
            self._runs.add(run)
        if SESSION_START_TAG in segment.metadata:
            self._runs_with_hparams.add(run)
        self.wire_bytes += len(segment.body)
        self.wire_bytes += sum(
            len(content) for digest, content in segment.blobs.items() if digest not in self._blobs
        )
        self._blobs.update(segment.blobs)
        if self._progress.is_due():
            self._progress.show(self._state())

    def _count_hparams(self, runs: set[str]) -> None:
        """Count the runs whose hyperparameters would be set; report those that do not exist."""
        if self._hparams.for_all is not None:
            self._hparams_runs = len(runs - self._runs_with_hparams)
            return
        self._hparams_runs = len(runs & self._hparams.by_run.keys())
        for problem in self._hparams.missing_runs(runs, self._series_filter):
            self._report_problem(problem)

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
