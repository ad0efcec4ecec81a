"""Segments of one file that a reader has read ahead of the upload."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from tbupload.upload.segments import EncodedSegment


class SegmentReader(Protocol):
    """The reader of a file, as far as the file's upload needs it."""

    def note_taken(self, number: int, segment: EncodedSegment) -> None:
        """Let the reader read further: a segment was taken, or is not wanted."""

    def drop(self, number: int) -> None:
        """End reading a file."""


class ReadAhead:
    """The segments a reader has read of one file from `offset`, in order.

    `offset` is where the next segment begins; `is_ended` means that the reader sends no more.
    """

    __slots__ = ("_number", "_reader", "is_ended", "offset", "segments")

    def __init__(self, reader: SegmentReader, number: int, offset: int) -> None:
        self.offset = offset
        self.is_ended = False
        self.segments: deque[EncodedSegment] = deque()
        self._reader = reader
        self._number = number

    @property
    def is_waiting(self) -> bool:
        """Return whether the next segment is still being read."""
        return not self.segments and not self.is_ended

    def take(self) -> EncodedSegment | None:
        """Return the next segment; None if there is none (yet)."""
        if not self.segments:
            return None
        segment = self.segments.popleft()
        self.offset = segment.end
        self._reader.note_taken(self._number, segment)
        return segment

    def close(self) -> None:
        """Drop what was not taken, and end reading the file."""
        while self.segments:
            self._reader.note_taken(self._number, self.segments.popleft())
        self._reader.drop(self._number)
