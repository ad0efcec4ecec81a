"""Samples of tensor and blob sequence series, made from the rows of their points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlalchemy import Connection

from tbservice.objects.tables import blobs
from tbservice.reading import tensor_objects
from tbservice.reading.blobs import make_blob_key
from tbservice.samples import BlobSequenceSample, Sample, TensorSample
from tbservice.series.tables.value_scan import BlobRow, TensorRow
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbservice.types.series import Blob


def make_tensor_sample(
    db: Connection, grant: ReadGrant, rows: Sequence[TensorRow], total: int
) -> TensorSample:
    """Return a sample of one series that has `total` points.

    Tensors that are objects get their object keys; their bytes remain to be loaded
    (`tensor_objects.load_sample`). Raises ObjectMissing for an object without a row in `blobs`.
    """
    values = [row.value for row in rows]
    attached = tensor_objects.attach_object_keys(db, grant.workspace_id, values)
    return TensorSample(*_steps_and_wall_times(rows), attached, total)


def make_blob_sequence_sample(
    experiment_id: ExperimentId, rows: Sequence[BlobRow], indices: slice, total: int
) -> BlobSequenceSample:
    """Return a sample of one series that has `total` points, with the blobs at `indices` of each.

    Keys contain the index in the full sequence, so that they are made before `indices` apply.
    """
    sequences = [
        [
            make_blob_key(experiment_id, row.series_id, row.step, index, digest)
            for index, digest in enumerate(row.digests)
        ][indices]
        for row in rows
    ]
    digests = [row.digests[indices] for row in rows]
    content_types = [row.logged_content_type for row in rows]
    return BlobSequenceSample(
        *_steps_and_wall_times(rows), sequences, content_types, digests, total
    )


def find_blobs(db: Connection, grant: ReadGrant, samples: Iterable[Sample]) -> Mapping[bytes, Blob]:
    """Return the blobs of all blob sequences among these samples, by SHA-256."""
    digests = {
        digest
        for sample in samples
        if isinstance(sample, BlobSequenceSample)
        for sequence in sample.digests
        for digest in sequence
    }
    return blobs.find_all(db, grant.workspace_id, digests) if digests else {}


def _steps_and_wall_times(
    rows: Sequence[TensorRow] | Sequence[BlobRow],
) -> tuple[Int64s, Float64s]:
    steps = np.array([row.step for row in rows], np.int64)
    return steps, np.array([row.wall_time for row in rows], np.float64)
