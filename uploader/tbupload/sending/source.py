"""One event file on its way to the server: which stream it is, what was read ahead, and where to go back to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tbupload.errors import Conflict, CorruptRecord, FileReplaced, NotAnEventFile, ReadError
from tbupload.limits import CHUNK_BYTES, ReadLimits
from tbupload.reading.event_file import EventFile
from tbupload.reading.filters import SeriesFilter
from tbupload.reading.points import Chunk
from tbupload.sending.batches import EncodedSegment, WireLimits, drop_largest_series, encode
from tbupload.sending.cursors import CursorBook
from tbupload.sending.scan import FoundFile
from tbwire import wire_pb2

CONFLICTS_MAX: Final = 50
"""After this many conflicts with nothing committed in between, a file is given up."""

REPLACEMENTS_MAX: Final = 3
"""How often a file is started again in one read, should it be replaced over and over."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are read. `is_final` says that nobody is writing them any more; `say` tells a person what happened."""

    series_filter: SeriesFilter
    limits: WireLimits
    is_final: bool
    say: Callable[[str], None]

    def read_limits(self, chunk_bytes: int) -> ReadLimits:
        """The reader's limits: the server's, and how many bytes of a file make a chunk."""
        return ReadLimits(
            tensor_bytes_max=self.limits.tensor_bytes_max,
            blob_bytes_max=self.limits.blob_bytes_max,
            name_chars_max=self.limits.name_chars_max,
            metadata_bytes_max=self.limits.metadata_bytes_max,
            chunk_bytes=chunk_bytes,
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a file cannot be sent (further): the sort of thing it is, and a sentence with its path."""

    kind: str
    explanation: str


class Source:
    """Gives a file's segments one after the other; the next may be taken when it was told how the last one ended.

    Reading ahead (`peek`) is allowed at any time. A trouble stays with the file: others go on.
    """

    def __init__(self, found: FoundFile, reading: Reading, cursors: CursorBook) -> None:
        self.run = found.run
        self.path = found.path
        self.trouble: Trouble | None = None
        self.committed = 0
        self.travels_alone = False
        self._reading = reading
        self._cursors = cursors
        self._file: EventFile | None = None
        self._stream: wire_pb2.Stream | None = None
        self._acknowledged: dict[str, bytes] = {}
        self._ahead: Chunk | None = None
        self._returned: EncodedSegment | None = None
        self._chunk_bytes = CHUNK_BYTES
        self._narrow_until: int | None = None
        self._narrowed: tuple[int, int] | None = None
        self._conflicts = 0
        self._is_given_up = False

    def peek(self) -> Chunk | None:
        """The next chunk, which stays to be taken; None when nothing is new in the file now, or it is in trouble."""
        if self._ahead is None and not self._is_given_up:
            self._ahead = self._read()
        return self._ahead

    def take(self) -> EncodedSegment | None:
        """The next segment; None when there is nothing to send now."""
        if self._returned is not None:
            segment, self._returned = self._returned, None
            return segment
        chunk = self.peek()
        if chunk is None:
            return None
        self._ahead = None
        return self._fitting(chunk)

    def is_at_end(self) -> bool:
        """Whether everything in the file has been taken; False as well when it ends within a record."""
        return self._ahead is None and self.unread_bytes() == 0

    def unread_bytes(self) -> int:
        """Bytes of the file not read as whole records: one that is being written, or the untouched rest."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return 0
        return max(0, size - (self._file.offset if self._file is not None and self._stream is not None else 0))

    def cut_record(self) -> str | None:
        """A sentence when the file ends within a record: it is sent when the rest of it has been written."""
        count = self.unread_bytes() if self.trouble is None else 0
        return f"{self.path}: its last {count:,} bytes are no whole record yet" if count else None

    def acknowledge(self, segment: EncodedSegment, cursor: wire_pb2.Cursor) -> None:
        """The segment is committed; when another uploader is further in the same stream, goes on from there."""
        self._cursors.record(cursor)
        self._conflicts = 0
        self.travels_alone = False
        if segment.stream != self._stream:
            return  # it was replaced while the last of its old content travelled
        self.committed = cursor.offset
        self._acknowledged.update(segment.metadata)
        if cursor.offset != segment.end:
            self._forget()

    def send_back(self, segment: EncodedSegment, *, alone: bool) -> None:
        """The segment was not committed, for no fault of its own: it is the next to be taken."""
        self._returned = segment
        self.travels_alone = alone

    def resolve(self, segment: EncodedSegment, conflict: Conflict) -> None:
        """The segment was refused because its stream is elsewhere, or it lacks metadata: goes back there."""
        self._conflicts += 1
        if self._conflicts > CONFLICTS_MAX:
            self.give_up(f"the server keeps refusing it: {conflict}")
        if segment.stream != self._stream:
            return
        if conflict.offset is not None:
            self._cursors.move(segment.stream, conflict.offset, conflict.checksum or 0)
        self._forget()

    def narrow(self, segment: EncodedSegment, *, for_good: bool) -> bool:
        """Reads the segment again in smaller chunks, as it was too large; False when it is one record.

        Later chunks stay small as well when the limit is one that will be met again (`for_good`).
        """
        if self._narrowed == (segment.start, segment.end):
            return False
        self._narrowed = (segment.start, segment.end)
        chunk_bytes = max(1, (segment.end - segment.start) // 4)
        if for_good:
            self._chunk_bytes = chunk_bytes
        self._ahead = None
        self._file = self._open(segment.start, chunk_bytes)
        self._narrow_until = segment.end
        return True

    def give_up(self, explanation: str) -> None:
        """Nothing more of this file is sent in this upload."""
        self._is_given_up = True
        self._ahead = self._returned = None
        self.trouble = Trouble("file refused by the server", f"{self.path}: {explanation}")

    def _fitting(self, chunk: Chunk) -> EncodedSegment | None:
        """The chunk as a segment the server takes; when the chunk is too large, that of a smaller one in its place."""
        segment = self._encode(chunk)
        if len(segment.body) > self._reading.limits.batch_bytes_max and self.narrow(segment, for_good=False):
            return self.take()
        while len(segment.body) > self._reading.limits.batch_bytes_max and chunk.series:
            chunk = drop_largest_series(chunk)
            segment = self._encode(chunk)
        return segment

    def _encode(self, chunk: Chunk) -> EncodedSegment:
        assert self._stream is not None, "a chunk is read from a stream that is known"  # noqa: S101  # for the type checker
        start_time = self._file.start_time if self._file is not None else None
        return encode(self._stream, chunk, start_time, self._acknowledged, self._reading.limits)

    def _read(self) -> Chunk | None:
        for _ in range(REPLACEMENTS_MAX):
            try:
                chunk = self._read_on()
            except FileReplaced as error:
                self._reading.say(f"{error}; it is sent again from its beginning")
                self._forget()
            except (ReadError, OSError) as error:
                self.trouble = _trouble(self.path, error)
                return None
            else:
                self.trouble = None
                return chunk
        return None

    def _read_on(self) -> Chunk | None:
        if self._file is None or self._stream is None:
            self._file = self._find_stream()
        elif self._narrow_until is not None and self._file.offset >= self._narrow_until:
            self._file = self._open(self._file.offset)
        chunk = self._file.read(final=self._reading.is_final)
        return chunk if self._stream is not None else None

    def _find_stream(self) -> EventFile:
        """Opens the file where its stream's cursor is, or as a new generation when the bytes before are others.

        While its first record is not there, the stream stays unknown.
        """
        file = self._open(0)
        digest = file.first_record_digest()
        if digest is None:
            return file
        generation = offset = 0
        known = self._cursors.find((self.run, self.path.name, digest))
        if known is not None and file.matches(known.offset, known.checksum):
            generation, offset = known.stream.generation, known.offset
        elif known is not None:
            generation = known.stream.generation + 1
        self._stream = wire_pb2.Stream(
            run=self.run,
            file_name=self.path.name,
            first_record_digest=digest,
            generation=generation,
            filters_digest=self._cursors.filters_digest,
        )
        self.committed = offset
        return file if offset == 0 else self._open(offset)

    def _open(self, start: int, chunk_bytes: int | None = None) -> EventFile:
        self._narrow_until = None
        limits = self._reading.read_limits(chunk_bytes or self._chunk_bytes)
        return EventFile(self.path, start=start, series_filter=self._reading.series_filter, limits=limits)

    def _forget(self) -> None:
        """Forgets which stream the file is, what was read ahead of it, and what metadata the server has."""
        self._file = self._stream = self._ahead = self._returned = self._narrow_until = self._narrowed = None
        self._acknowledged = {}
        self.committed = 0


def _trouble(path: object, error: ReadError | OSError) -> Trouble:
    if isinstance(error, NotAnEventFile):
        return Trouble("file that is no event file", str(error))
    if isinstance(error, CorruptRecord):
        return Trouble("corrupt file", str(error))
    if isinstance(error, OSError):
        return Trouble("unreadable file", f"{path}: {error.strerror or error}")
    return Trouble("unreadable file", str(error))
