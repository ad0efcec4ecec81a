"""Sends a logdir to one experiment: reads what is new, commits it batch by batch, follows the files or ends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.console.progress import Progress, State
from tbupload.errors import ServerError, Unreachable
from tbupload.events.filters import SeriesFilter
from tbupload.http.client import Client, Streams
from tbupload.http.retry import Patience
from tbupload.logdir.tree import FileEntry, LogdirTree, readable
from tbupload.logdir.watcher import Watch
from tbupload.upload.file_cache import Shelf
from tbupload.upload.file_errors import DOUBT_SECONDS
from tbupload.upload.file_upload import AGAIN_SECONDS_MIN, Reading
from tbupload.upload.projector import ProjectorUpload
from tbupload.upload.scheduler import Dispatch
from tbupload.upload.stream_cursors import CursorBook
from tbupload.upload.summary import Summary, repeated_counts

URGENT_BYTES_MAX: Final = 1 << 20
"""What a file has grown by is sent before the rest of files that are read from their start, unless it is more."""

PAUSE_SECONDS_MAX: Final = 1.0
"""While nothing happens, a person sees at least this often how things are, and an end that is asked for is noticed."""

SEEN_TIMES_MIN: Final = 2
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
        self, client: Client, streams: Streams, options: UploadOptions, progress: Progress, patience: Patience
    ) -> None:
        self._options = options
        self._progress = progress
        self._patience = patience
        self._cursors = CursorBook(options.series_filter.digest(), streams.cursors)
        reading = Reading(options.series_filter, streams.limits, is_final=options.is_one_shot, say=progress.warn)
        self._tree = LogdirTree(options.logdir, options.series_filter, streams.limits.name_chars_max)
        self._watch = Watch(self._tree, options.poll_seconds)
        shelf = Shelf(reading, self._cursors)
        self._dispatch = Dispatch(client, streams, shelf, self._rest, progress.detail)
        choice = (options.series_filter, streams.limits, self._cursors)
        tell = (self._dispatch.take_over, progress.problem)
        self._projector = ProjectorUpload(client, streams.experiment_id, options.logdir, choice, tell)
        self._unsettled: dict[FileEntry, None] = {}
        self._lost: dict[str, FileEntry] = {}

    def run(self) -> Summary:
        """Sends everything, and what is added to it until an end is asked for; then what is there at that moment.

        Raises ServerError when the server is gone or refuses, Unreachable as well when the time given for an end is
        over; what was committed until then stays committed.
        """
        try:
            while not (self._options.is_one_shot or self._patience.is_stopping):
                self._take_in(*self._watch.turn())
                self._say_problems()
                self._send_on()
                self._projector.turn(self._tree.projector_folders)
            self._finish()
            self._projector.turn(self._tree.projector_folders, is_last=True)
            return self.summary()
        except ServerError:
            self._patience.abandon()
            self._dispatch.land()
            raise
        finally:
            self._patience.abandon()
            self._dispatch.close()

    def summary(self) -> Summary:
        """What was committed until now, and what is missing."""
        sources = [entry.source for entry in self._unsettled if entry.source is not None]
        state = self._state()
        counts = self._dispatch.counts
        return Summary(
            scalars=counts["scalars"],
            tensors=counts["tensors"],
            blobs=counts["blobs"],
            bytes=counts["bytes"],
            runs=state.runs,
            series=state.series,
            empty_values=counts["empty_values"],
            repeated=repeated_counts(counts),
            skipped=self._skipped(),
            problems=[
                *self._tree.problems().values(),
                *(source.trouble.explanation for source in sources if source.trouble is not None),
                *map(_deleted, self._lost),
                *(sentence for sentences in self._projector.troubles.values() for sentence in sentences),
            ],
            notes=[note for source in sources if (note := source.cut_record())],
        )

    def _finish(self) -> None:
        """Sends what is in the files now; looks once more at what is in doubt. Raises when there is no time left."""
        for changed, gone in self._watch.everything():
            self._take_in(changed, gone)
            self._dispatch.launch()
            self._show()
        doubt_until = time.monotonic() + DOUBT_SECONDS + AGAIN_SECONDS_MIN
        while self._dispatch.is_busy or (self._in_doubt() and time.monotonic() < doubt_until):
            self._send_on()
            if not self._dispatch.is_busy:
                self._take_in([entry for entry in self._in_doubt() if self._is_to_be_read_again(entry)], [])
            if self._patience.is_over:
                raise Unreachable("there was no time to send everything before the end that was asked for")

    def _send_on(self) -> None:
        """Sends what waits, and waits for what happens next, but no longer than nothing is to be done."""
        self._dispatch.launch()
        is_busy = self._dispatch.may_launch() or self._watch.is_listing
        pause = 0.0 if is_busy else min(self._watch.pause_seconds(), PAUSE_SECONDS_MAX)
        if self._dispatch.is_flying:
            self._dispatch.settle(pause)
        elif self._patience.is_stopping or self._options.is_one_shot:
            time.sleep(min(pause, AGAIN_SECONDS_MIN / 10))
        else:
            self._patience.sleep(pause)
        self._show()

    def _take_in(self, changed: Iterable[FileEntry], gone: Iterable[FileEntry]) -> None:
        """Files that may have something to be read, and files that are gone."""
        for entry in gone:
            if self._dispatch.forget(entry):
                self._lost[entry.path] = entry
                self._progress.problem(_deleted(entry.path))
            self._unsettled.pop(entry, None)
        for entry in changed:
            self._lost.pop(entry.path, None)
            is_new = entry.committed == 0 and self._watch.is_listing
            is_small = entry.size - entry.committed < URGENT_BYTES_MAX
            self._dispatch.enqueue(entry, is_urgent=is_small and not is_new)

    def _rest(self, entry: FileEntry) -> None:
        """Everything in the file was sent that can be: looks at it from time to time."""
        source = entry.source
        if source is not None and (source.trouble is not None or source.is_unsettled(entry.size)):
            self._unsettled[entry] = None
            if source.trouble is not None and not source.is_in_doubt:
                self._progress.problem(source.trouble.explanation)
        else:
            self._unsettled.pop(entry, None)
        self._watch.rest(entry)

    def _in_doubt(self) -> list[FileEntry]:
        return [entry for entry in self._unsettled if entry.source is not None and entry.source.is_in_doubt]

    def _is_to_be_read_again(self, entry: FileEntry) -> bool:
        return entry.source is not None and entry.source.is_to_be_read_again(entry.size, 0.0)

    def _state(self) -> State:
        counts = self._dispatch.counts
        return State(
            done_bytes=self._dispatch.done_bytes,
            total_bytes=self._watch.total_bytes,
            scalars=counts["scalars"],
            runs=self._dispatch.run_count,
            series=self._dispatch.series_count,
            sent_bytes=counts["bytes"],
            points=counts["scalars"] + counts["tensors"] + counts["blobs"],
            skipped=self._skipped(),
            is_idle=not (self._dispatch.is_busy or self._watch.is_listing),
        )

    def _skipped(self) -> Counter[str]:
        """What is missing so far, by reason."""
        skipped = self._cursors.skipped()
        sources = [entry.source for entry in self._unsettled if entry.source is not None]
        skipped.update(source.trouble.kind for source in sources if source.trouble is not None)
        for reason, count in (
            ("path that could not be used", len(self._tree.problems())),
            ("file deleted before all of it was sent", len(self._lost)),
        ):
            if count:
                skipped[reason] = count
        return skipped

    def _show(self) -> None:
        if self._progress.is_due():
            self._progress.show(self._state())

    def _say_problems(self) -> None:
        has_files = self._watch.file_count or self._tree.projector_folders
        if not self._watch.is_listing and not has_files:
            self._progress.problem(f"{self._options.logdir}: no event files there yet")
        if self._tree.has_news:
            self._tree.has_news = False
            for sentence in self._tree.problems(seen_times_min=SEEN_TIMES_MIN).values():
                self._progress.problem(sentence)


def _deleted(path: str) -> str:
    return f"{readable(path)}: was deleted before all of it was sent"
