"""The server's upload cursors: how far each stream is committed, and what was skipped in it.

An upload may have hundreds of thousands of streams, so that each takes a few dozen bytes.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tbupload.upload.skipped_files import add_skipped
from tbwire import wire_pb2

StreamName = tuple[str, str, bytes]
"""Run, file name and digest of the first record: a stream without its generation."""

_KEY_BYTES: Final = 7
"""Bytes of a key: as an int of Python, 7 bytes take two 30-bit digits, 8 take three."""

_PACKED: Final = struct.Struct("<IQI")  # KnownCursor


class KnownCursor(NamedTuple):
    """The cursor of a stream's newest generation: bytes committed, and `preceding_crc` of them."""

    generation: int
    offset: int
    checksum: int


class StreamCursors:
    """The cursor of each stream's newest generation, and what was skipped in this upload's files.

    Only streams read with the same filters have a cursor here: others have other content.
    """

    def __init__(self, filters_digest: bytes, cursors: Iterable[wire_pb2.Cursor]) -> None:
        self.filters_digest = filters_digest
        self._packed_cursors: dict[int, bytes] = {}
        self._skipped_before: dict[int, dict[str, int]] = {}
        self._skipped: dict[tuple[str, str], Mapping[str, int]] = {}
        self._others: set[int] = set()
        runs: set[int] = set()
        for cursor in cursors:
            runs.add(_run_key(cursor.stream.run))
            if cursor.stream.filters_digest == filters_digest:
                self._store_if_newest(cursor)
            else:
                self._others.add(_stream_key(_stream_name(cursor.stream)))
        self._runs: Final = array("Q", sorted(runs))

    @property
    def is_empty(self) -> bool:
        """Return whether the server had no streams at the start."""
        return not self._runs

    @property
    def committed_bytes(self) -> int:
        """Return the bytes of files that are committed, of all streams with these filters."""
        return sum(_PACKED.unpack(packed)[1] for packed in self._packed_cursors.values())

    def has_run(self, run: str) -> bool:
        """Return whether the server had a stream of this run, with any filters, at the start."""
        key = _run_key(run)
        index = bisect_left(self._runs, key)
        return index < len(self._runs) and self._runs[index] == key

    def has_stream(self, name: StreamName) -> bool:
        """Return whether the server has the stream; with other filters, whether it had it then."""
        key = _stream_key(name)
        return key in self._packed_cursors or key in self._others

    def find(self, name: StreamName) -> KnownCursor | None:
        """Return the cursor of the stream's newest generation, if the server has one."""
        packed = self._packed_cursors.get(_stream_key(name))
        return None if packed is None else KnownCursor(*_PACKED.unpack(packed))

    def start_file(self, name: StreamName, *, is_known: bool) -> None:
        """Set what was skipped in a file, which is this stream, to what its cursor has.

        With `is_known` the file continues the generation that `find` returned; otherwise it is a
        new generation, in which nothing was skipped yet.
        """
        self._set_skipped(
            name[0], name[1], self._skipped_before.get(_stream_key(name), {}) if is_known else {}
        )

    def update(self, cursor: wire_pb2.Cursor, *, is_current: bool = True) -> None:
        """Store a cursor the server has answered.

        Without `is_current` its file has become another stream since.
        """
        self._store_if_newest(cursor)
        if is_current:
            self._set_skipped(cursor.stream.run, cursor.stream.file_name, _skipped_counts(cursor))

    def reset(self, stream: wire_pb2.Stream, offset: int, checksum: int) -> None:
        """Store the cursor from a conflict, which has no counts of what was skipped."""
        self._packed_cursors[_stream_key(_stream_name(stream))] = _PACKED.pack(
            stream.generation, offset, checksum
        )
        skipped = self._skipped.get((stream.run, stream.file_name))
        if skipped:
            self._skipped_before[_stream_key(_stream_name(stream))] = dict(skipped)

    def skipped_in(self, run: str, file_name: str) -> Counter[str]:
        """Return the points skipped in one file so far, by reason."""
        return Counter(self._skipped.get((run, file_name), {}))

    def skipped(self) -> Counter[str]:
        """Return the points skipped in this upload's files by any upload, by reason."""
        total: Counter[str] = Counter()
        for counts in self._skipped.values():
            total.update(counts)
        return total

    def skipped_files(self, logdir: str) -> dict[str, dict[str, int]]:
        """Return the same counts by the path of each file below the log directory."""
        files: dict[str, dict[str, int]] = {}
        for (run, file_name), counts in self._skipped.items():
            folder = logdir if run == "." else f"{logdir}/{run}"
            add_skipped(files, f"{folder}/{file_name}", counts)
        return files

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


def _run_key(run: str) -> int:
    return int.from_bytes(hashlib.blake2b(run.encode(), digest_size=_KEY_BYTES).digest(), "big")


def _stream_key(name: StreamName) -> int:
    """Return a hash of the stream's name.

    If two streams had the same key, one would get the cursor of the other; the checksum before the
    offset does not match then, and the file is sent from its start.
    """
    run, file_name, first_record_digest = name
    text = f"{run}\0{file_name}\0".encode()  # neither can contain a NUL
    digest = hashlib.blake2b(text + first_record_digest, digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest, "big")
