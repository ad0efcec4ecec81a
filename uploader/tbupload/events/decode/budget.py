"""Bound the memory of a chunk's points: a few bytes of a record can expand to a large tensor."""

from __future__ import annotations

from typing import Final

from tbupload.events import skip_reasons
from tbupload.events.decode.summaries import Point
from tbupload.events.points import BlobSequence, FileBlob, Tensor
from tbupload.events.skip_reasons import ValueRefused

RECORD_TENSORS_BYTES_MAX: Final = 24 << 20
"""Tensors and small blobs loaded of one record: more than any request may contain."""

CHUNK_TENSORS_BYTES_MAX: Final = 32 << 20
"""Decoded tensors and small blobs after which a chunk ends, since few bytes may expand to many."""


class ChunkIsFull(Exception):
    """The records before the one with index `record` fill a chunk. Not an error."""

    def __init__(self, record: int) -> None:
        super().__init__(record)
        self.record = record


class Budget:
    """Counts the bytes of tensors and blobs in memory, record by record in file order."""

    def __init__(self) -> None:
        self._record = -1
        self._record_bytes = 0
        self._chunk_bytes = 0

    def begin(self, record: int) -> None:
        """Begin a record, or another value of the same one.

        Raises ChunkIsFull when the records before it have more than `CHUNK_TENSORS_BYTES_MAX`.
        """
        if record != self._record and self._chunk_bytes > CHUNK_TENSORS_BYTES_MAX:
            raise ChunkIsFull(record)
        if record != self._record:
            self._record, self._record_bytes = record, 0

    def charge(self, point: Point) -> None:
        """Count a point; raise ValueRefused when its record then is larger than any request."""
        size = _memory_bytes(point)
        if self._record_bytes + size > RECORD_TENSORS_BYTES_MAX:
            raise ValueRefused(skip_reasons.RECORD_TOO_LARGE)
        self._record_bytes += size
        self._chunk_bytes += size


def _memory_bytes(point: Point) -> int:
    if isinstance(point, Tensor):
        extents = point.in_file.extents if point.in_file is not None else ()
        return len(point.data) + sum(len(extent) for extent in extents if isinstance(extent, bytes))
    if isinstance(point, BlobSequence):
        return sum(len(blob) for blob in point.blobs if not isinstance(blob, FileBlob))
    return 0
