"""What the uploader knows of the server's cursors: how far each stream is committed, and what was left out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tbwire import wire_pb2

StreamName = tuple[str, str, bytes]
"""Run, file name and digest of the first record: a stream without its generation."""


class CursorBook:
    """The newest cursor of each stream that was read through the filters in force; others are not this upload's."""

    def __init__(self, filters_digest: bytes, cursors: Iterable[wire_pb2.Cursor]) -> None:
        self.filters_digest = filters_digest
        self._newest: dict[StreamName, wire_pb2.Cursor] = {}
        self._touched: dict[tuple[StreamName, int], wire_pb2.Cursor] = {}
        for cursor in cursors:
            if cursor.stream.filters_digest == filters_digest:
                self._keep_newest(cursor)

    def find(self, name: StreamName) -> wire_pb2.Cursor | None:
        """The cursor of the stream's newest generation; what was skipped in it counts from now on."""
        cursor = self._newest.get(name)
        if cursor is not None:
            self._touched[name, cursor.stream.generation] = cursor
        return cursor

    def record(self, cursor: wire_pb2.Cursor) -> None:
        """Takes over a cursor the server answered with."""
        self._keep_newest(cursor)
        self._touched[_name(cursor), cursor.stream.generation] = cursor

    def move(self, stream: wire_pb2.Stream, offset: int, checksum: int) -> None:
        """Takes over where the server says the stream's cursor is, when it did not say what was skipped."""
        cursor = wire_pb2.Cursor(stream=stream, offset=offset, checksum=checksum)
        known = self._touched.get((_name(cursor), stream.generation))
        if known is not None:
            cursor.skipped.extend(known.skipped)
        self.record(cursor)

    def skipped(self) -> Counter[str]:
        """How many points were left out of the streams this upload has met, by reason, now or in an earlier session."""
        total: Counter[str] = Counter()
        for cursor in self._touched.values():
            total.update({skipped.reason: skipped.count for skipped in cursor.skipped})
        return total

    def _keep_newest(self, cursor: wire_pb2.Cursor) -> None:
        known = self._newest.get(_name(cursor))
        if known is None or known.stream.generation <= cursor.stream.generation:
            self._newest[_name(cursor)] = cursor


def _name(cursor: wire_pb2.Cursor) -> StreamName:
    stream = cursor.stream
    return (stream.run, stream.file_name, stream.first_record_digest)
