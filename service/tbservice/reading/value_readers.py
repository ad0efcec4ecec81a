"""How complete series of tensors and blob sequences are read: one reader per data class.

Their tables have one row per point; scalars are read from blocks and buffers (`series.scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection

from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.reading.tables.digest_scan import TensorDigestRow
from tbservice.samples import BlobSequenceSample, Sample, TensorSample
from tbservice.series.tables.value_scan import BlobRow, TensorRow
from tbservice.types.grants import ReadGrant
from tbwire.digests import blob_sequence_digest, tensor_digest
from tbwire.points import DataClass

_Row = TypeVar("_Row", TensorRow, BlobRow)
_DigestRow = TypeVar("_DigestRow", TensorDigestRow, BlobRow)


@dataclass(frozen=True, slots=True)
class ValueReader(Generic[_Row, _DigestRow]):
    """Functions that differ between data classes when all points of a series are read.

    Attributes:
        row_type: Type of the rows, for `value_scan` and `attempt_scan`.
        make_sample: Returns rows of one series as a sample, with the blobs at the indices of each
            point, and the total.
        digest_row_type: Type of the rows without their bytes, for `digest_scan`.
        digest: Returns the digest of a row's value (`tbwire.digests`).
    """

    row_type: type[_Row]
    make_sample: Callable[[Connection, ReadGrant, Sequence[_Row], slice, int], Sample]
    digest_row_type: type[_DigestRow]
    digest: Callable[[_DigestRow], bytes]


def _make_tensor_sample(
    db: Connection, grant: ReadGrant, rows: Sequence[TensorRow], _indices: slice, total: int
) -> TensorSample:
    return make_tensor_sample(db, grant, rows, total)


def _make_blob_sequence_sample(
    _db: Connection, grant: ReadGrant, rows: Sequence[BlobRow], indices: slice, total: int
) -> BlobSequenceSample:
    return make_blob_sequence_sample(grant.experiment_id, rows, indices, total)


def _digest_tensor(row: TensorDigestRow) -> bytes:
    return tensor_digest(row.dtype, row.shape, row.data_sha256, row.histogram_sha256)


def _digest_blob_sequence(row: BlobRow) -> bytes:
    return blob_sequence_digest(row.digests, row.logged_content_type)


VALUE_READERS: Final[Mapping[DataClass, ValueReader[Any, Any]]] = {
    DataClass.TENSOR: ValueReader(TensorRow, _make_tensor_sample, TensorDigestRow, _digest_tensor),
    DataClass.BLOB_SEQUENCE: ValueReader(
        BlobRow, _make_blob_sequence_sample, BlobRow, _digest_blob_sequence
    ),
}
