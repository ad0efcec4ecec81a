"""How much data a batch adds: points that arrive and about their bytes; exactly what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tbservice.experiments.tables.experiment_size import SCALAR_BYTES, Size
from tbservice.ingest.batch import InlineBlob, SentPoints
from tbservice.ingest.series_updates import SeriesUpdate
from tbservice.series.tables.points import Upserted
from tbservice.types.quotas import Usage
from tbwire.points import BlobSequencePoints, DataClass, TensorPoints


def measure_updates(updates: Iterable[SeriesUpdate]) -> Size:
    """Return the size of the points of the updates, including superseded ones."""
    points = data_bytes = 0
    for update in updates:
        for accepted in update.accepted:
            points += len(accepted)
            data_bytes += _count_bytes(accepted)
    return Size(points, data_bytes)


def as_usage(data_class: DataClass, added: Upserted) -> Usage:
    """Return what an upsert has added of tensors or blob sequences."""
    if data_class is DataClass.TENSOR:
        return Usage(tensors=added.new, tensor_bytes=added.tensor_bytes)
    return Usage(blob_sequences=added.new)


def measure_growth(updates: Iterable[SeriesUpdate], tensor_bytes: int) -> Usage:
    """Return what the updates have added to what is stored, with so many bytes of tensors.

    Of tensors and blob sequences, after their upsert.
    """
    new: Counter[int] = Counter()
    for update in updates:
        new[update.row.data_class] += update.row.count - update.before.count
    return Usage(
        new[DataClass.SCALAR], new[DataClass.TENSOR], new[DataClass.BLOB_SEQUENCE], tensor_bytes
    )


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
