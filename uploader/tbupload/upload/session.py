"""Sends a logdir to one experiment: reads what is new, commits it batch by batch, follows the files or ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.errors import ServerError, Unreachable
from tbupload.events.filters import SeriesFilter
from tbupload.http.cancellation import StopToken
from tbupload.http.client import Client, ExperimentStreams
from tbupload.logdir.tree import FileEntry, LogdirTree, printable_path
from tbupload.logdir.watcher import LogdirWatcher
from tbupload.upload.file_cache import FileCache
from tbupload.upload.file_errors import CONFIRM_SECONDS
from tbupload.upload.file_upload import REREAD_SECONDS_MIN, ReadOptions
from tbupload.upload.projector import ProjectorUpload
from tbupload.upload.scheduler import Scheduler
from tbupload.upload.stream_cursors import StreamCursors
from tbupload.upload.summary import Summary, repeated_counts

URGENT_BYTES_MAX: Final = 1 << 20
"""What a file has grown by is sent before the rest of files that are read from their start, unless it is more."""

PAUSE_SECONDS_MAX: Final = 1.0
"""While nothing happens, a person sees at least this often how things are, and an end that is asked for is noticed."""

REPORTED_FAILURES_MIN: Final = 2
"""A directory that could not be listed is complained about when that happens again."""


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What is uploaded, and whether its files are followed or read once.

    `poll_seconds` is how often directories are looked at, and quiet files at the latest; growing ones are more often.
    """

    logdir: Path
    series_filter: SeriesFilter
    is_one_shot: bool
    poll_seconds: float


class Upload:
    """One upload into one experiment; its `summary` is right at any time, also after an error."""

    def __init__(
        self,
        client: Client,
        streams: ExperimentStreams,
        options: UploadOptions,
        progress: ConsoleProgress,
        stop_token: StopToken,
    ) -> None:
        self._options = options
        self._progress = progress
        self._stop_token = stop_token
        self._cursors = StreamCursors(options.series_filter.digest(), streams.cursors)
        read_options = ReadOptions(
            options.series_filter, streams.limits, is_final=options.is_one_shot, warn=progress.warn
        )
        self._tree = LogdirTree(
            options.logdir, options.series_filter, streams.limits.name_chars_max
        )
        self._watcher = LogdirWatcher(self._tree, options.poll_seconds)
        cache = FileCache(read_options, self._cursors)
        self._scheduler = Scheduler(client, streams, cache, self._park, progress.debug)
        choice = (options.series_filter, streams.limits, self._cursors)
        tell = (self._scheduler.count_sent, progress.report_problem)
        self._projector = ProjectorUpload(
            client, streams.experiment_id, options.logdir, choice, tell
        )
        self._files_to_recheck: dict[FileEntry, None] = {}
        self._deleted_files: dict[str, FileEntry] = {}

    def run(self) -> Summary:
        """Sends everything, and what is added to it until an end is asked for; then what is there at that moment.

        Raises ServerError when the server is gone or refuses, Unreachable as well when the time given for an end is
        over; what was committed until then stays committed.
        """
        try:
            while not (self._options.is_one_shot or self._stop_token.is_stopping):
                self._enqueue_changes(*self._watcher.poll())
                self._report_problems()
                self._send_pending()
                self._projector.poll(self._tree.projector_folders)
            self._send_rest()
            self._projector.poll(self._tree.projector_folders, is_last=True)
            return self.summary()
        except ServerError:
            self._stop_token.cancel()
            self._scheduler.drain()
            raise
        finally:
            self._stop_token.cancel()
            self._scheduler.close()

    def summary(self) -> Summary:
        """What was committed until now, and what is missing."""
        sources = [entry.upload for entry in self._files_to_recheck if entry.upload is not None]
        state = self._state()
        counts = self._scheduler.counts
        return Summary(
            scalars=counts["scalars"],
            tensors=counts["tensors"],
            blobs=counts["blobs"],
            bytes=counts["bytes"],
            runs=state.runs,
            series=state.series,
            empty_values=counts["empty_values"],
            repeated=repeated_counts(counts),
            skipped=self._skipped_counts(),
            problems=[
                *self._tree.problems().values(),
                *(source.error.explanation for source in sources if source.error is not None),
                *map(_deleted_text, self._deleted_files),
                *(
                    sentence
                    for sentences in self._projector.problems.values()
                    for sentence in sentences
                ),
            ],
            notes=[note for source in sources if (note := source.incomplete_record_note())],
        )

    def _send_rest(self) -> None:
        """Sends what is in the files now; looks once more at what is in doubt. Raises when there is no time left."""
        for changed, gone in self._watcher.rescan():
            self._enqueue_changes(changed, gone)
            self._scheduler.submit()
            self._show()
        confirm_until = time.monotonic() + CONFIRM_SECONDS + REREAD_SECONDS_MIN
        while self._scheduler.is_busy or (
            self._unconfirmed_files() and time.monotonic() < confirm_until
        ):
            self._send_pending()
            if not self._scheduler.is_busy:
                self._enqueue_changes(
                    [entry for entry in self._unconfirmed_files() if self._needs_reread(entry)], []
                )
            if self._stop_token.is_deadline_passed:
                raise Unreachable(
                    "there was no time to send everything before the end that was asked for"
                )

    def _send_pending(self) -> None:
        """Sends what waits, and waits for what happens next, but no longer than nothing is to be done."""
        self._scheduler.submit()
        is_busy = self._scheduler.can_submit() or self._watcher.is_listing
        pause = 0.0 if is_busy else min(self._watcher.pause_seconds(), PAUSE_SECONDS_MAX)
        if self._scheduler.is_in_flight:
            self._scheduler.process_done(pause)
        elif self._stop_token.is_stopping or self._options.is_one_shot:
            time.sleep(min(pause, REREAD_SECONDS_MIN / 10))
        else:
            self._stop_token.sleep(pause)
        self._show()

    def _enqueue_changes(self, changed: Iterable[FileEntry], gone: Iterable[FileEntry]) -> None:
        """Files that may have something to be read, and files that are gone."""
        for entry in gone:
            if self._scheduler.forget(entry):
                self._deleted_files[entry.path] = entry
                self._progress.report_problem(_deleted_text(entry.path))
            self._files_to_recheck.pop(entry, None)
        for entry in changed:
            self._deleted_files.pop(entry.path, None)
            is_new = entry.committed == 0 and self._watcher.is_listing
            is_small = entry.size - entry.committed < URGENT_BYTES_MAX
            self._scheduler.enqueue(entry, is_urgent=is_small and not is_new)

    def _park(self, entry: FileEntry) -> None:
        """Everything in the file was sent that can be: looks at it from time to time."""
        source = entry.upload
        if source is not None and (source.error is not None or source.may_change(entry.size)):
            self._files_to_recheck[entry] = None
            if source.error is not None and not source.has_unconfirmed_error:
                self._progress.report_problem(source.error.explanation)
        else:
            self._files_to_recheck.pop(entry, None)
        self._watcher.park(entry)

    def _unconfirmed_files(self) -> list[FileEntry]:
        return [
            entry
            for entry in self._files_to_recheck
            if entry.upload is not None and entry.upload.has_unconfirmed_error
        ]

    def _needs_reread(self, entry: FileEntry) -> bool:
        return entry.upload is not None and entry.upload.needs_reread(entry.size, 0.0)

    def _state(self) -> ProgressState:
        counts = self._scheduler.counts
        return ProgressState(
            done_bytes=self._scheduler.done_bytes,
            total_bytes=self._watcher.total_bytes,
            scalars=counts["scalars"],
            runs=self._scheduler.run_count,
            series=self._scheduler.series_count,
            sent_bytes=counts["bytes"],
            points=counts["scalars"] + counts["tensors"] + counts["blobs"],
            skipped=self._skipped_counts(),
            is_idle=not (self._scheduler.is_busy or self._watcher.is_listing),
        )

    def _skipped_counts(self) -> Counter[str]:
        """What is missing so far, by reason."""
        skipped = self._cursors.skipped()
        sources = [entry.upload for entry in self._files_to_recheck if entry.upload is not None]
        skipped.update(source.error.kind for source in sources if source.error is not None)
        for reason, count in (
            ("path that could not be used", len(self._tree.problems())),
            ("file deleted before all of it was sent", len(self._deleted_files)),
        ):
            if count:
                skipped[reason] = count
        return skipped

    def _show(self) -> None:
        if self._progress.is_due():
            self._progress.show(self._state())

    def _report_problems(self) -> None:
        has_files = self._watcher.file_count or self._tree.projector_folders
        if not self._watcher.is_listing and not has_files:
            self._progress.report_problem(f"{self._options.logdir}: no event files there yet")
        if self._tree.has_new_problems:
            self._tree.has_new_problems = False
            for sentence in self._tree.problems(seen_times_min=REPORTED_FAILURES_MIN).values():
                self._progress.report_problem(sentence)


def _deleted_text(path: str) -> str:
    return f"{printable_path(path)}: was deleted before all of it was sent"
