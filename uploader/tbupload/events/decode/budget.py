"""How much is held of a chunk's points at once: a few bytes of a record can stand for a tensor of megabytes."""

from __future__ import annotations

from tbupload.events import skip_reasons
from tbupload.events.decode.summaries import Point
from tbupload.events.points import BlobSequence, FileBlob, Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbupload.limits import CHUNK_TENSORS_BYTES_MAX, RECORD_TENSORS_BYTES_MAX


class ChunkIsFull(Exception):
    """The records before `record` (its index) are enough for one chunk; not an error."""

    def __init__(self, record: int) -> None:
        super().__init__(record)
        self.record = record


class Budget:
    """Counts the bytes of tensors and blobs that were read, record by record in file order."""

    def __init__(self) -> None:
        self._record = -1
        self._record_bytes = 0
        self._chunk_bytes = 0

    def begin(self, record: int) -> None:
        """Goes on with a record, or another value of the same; raises ChunkIsFull when those before are enough."""
        if record != self._record and self._chunk_bytes > CHUNK_TENSORS_BYTES_MAX:
            raise ChunkIsFull(record)
        if record != self._record:
            self._record, self._record_bytes = record, 0

    def take(self, point: Point) -> None:
        """Keeps a point; raises ValueRefused when the record then holds more than any request could take."""
        size = _memory_bytes(point)
        if self._record_bytes + size > RECORD_TENSORS_BYTES_MAX:
            raise ValueRefused(skip_reasons.RECORD_TOO_LARGE)
        self._record_bytes += size
        self._chunk_bytes += size


def _memory_bytes(point: Point) -> int:
    if isinstance(point, Tensor):
        pieces = point.in_file.pieces if point.in_file is not None else ()
        return len(point.data) + sum(len(piece) for piece in pieces if isinstance(piece, bytes))
    if isinstance(point, BlobSequence):
        return sum(len(blob) for blob in point.blobs if not isinstance(blob, FileBlob))
    return 0
