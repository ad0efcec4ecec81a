"""Data read from an event file before it is sent: a reader, a chunk, a requeued segment.

A file of a backlog may be read by a process of its own: then its segments are there instead.
"""

from __future__ import annotations

from typing import Final

from tbupload.events.event_file import EventFileReader
from tbupload.events.points import Chunk
from tbupload.limits import CHUNK_BYTES
from tbupload.upload.file_stream import FileStream
from tbupload.upload.read_ahead import ReadAhead
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.segments import EncodedSegment

_SPLIT_FACTOR: Final = 4
"""A segment that is too large is read again in chunks of this fraction of its size."""


class Prefetch:
    """The reading position in a file, and at most one chunk and one segment read but not yet sent.

    `chunk` is the next to be encoded. `requeued` is a segment that was not committed; it comes
    before the chunk, and is sent as it is. `ahead` has the segments of another process that reads
    the file, instead of a reader and a chunk.
    """

    __slots__ = (
        "_chunk_bytes",
        "_options",
        "_reader",
        "_split_range",
        "_split_until",
        "_stream",
        "_unread",
        "ahead",
        "chunk",
        "requeued",
    )

    def __init__(self, stream: FileStream, options: ReadOptions) -> None:
        self.chunk: Chunk | None = None
        self.requeued: EncodedSegment | None = None
        self.ahead: ReadAhead | None = None
        self._stream = stream
        self._options = options
        self._reader: EventFileReader | None = None
        self._unread: EventFileReader | None = None  # opened at 0 before the stream was known
        self._chunk_bytes = CHUNK_BYTES
        self._split_until: int | None = None  # the offset at which small chunks end
        self._split_range: tuple[int, int] | None = None  # of the segment split last

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was read that is still to be sent."""
        has_ahead = self.ahead is not None and bool(self.ahead.segments)
        return self.chunk is None and self.requeued is None and not has_ahead

    @property
    def has_small_chunks(self) -> bool:
        """Return whether a chunk of the usual size had too many series, or was refused."""
        return self._chunk_bytes != CHUNK_BYTES

    @property
    def offset(self) -> int:
        """Return the bytes read so far; those committed if the file is not open.

        Of a file that another process reads, those of the segments that were taken.
        """
        if self.ahead is not None:
            return self.ahead.offset
        if self._reader is None or self._stream.message is None:
            return self._stream.committed
        return self._reader.offset

    @property
    def start_time(self) -> float | None:
        """Return the wall time of the file's first event, if it has been read."""
        return self._reader.start_time if self._reader is not None else None

    def open_unread(self) -> EventFileReader | None:
        """Return a reader of the file at its first byte, or None if the file has been read already.

        `read_chunk` uses it as well, so that what it decodes is not decoded again.
        """
        if self._reader is not None or self.ahead is not None or not self.is_empty:
            return None
        self._unread = self._open(0)
        return self._unread

    def read_chunk(self) -> Chunk | None:
        """Return the next chunk; None at the end of the file, or while its stream is unknown.

        Raises:
            FileReplaced: The bytes before the offset are not those that were read.
            ReadError: The file is damaged, or is not an event file.
            OSError: The file cannot be read.
        """
        if self._reader is None or self._stream.message is None:
            self._reader = self._open_at_cursor()
        elif self._split_until is not None and self._reader.offset >= self._split_until:
            # The end of the range that was too large: large chunks again.
            self._reader = self._open(self._reader.offset)
        chunk = self._reader.read(final=self._options.is_final)
        return chunk if self._stream.message is not None else None

    def find_cursor(self) -> None:
        """Find the file's stream, unless it is known, and drop the readers.

        Raises FileReplaced and OSError.
        """
        if self._stream.message is None:
            self._open_at_cursor()
        self._reader = self._unread = None

    def leave_ahead(self) -> None:
        """Read the file here from now on: from the next byte that was not taken.

        To be called when nothing taken is still to be answered: then that is the cursor.
        """
        if self.ahead is not None:
            ahead, self.ahead = self.ahead, None
            ahead.close()

    def read_again(self, chunk: Chunk) -> None:
        """Move back to the start of a chunk."""
        self._reader = self._open(chunk.start)

    def split(
        self, part: EncodedSegment | Chunk, *, is_permanent: bool, factor: int = _SPLIT_FACTOR
    ) -> bool:
        """Move back to the start of a segment or chunk, to read it in `factor` smaller chunks.

        Returns False if it was split before: it is one record. With `is_permanent`, later chunks
        are small as well.
        """
        if self._split_range == (part.start, part.end):
            return False

        self._split_range = (part.start, part.end)
        # A chunk has one record at least, whatever its size: a second split of the same range is
        # none.
        chunk_bytes = max(1, (part.end - part.start) // factor)
        if is_permanent:
            self._chunk_bytes = chunk_bytes
        self.chunk = None
        self.leave_ahead()
        self._reader = self._open(part.start, chunk_bytes)
        self._split_until = part.end
        return True

    def close(self) -> None:
        """Drop the readers."""
        self.leave_ahead()
        self._reader = self._unread = self._split_until = self._split_range = None

    def reset(self) -> None:
        """Drop the readers and all that was read."""
        self.close()
        self.clear()

    def clear(self) -> None:
        """Drop the chunk and the segment, and those another process has read."""
        self.leave_ahead()
        self.chunk = self.requeued = None

    def _open_at_cursor(self) -> EventFileReader:
        reader, self._unread = self._unread or self._open(0), None
        offset = self._stream.identify(reader)
        return self._open(offset) if offset else reader

    def _open(self, start: int, chunk_bytes: int | None = None) -> EventFileReader:
        self._split_until = None
        limits = self._options.limits.read_limits(chunk_bytes or self._chunk_bytes)
        return EventFileReader(
            self._stream.path, start=start, series_filter=self._options.series_filter, limits=limits
        )
