"""How complete series of tensors and blob sequences are read: one reader per data class.

Their tables have one row per point; scalars are read from blocks and buffers (`scalars.scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection

from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.reading.tables import attempt_scan, digest_scan
from tbservice.reading.tables.attempt_scan import Before
from tbservice.reading.tables.digest_scan import BlobDigestRow, TensorDigestRow
from tbservice.samples import BlobSequenceSample, Sample, TensorSample
from tbservice.series.tables import value_scan
from tbservice.series.tables.value_scan import BlobRow, TensorRow
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange
from tbwire.digests import blob_sequence_digest, tensor_digest
from tbwire.points import DataClass

_Row = TypeVar("_Row", TensorRow, BlobRow)
_DigestRow = TypeVar("_DigestRow", TensorDigestRow, BlobDigestRow)


@dataclass(frozen=True, slots=True)
class ValueReader(Generic[_Row, _DigestRow]):
    """Functions that differ between data classes when all points of a series are read.

    Attributes:
        stream: Streams the rows in a range of steps, by series in the order of their ids, then by
            step.
        stream_attempt: Streams the rows of each series as it was before a wall time.
        make_sample: Returns rows of one series as a sample, with the blobs at the indices of each
            point, and the total.
        stream_digest_rows: Streams rows without their bytes in chunks, by series id, then by step:
            those after a step, up to a number of points.
        digest: Returns the digest of a row's value (`tbwire.digests`).
    """

    stream: Callable[[Connection, ExperimentId, Sequence[int], StepRange], Iterator[_Row]]
    stream_attempt: Callable[[Connection, ExperimentId, Before, StepRange], Iterator[_Row]]
    make_sample: Callable[[Connection, ReadGrant, Sequence[_Row], slice, int], Sample]
    stream_digest_rows: Callable[
        [Connection, ExperimentId, Sequence[int], int | None, int | None],
        Iterator[list[_DigestRow]],
    ]
    digest: Callable[[_DigestRow], bytes]


def _stream_tensor_attempt(
    db: Connection, experiment_id: ExperimentId, before: Before, steps: StepRange
) -> Iterator[TensorRow]:
    return attempt_scan.stream(db, TensorRow, DataClass.TENSOR, experiment_id, before, steps)


def _stream_blob_attempt(
    db: Connection, experiment_id: ExperimentId, before: Before, steps: StepRange
) -> Iterator[BlobRow]:
    return attempt_scan.stream(db, BlobRow, DataClass.BLOB_SEQUENCE, experiment_id, before, steps)


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


def _digest_blob_sequence(row: BlobDigestRow) -> bytes:
    return blob_sequence_digest(row.digests, row.logged_content_type)


VALUE_READERS: Final[Mapping[DataClass, ValueReader[Any, Any]]] = {
    DataClass.TENSOR: ValueReader(
        value_scan.stream_tensors,
        _stream_tensor_attempt,
        _make_tensor_sample,
        digest_scan.stream_tensors,
        _digest_tensor,
    ),
    DataClass.BLOB_SEQUENCE: ValueReader(
        value_scan.stream_blob_sequences,
        _stream_blob_attempt,
        _make_blob_sequence_sample,
        digest_scan.stream_blob_sequences,
        _digest_blob_sequence,
    ),
}
