"""Read one event file, chunk by chunk, also while a job is still writing it."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from tbupload.errors import CorruptRecord, FileReplaced, NotAnEventFile
from tbupload.events import framing
from tbupload.events.decode.budget import ChunkIsFull
from tbupload.events.decode.decoder import ChunkDecoder
from tbupload.events.decode.file_parts import FilePart
from tbupload.events.decode.record_rows import PADDING_BYTES, new_buffer
from tbupload.events.filters import SeriesFilter
from tbupload.events.first_record import FirstRecord, read_first_record
from tbupload.events.framing import RecordFrames
from tbupload.events.large_records import long_record
from tbupload.events.large_records.field_placeholders import FieldPlaceholders
from tbupload.events.large_records.long_record import LongRecordReader
from tbupload.events.points import Chunk, SeriesPoints
from tbupload.events.skip_reasons import RECORD_DAMAGED, over_limit_error
from tbupload.events.tag_registry import RestartDecode, TagRegistry
from tbupload.events.tf_record import FRAME_BYTES, HEADER_BYTES
from tbupload.limits import CHUNK_BYTES, ReadLimits
from tbupload.remote_files import file_status, open_unbuffered
from tbwire.checksums import PRECEDING_BYTES, preceding_crc

_HEAD_BYTES: Final = 1 << 10
"""Bytes of a small file that are read first: the first record is usually within them."""


@dataclass(frozen=True)
class _ReadWindow:
    """Bytes of the file around the reader's offset.

    Attributes:
        buffer: `content`, and after it the padding that the decoder needs.
        content: Up to `PRECEDING_BYTES` before the offset, and what was read after it.
        base: Where the offset is in `content`.
        size: Bytes of the file, at least up to the end of `content`.
    """

    buffer: memoryview
    content: memoryview
    base: int
    size: int


class EventFileReader:
    """Reads an event file in chunks of complete records, from byte `start`.

    The end of the file is not the end of the run: a later call may find more. No file descriptor
    stays open between calls. `start` must be 0 or the end of a chunk of this file. `offset` is the
    number of bytes read so far: the next chunk starts there.
    """

    def __init__(
        self, path: Path, *, start: int, series_filter: SeriesFilter, limits: ReadLimits
    ) -> None:
        self.path = path
        self.limits = limits
        self._start = start
        self._end: int | None = None  # nothing is read from here on; only set to replay a prefix
        self._series_filter = series_filter
        self._prefetched: Chunk | None = None
        self.offset = self._start
        # Of the bytes before the offset; None until they were read once.
        self._preceding_crc: int | None = 0 if self._start == 0 else None
        self._first_record: FirstRecord | None = None
        self._inode: tuple[int, int] | None = None
        self._registry = TagRegistry(
            self._series_filter, self.limits, self._replay_prefix if self._start else None
        )

    @property
    def start_time(self) -> float | None:
        """Return the first event's wall time, seconds since the epoch; None while unknown.

        Raises FileReplaced, and OSError when the file cannot be opened or read.
        """
        first = self._find_first_record()
        return None if first is None else first.wall_time

    def first_record_digest(self) -> bytes | None:
        """Return the SHA-256 of the first record, framing included; None until it is complete.

        Raises FileReplaced, and OSError when the file cannot be opened or read.
        """
        first = self._find_first_record()
        return None if first is None else first.digest

    def matches(self, offset: int, checksum: int) -> bool:
        """Return whether the bytes before `offset` have this `preceding_crc`.

        False also when the file is shorter. Raises OSError.
        """
        with self.path.open("rb") as file:
            if file_status(file).st_size < offset:
                return False
            return preceding_crc(_read_preceding(file, offset)) == checksum

    def read(self, *, final: bool = False) -> Chunk | None:
        """Return the next chunk of records that are complete now; None means: call again later.

        A record cut at the end of the file is not an error: the job may still be writing it. Nor
        is a last record with a wrong checksum of its payload, unless `final`.

        After any error nothing has changed: the next call reads at the same offset again.

        Args:
            final: No job is writing the file any more.

        Raises:
            NotAnEventFile: The file does not begin with a record.
            CorruptRecord: The next header fails its checksum; the records before it were returned.
            FileReplaced: The file was truncated or replaced since the last call.
            OSError: The file cannot be opened or read.
        """
        # Decoded together with other files: its bytes were read then.
        if self._prefetched is not None:
            chunk, self._prefetched = self._prefetched, None
            self.offset, self._preceding_crc = chunk.end, chunk.end_checksum
            return chunk

        with self.path.open("rb") as file:
            self._check_identity(file)
            window = self._load(file, self.limits.chunk_bytes)
            frames = framing.find_records(window.content, window.base)
            if not len(frames.starts) and frames.next_bytes:
                # Its header is intact, and the rest has not been written yet.
                if self.offset + frames.next_bytes > window.size:
                    return None
                if frames.next_bytes - FRAME_BYTES > self.limits.record_bytes_max:
                    return self._skip_record(file, frames.next_bytes)
                if frames.next_bytes - FRAME_BYTES > self.limits.streamed_record_bytes_min:
                    return self._read_long(file, frames.next_bytes, final=final)
                window = self._load(file, frames.next_bytes)
                frames = framing.find_records(window.content, window.base)

        return self._decode(window, frames, final=final)

    def load(self, room: memoryview, is_wanted: Callable[[bytes], bool]) -> int:
        """Read the complete file into `room`, to be decoded together with others.

        Args:
            room: Where the bytes are written.
            is_wanted: Called with the digest of the first record; False leaves the file alone.

        Returns:
            The number of bytes; 0 when the file is not suitable: some of it was read before,
            it does not fit, its first record is not complete, or `is_wanted` returned False.

        Raises:
            OSError: The file cannot be opened or read.
        """
        if self._start or self.offset or self._prefetched is not None:
            return 0
        with open_unbuffered(self.path) as file:
            status = file_status(file)
            # Small files only: a joint decode of many pays where one alone would not fill a matrix.
            if status.st_size > min(
                len(room), self.limits.chunk_bytes, self.limits.streamed_record_bytes_min
            ):
                return 0

            beginning = file.read(min(_HEAD_BYTES, status.st_size))
            first = read_first_record(io.BytesIO(beginning), len(beginning))
            if first is None or not is_wanted(first.digest):
                return 0

            self._first_record, self._inode = first, (status.st_dev, status.st_ino)
            room[: len(beginning)] = beginning
            return len(beginning) + (file.readinto(room[len(beginning) : status.st_size]) or 0)

    def file_part(self, stop: int) -> FilePart:
        """Return this file as a part of a joint decode; its last record is before index `stop`."""
        return FilePart(self._registry, stop)

    def set_first_chunk(self, content: memoryview, part: FilePart) -> None:
        """Store what was decoded from the file's first bytes; the next `read` returns it."""
        checksum = preceding_crc(bytes(content[-PRECEDING_BYTES:]))
        self._prefetched = Chunk(0, len(content), 0, checksum, part.series, part.skipped)

    def _decode(self, window: _ReadWindow, frames: RecordFrames, *, final: bool) -> Chunk | None:
        if frames.is_corrupt and not len(frames.starts):
            raise (
                CorruptRecord(self.path, self.offset) if self.offset else NotAnEventFile(self.path)
            )
        # A payload at the end of a file that grows may be there in part: its checksum fails until
        # then.
        if not final and self.offset + frames.end - window.base == window.size:
            frames = framing.drop_corrupt_end(window.content, frames)
        if not len(frames.starts):
            return None

        part = FilePart(self._registry, len(frames.starts))
        try:
            ChunkDecoder(window.buffer, frames, [part], self.limits).decode()
        # `final`, since the last record is no longer at the end of the file.
        except ChunkIsFull as full:
            return self._decode(window, framing.first_records(frames, full.record), final=True)
        except RestartDecode:
            return self._decode(window, frames, final=True)

        preceding = bytes(window.content[max(0, frames.end - PRECEDING_BYTES) : frames.end])
        chunk = self._advance(frames.end - window.base, preceding)
        chunk.series, chunk.skipped = part.series, part.skipped
        return chunk

    def _skip_record(self, file: BinaryIO, size: int) -> Chunk:
        """Skip the record at the offset, of `size` bytes in the file, and count it."""
        chunk = self._advance(size, _read_preceding(file, self.offset + size))
        chunk.skipped[over_limit_error("record", self.limits.record_bytes_max, "bytes").reason] = 1
        return chunk

    def _read_long(self, file: BinaryIO, size: int, *, final: bool) -> Chunk | None:
        """Read the record at the offset, of `size` bytes in the file, without loading it."""
        start, length = self.offset + HEADER_BYTES, size - FRAME_BYTES
        is_intact = long_record.matches_checksum(file, start, length)
        if not is_intact and not final and self.offset + size == file_status(file).st_size:
            return None

        series, skipped = (
            self._read_fields(file, start, length)
            if is_intact
            else ([], Counter({RECORD_DAMAGED: 1}))
        )
        chunk = self._advance(size, _read_preceding(file, self.offset + size))
        chunk.series, chunk.skipped = series, skipped
        return chunk

    def _read_fields(
        self, file: BinaryIO, start: int, length: int
    ) -> tuple[list[SeriesPoints], Counter[str]]:
        """Return the points in a long record's payload, and the reasons for what is skipped."""
        placeholders = FieldPlaceholders(file, digests_blobs=self._end is None)
        reader = LongRecordReader(file, self._registry, self.limits, placeholders)
        try:
            return reader.read(start, start + length), reader.skipped
        except RestartDecode:
            return self._read_fields(file, start, length)

    def _advance(self, size: int, preceding: bytes) -> Chunk:
        """Move the offset by `size` bytes, and return the empty chunk of these bytes.

        `preceding` ends at the new offset and has at least `PRECEDING_BYTES`, or all before it.
        """
        assert self._preceding_crc is not None, "a window was loaded"  # noqa: S101 - for the type checker
        start, start_checksum = self.offset, self._preceding_crc
        self.offset, self._preceding_crc = start + size, preceding_crc(preceding)
        return Chunk(start, self.offset, start_checksum, self._preceding_crc)

    def _load(self, file: io.BufferedReader, bytes_max: int) -> _ReadWindow:
        """Read up to `bytes_max` bytes from the offset, at least a header.

        Raises FileReplaced when the file is shorter, or the bytes before the offset have changed.
        """
        size = file_status(file).st_size
        if size < self.offset:
            raise FileReplaced(self.path)

        read_bytes = max(bytes_max, HEADER_BYTES)
        if self._end is not None:
            read_bytes, size = min(read_bytes, self._end - self.offset), self._end
        base = min(self.offset, PRECEDING_BYTES)
        file.seek(self.offset - base)
        # No larger than needed: a file that a job is writing grows by little between two reads.
        buffer = new_buffer(min(base + read_bytes, max(size - self.offset + base, HEADER_BYTES)))
        length = file.readinto(buffer[:-PADDING_BYTES])

        content = buffer[:length]
        crc = preceding_crc(bytes(content[:base]))
        # A file that was truncated and has grown again is long enough: only its bytes tell.
        if length < base or self._preceding_crc not in (None, crc):
            raise FileReplaced(self.path)
        self._preceding_crc = crc
        return _ReadWindow(buffer, content, base, max(size, self.offset + length - base))

    def _check_identity(self, file: BinaryIO) -> None:
        """Raise FileReplaced when another file has the name now and has another first record.

        A copy that grew is the same file: rsync writes a new file and renames it.
        """
        status = file_status(file)
        inode = (status.st_dev, status.st_ino)
        if self._first_record is None:
            self._first_record = read_first_record(file, status.st_size)
        # The inode alone would not do: rsync and editors rename a new file over the old one.
        elif inode != self._inode or self.offset == 0:
            first = read_first_record(file, status.st_size)
            if first is None or first.digest != self._first_record.digest:
                raise FileReplaced(self.path)
        self._inode = inode

    def _find_first_record(self) -> FirstRecord | None:
        if self._first_record is None:
            with self.path.open("rb") as file:
                self._check_identity(file)
        return self._first_record

    def _replay_prefix(self) -> TagRegistry:
        """Return the tags of the part of the file before `start`, by reading that part again."""
        # The caller's chunks may be small, to fit a request; here nothing is sent.
        limits = replace(self.limits, chunk_bytes=CHUNK_BYTES)
        prefix = EventFileReader(
            self.path, start=0, series_filter=self._series_filter, limits=limits
        )
        prefix._end = self._start
        with contextlib.suppress(CorruptRecord, NotAnEventFile):
            while prefix.offset < self._start and prefix.read(final=True) is not None:
                pass
        return prefix._registry


def _read_preceding(file: BinaryIO, offset: int) -> bytes:
    size = min(offset, PRECEDING_BYTES)
    file.seek(offset - size)
    return file.read(size)
