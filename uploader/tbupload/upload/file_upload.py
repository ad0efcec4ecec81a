"""One event file on its way to the server: which stream it is, what was read ahead, and where to go back to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tbupload.errors import Conflict, FileReplaced, ReadError
from tbupload.events import multi_file_decode, skip_reasons
from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import Chunk
from tbupload.http.wire_limits import WireLimits
from tbupload.limits import CHUNK_BYTES, ReadLimits
from tbupload.logdir.scan import FoundFile
from tbupload.upload.batches import EncodedSegment, drop_largest_series, encode_segment
from tbupload.upload.file_errors import (
    CONFIRM_REPLACED_SECONDS,
    CONFIRM_SECONDS,
    ErrorDebouncer,
    FileError,
)
from tbupload.upload.repeated_steps import RepeatedSteps
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2

CONFLICTS_MAX: Final = 50
"""After this many conflicts with nothing committed in between, a file is given up."""

REPLACEMENTS_MAX: Final = 3
"""How often a file is started again in one read, should it be replaced over and over."""

REREAD_SECONDS_MIN: Final = 0.5
REREAD_SECONDS_MAX: Final = 60.0
"""Bounds of the pause until a file that could not be read to its end is read again although it looks the same."""

REREADS_PER_QUIET_TIME: Final = 20
"""Between them, it is read again this many times in as long as it has been quiet."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read. `is_final` says that nobody is writing them any more; `say` tells a person what happened."""

    series_filter: SeriesFilter
    limits: WireLimits
    is_final: bool
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic

    def read_limits(self, chunk_bytes: int) -> ReadLimits:
        """The reader's limits: the server's, and how many bytes of a file make a chunk."""
        return ReadLimits(
            tensor_bytes_max=self.limits.tensor_bytes_max,
            blob_bytes_max=self.limits.blob_bytes_max,
            name_chars_max=self.limits.name_chars_max,
            metadata_bytes_max=self.limits.metadata_bytes_max,
            tensor_object_bytes_max=self.limits.tensor_object_bytes_max,
            tensor_rank_max=self.limits.tensor_rank_max,
            blob_sequence_length_max=self.limits.blob_sequence_length_max,
            logged_content_type_chars_max=self.limits.logged_content_type_chars_max,
            chunk_bytes=chunk_bytes,
        )


class FileUpload:
    """Gives a file's segments one after the other; the next may be taken when it was told how the last one ended.

    Reading ahead (`peek`) is allowed at any time. A trouble stays with the file: others go on. `read_at` is when the
    file was last read, by the clock of `reading`.
    """

    __slots__ = (
        *(
            "_acknowledged",
            "_prefetched",
            "_chunk_bytes",
            "_conflicts",
            "_cursors",
            "_error_debouncer",
            "_file",
            "_unread_file",
        ),
        *(
            "_is_given_up",
            "_split_until",
            "_split_range",
            "_options",
            "_repeated_steps",
            "_requeued",
            "_stream",
        ),
        *("committed", "path", "read_at", "run", "is_sent_alone"),
    )

    def __init__(self, found: FoundFile, options: ReadOptions, cursors: StreamCursors) -> None:
        self.run = found.run
        self.path = found.path
        self.committed = 0
        self.is_sent_alone = False
        self._options = options
        self._cursors = cursors
        self._file: EventFileReader | None = None
        self._unread_file: EventFileReader | None = None  # opened before the stream was known
        self._stream: wire_pb2.Stream | None = None
        self._acknowledged: dict[str, bytes] = {}
        self._repeated_steps: RepeatedSteps | None = None
        self._prefetched: Chunk | None = None
        self._requeued: EncodedSegment | None = None
        self._chunk_bytes = CHUNK_BYTES
        self._split_until: int | None = None
        self._split_range: tuple[int, int] | None = None
        self._conflicts = 0
        self._is_given_up = False
        self._error_debouncer = ErrorDebouncer(
            found.path, is_final=options.is_final, clock=options.clock
        )
        self.read_at = 0.0

    @property
    def error(self) -> FileError | None:
        """Why the file cannot be sent (further), if so."""
        return self._error_debouncer.error

    def prefetch(self) -> Chunk | None:
        """The next chunk, which stays to be taken; None when nothing is new in the file now, or it is in trouble."""
        if self._prefetched is None and not self._is_given_up:
            self._prefetched = self._read_chunk()
        return self._prefetched

    def unread_file(self) -> EventFileReader | None:
        """The file, when nothing was read of it yet, to be read together with others before it is peeked at."""
        if (
            self._file is not None
            or self._prefetched is not None
            or self._requeued is not None
            or self._is_given_up
        ):
            return None
        self._unread_file = self._open(0)
        return self._unread_file

    def is_new_to_server(self, first_record_digest: bytes) -> bool:
        """Whether the file that begins so is read from its first byte: the server has nothing of it."""
        return self._cursors.find((self.run, self.path.name, first_record_digest)) is None

    def take(self) -> EncodedSegment | None:
        """The next segment; None when there is nothing to send now."""
        if self._requeued is not None:
            segment, self._requeued = self._requeued, None
            return segment
        chunk = self.prefetch()
        if chunk is None:
            return None
        self._prefetched = None
        return self._encode_within_limit(chunk)

    def has_more(self, size: int) -> bool:
        """Whether another segment may be taken of a file of this many bytes."""
        if self._prefetched is not None or self._requeued is not None:
            return True
        return not self._is_given_up and size > self._offset

    def may_change(self, size: int) -> bool:
        """Whether reading it again may give something, even when it looks as before (so many bytes long)."""
        if self._is_given_up:
            return False
        return (
            self.error is not None or self._error_debouncer.has_unconfirmed or size > self._offset
        )

    def needs_reread(self, size: int, quiet_seconds: float) -> bool:
        """Whether it is time for that, in a file that changed so many seconds ago."""
        if not self.may_change(size):
            return False
        pause = min(
            max(quiet_seconds / REREADS_PER_QUIET_TIME, REREAD_SECONDS_MIN), REREAD_SECONDS_MAX
        )
        return self._options.clock() >= self.read_at + pause

    @property
    def has_unconfirmed_error(self) -> bool:
        """Whether what was found in the file is not believed yet: reading again soon will tell."""
        return self._error_debouncer.was_unconfirmed_at(self.read_at)

    @property
    def tag_count(self) -> int:
        """How many tags are remembered: most of what it takes in memory."""
        return len(self._acknowledged)

    def evict(self) -> None:
        """Lets go of what was learnt from the file; it is read from its cursor again, should it grow."""
        if self._prefetched is None and self._requeued is None:
            self._file = self._unread_file = self._stream = self._split_until = (
                self._split_range
            ) = None
            self._acknowledged = {}
            self._repeated_steps = None

    def unread_bytes(self) -> int:
        """Bytes of the file not read as whole records: one that is being written, or the untouched rest."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return 0
        return max(0, size - self._offset)

    def incomplete_record_note(self) -> str | None:
        """A sentence when the file ends within a record: it is sent when the rest of it has been written."""
        count = self.unread_bytes() if self.error is None else 0
        return f"{self.path}: its last {count:,} bytes are no whole record yet" if count else None

    def count_repeated(self, segment: EncodedSegment) -> Counter[str]:
        """The next segment has been sent: what `RepeatedSteps.take` says of it."""
        if self._repeated_steps is None:
            self._repeated_steps = RepeatedSteps(is_partial=segment.start > 0)
        return self._repeated_steps.take(segment.spans)

    def acknowledge(self, segment: EncodedSegment, cursor: wire_pb2.Cursor) -> None:
        """The segment is committed; when another uploader is further in the same stream, goes on from there."""
        is_current = segment.stream == self._stream
        skipped_by_us = (
            self._cursors.skipped_in(self.run, self.path.name).total() + segment.skipped.total()
        )
        self._cursors.update(cursor, is_current=is_current)
        self._conflicts = 0
        self.is_sent_alone = False
        if not is_current:
            return  # it was replaced while the last of its old content travelled
        self.committed = cursor.offset
        if self._cursors.skipped_in(self.run, self.path.name).total() <= skipped_by_us:
            # Otherwise the server took out tags that are another plugin's: it tells them by their metadata.
            self._acknowledged.update(segment.metadata)
        if cursor.offset != segment.end:
            self._reset()

    def requeue(self, segment: EncodedSegment, *, alone: bool) -> None:
        """The segment was not committed, for no fault of its own: it is the next to be taken."""
        self._requeued = segment
        self.is_sent_alone = alone

    def on_conflict(self, segment: EncodedSegment, conflict: Conflict) -> None:
        """The segment was refused because its stream is elsewhere, or it lacks metadata: goes back there."""
        self._conflicts += 1
        if self._conflicts > CONFLICTS_MAX:
            self.give_up(f"the server keeps refusing it: {conflict}")
        if segment.stream != self._stream:
            return
        if conflict.offset is not None:
            self._cursors.reset(segment.stream, conflict.offset, conflict.checksum or 0)
        self._reset()

    def split(self, segment: EncodedSegment, *, is_permanent: bool) -> bool:
        """Reads the segment again in smaller chunks, as it was too large; False when it is one record.

        Later chunks stay small as well when the limit is one that will be met again (`for_good`).
        """
        if self._split_range == (segment.start, segment.end):
            return False
        self._split_range = (segment.start, segment.end)
        chunk_bytes = max(1, (segment.end - segment.start) // 4)
        if is_permanent:
            self._chunk_bytes = chunk_bytes
        self._prefetched = None
        self._file = self._open(segment.start, chunk_bytes)
        self._split_until = segment.end
        return True

    def give_up(self, explanation: str) -> None:
        """Nothing more of this file is sent in this upload."""
        self._is_given_up = True
        self._prefetched = self._requeued = None
        self._error_debouncer.error = FileError(
            "file refused by the server", f"{self.path}: {explanation}"
        )

    def _encode_within_limit(self, chunk: Chunk) -> EncodedSegment | None:
        """The chunk as a segment the server takes; when the chunk is too large, that of a smaller one in its place."""
        segment = self._encode(chunk)
        if len(segment.body) > self._options.limits.batch_bytes_max and self.split(
            segment, is_permanent=False
        ):
            return self.take()
        while len(segment.body) > self._options.limits.batch_bytes_max and chunk.series:
            chunk = drop_largest_series(chunk)
            segment = self._encode(chunk)
        return segment

    def _encode(self, chunk: Chunk) -> EncodedSegment:
        assert self._stream is not None, "a chunk is read from a stream that is known"  # noqa: S101  # for the type checker
        start_time = self._file.start_time if self._file is not None else None
        return encode_segment(
            self._stream, chunk, start_time, self._acknowledged, self._options.limits
        )

    @property
    def _offset(self) -> int:
        """Bytes of the file that were read; once it was let go, those that are committed."""
        return self.committed if self._file is None or self._stream is None else self._file.offset

    def _read_chunk(self) -> Chunk | None:
        self.read_at = self._options.clock()
        for _ in range(REPLACEMENTS_MAX):
            try:
                chunk = self._read_next()
            except FileReplaced as error:
                if self._error_debouncer.needs_confirmation("replaced", CONFIRM_REPLACED_SECONDS):
                    return None
                self._options.warn(f"{error}; it is sent again from its beginning")
                self._reset()
            except (ReadError, OSError) as error:
                self._error_debouncer.record_error(error)
                return None
            else:
                return self._confirmed(chunk)
        return None

    def _confirmed(self, chunk: Chunk | None) -> Chunk | None:
        """The chunk, unless records in it are damaged that may be whole in a moment."""
        self._error_debouncer.error = None
        is_damaged = chunk is not None and bool(chunk.skipped[skip_reasons.RECORD_DAMAGED])
        if (
            chunk is not None
            and is_damaged
            and self._error_debouncer.needs_confirmation(("damaged", chunk.start), CONFIRM_SECONDS)
        ):
            self._file = self._open(chunk.start, self._chunk_bytes)
            return None
        self._error_debouncer.end()
        return chunk

    def _read_next(self) -> Chunk | None:
        if self._file is None or self._stream is None:
            self._file = self._find_stream()
        elif self._split_until is not None and self._file.offset >= self._split_until:
            self._file = self._open(self._file.offset)
        chunk = self._file.read(final=self._options.is_final)
        return chunk if self._stream is not None else None

    def _find_stream(self) -> EventFileReader:
        """Opens the file where its stream's cursor is, or as a new generation when the bytes before are others.

        While its first record is not there, the stream stays unknown.
        """
        file, self._unread_file = self._unread_file or self._open(0), None
        digest = file.first_record_digest()
        if digest is None:
            return file
        generation = offset = 0
        name = (self.run, self.path.name, digest)
        known = self._cursors.find(name)
        is_known = known is not None and file.matches(known.offset, known.checksum)
        if known is not None:
            generation, offset = (
                (known.generation, known.offset) if is_known else (known.generation + 1, 0)
            )
        self._cursors.start_file(name, is_known=is_known)
        self._stream = wire_pb2.Stream(
            run=self.run,
            file_name=self.path.name,
            first_record_digest=digest,
            generation=generation,
            filters_digest=self._cursors.filters_digest,
        )
        self.committed = offset
        return file if offset == 0 else self._open(offset)

    def _open(self, start: int, chunk_bytes: int | None = None) -> EventFileReader:
        self._split_until = None
        limits = self._options.read_limits(chunk_bytes or self._chunk_bytes)
        return EventFileReader(
            self.path, start=start, series_filter=self._options.series_filter, limits=limits
        )

    def _reset(self) -> None:
        """Forgets which stream the file is, what was read ahead of it, and what metadata the server has."""
        self._file = self._unread_file = self._stream = self._prefetched = self._requeued = None
        self._split_until = self._split_range = self._repeated_steps = None
        self._acknowledged = {}
        self.committed = 0


def read_together(sources: Iterable[FileUpload], *, is_final: bool) -> Iterator[FileUpload]:
    """The same sources in their order; small files of which nothing was read yet are read several at once."""
    return multi_file_decode.read_together(
        sources, FileUpload.unread_file, FileUpload.is_new_to_server, final=is_final
    )
