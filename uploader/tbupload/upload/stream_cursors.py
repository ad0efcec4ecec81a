"""What the uploader knows of the server's cursors: how far each stream is committed, and what was left out of it.

An upload may have hundreds of thousands of streams, so each takes a few dozen bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tbwire import wire_pb2

StreamName = tuple[str, str, bytes]
"""Run, file name and digest of the first record: a stream without its generation."""

_KEY_BYTES: Final = 7
"""As many as make a small number in Python."""

_PACKED: Final = struct.Struct("<IQI")


class KnownCursor(NamedTuple):
    """Where the newest generation of a stream is: bytes committed, and the checksum of those just before."""

    generation: int
    offset: int
    checksum: int


class StreamCursors:
    """The newest cursor of each stream that was read through the filters in force; others are not this upload's."""

    def __init__(self, filters_digest: bytes, cursors: Iterable[wire_pb2.Cursor]) -> None:
        self.filters_digest = filters_digest
        self._packed_cursors: dict[int, bytes] = {}
        self._skipped_before: dict[int, dict[str, int]] = {}
        self._skipped: dict[tuple[str, str], Mapping[str, int]] = {}
        for cursor in cursors:
            if cursor.stream.filters_digest == filters_digest:
                self._store_if_newest(cursor)

    def find(self, name: StreamName) -> KnownCursor | None:
        """The cursor of the stream's newest generation, if the server has one."""
        packed = self._packed_cursors.get(_stream_key(name))
        return None if packed is None else KnownCursor(*_PACKED.unpack(packed))

    def start_file(self, name: StreamName, *, is_known: bool) -> None:
        """A file turned out to be this stream: what was skipped in it before counts, what an older one held does not.

        `is_known` when it goes on with the generation that `find` told.
        """
        self._set_skipped(
            name[0], name[1], self._skipped_before.get(_stream_key(name), {}) if is_known else {}
        )

    def update(self, cursor: wire_pb2.Cursor, *, is_current: bool = True) -> None:
        """Takes over a cursor the server answered with; `is_current` unless its file has become another stream."""
        self._store_if_newest(cursor)
        if is_current:
            self._set_skipped(cursor.stream.run, cursor.stream.file_name, _skipped_counts(cursor))

    def reset(self, stream: wire_pb2.Stream, offset: int, checksum: int) -> None:
        """Takes over where the server says the stream's cursor is; what was skipped, it did not say."""
        self._packed_cursors[_stream_key(_stream_name(stream))] = _PACKED.pack(
            stream.generation, offset, checksum
        )
        skipped = self._skipped.get((stream.run, stream.file_name))
        if skipped:
            self._skipped_before[_stream_key(_stream_name(stream))] = dict(skipped)

    def skipped_in(self, run: str, file_name: str) -> Counter[str]:
        """How many points were left out of one file so far, by reason."""
        return Counter(self._skipped.get((run, file_name), {}))

    def skipped(self) -> Counter[str]:
        """How many points were left out of the files this upload has met, by reason, now or in an earlier session."""
        total: Counter[str] = Counter()
        for counts in self._skipped.values():
            total.update(counts)
        return total

    def _store_if_newest(self, cursor: wire_pb2.Cursor) -> None:
        key = _stream_key(_stream_name(cursor.stream))
        known = self._packed_cursors.get(key)
        if known is not None and _PACKED.unpack(known)[0] > cursor.stream.generation:
            return
        self._packed_cursors[key] = _PACKED.pack(
            cursor.stream.generation, cursor.offset, cursor.checksum
        )
        if cursor.skipped:
            self._skipped_before[key] = _skipped_counts(cursor)
        else:
            self._skipped_before.pop(key, None)

    def _set_skipped(self, run: str, file_name: str, counts: Mapping[str, int]) -> None:
        if counts:
            self._skipped[run, file_name] = counts
        else:
            self._skipped.pop((run, file_name), None)


def _skipped_counts(cursor: wire_pb2.Cursor) -> dict[str, int]:
    return {skipped.reason: skipped.count for skipped in cursor.skipped}


def _stream_name(stream: wire_pb2.Stream) -> StreamName:
    return (stream.run, stream.file_name, stream.first_record_digest)


def _stream_key(name: StreamName) -> int:
    """A number for the stream: should two ever have the same, the checksum before the offset tells them apart."""
    run, file_name, first_record_digest = name
    text = f"{run}\0{file_name}\0".encode()  # neither may hold a NUL
    return int.from_bytes(
        hashlib.blake2b(text + first_record_digest, digest_size=_KEY_BYTES).digest()
    )
