"""How much data a batch adds: points, and an estimate of their bytes."""

from __future__ import annotations

from collections.abc import Iterable

from tbservice.experiments.tables.experiment_size import SCALAR_BYTES, Size
from tbservice.ingest.batch import InlineBlob, SentPoints
from tbservice.ingest.series_updates import SeriesUpdate
from tbwire.points import BlobSequencePoints, TensorPoints


def measure_updates(updates: Iterable[SeriesUpdate]) -> Size:
    """Return the size of the points of the updates, including superseded ones."""
    points = data_bytes = 0
    for update in updates:
        for accepted in update.accepted:
            points += len(accepted)
            data_bytes += _count_bytes(accepted)
    return Size(points, data_bytes)


def _count_bytes(points: SentPoints) -> int:
    if isinstance(points, TensorPoints):
        return sum(tensor.size for tensor in points.tensors)
    if isinstance(points, BlobSequencePoints):
        return sum(
            len(blob.content) if isinstance(blob, InlineBlob) else blob.size
            for blobs in points.sequences
            for blob in blobs
        )
    return len(points) * SCALAR_BYTES
