"""Tensors whose bytes are an object in S3: checked before a point names them, fetched after the points were read.

A snapshot is never held while S3 is waited for: `attach_object_keys` looks the objects' keys up inside it, `load` fetches outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, ObjectMissing, TooLarge
from tbservice.ingest.decode import Segment, iter_referenced_tensors
from tbservice.store import blobs
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import (
    AppendGrant,
    Blob,
    BlobSequenceSample,
    ObjectReference,
    ScalarSample,
    TensorSample,
    TensorValue,
    WorkspaceId,
)
from tbwire import tensors

_S = TypeVar("_S", bound=ScalarSample | TensorSample | BlobSequenceSample)


def check_string_lengths(
    database: Database, objects: ObjectStore, grant: AppendGrant, segments: Sequence[Segment]
) -> None:
    """Raise Invalid unless the lengths of each referenced string tensor add up to the bytes of its object.

    Runs before the batch's transaction, so that no connection waits for S3. What is not there, or is of another size,
    is passed over: the transaction refuses it. Raises TooLarge over `BATCH_TENSOR_TABLES_BYTES_MAX`.
    """
    wanted = {
        (reference, tensors.element_count(value.shape))
        for value, reference in iter_referenced_tensors(segments)
        if value.dtype == tensors.STRING
    }
    if not wanted:
        return
    if sum(4 * count for _, count in wanted) > limits.BATCH_TENSOR_TABLES_BYTES_MAX:
        limit = f"{limits.BATCH_TENSOR_TABLES_BYTES_MAX} bytes (batch_tensor_tables_bytes_max)"
        raise TooLarge(
            f"the tables of lengths of a batch's string tensors have over {limit}; send it in parts"
        )
    with database.transaction(grant.workspace_id) as db:
        known = blobs.find_all(
            db, grant.workspace_id, {reference.sha256 for reference, _ in wanted}
        )
    for reference, count in wanted:
        blob = known.get(reference.sha256)
        if blob is not None and blob.size == reference.size:
            _check_string_length(objects, blob, count)


def _check_string_length(objects: ObjectStore, blob: Blob, count: int) -> None:
    total, rest = 4 * count, b""
    for piece in objects.read(blob.object_key, 0, 4 * count):
        content = rest + piece
        end = len(content) // 4 * 4
        total += int(np.frombuffer(content[:end], "<u4").sum(dtype=np.int64))
        rest = content[end:]
    if total != blob.size:
        raise Invalid("a string tensor's lengths do not add up to its bytes")


def attach_object_keys(
    db: Connection, workspace_id: WorkspaceId, values: Sequence[TensorValue]
) -> Sequence[TensorValue]:
    """Return the same tensors with the keys of their objects; an object nobody knows of gets none."""
    wanted = {value.reference.sha256 for value in values if value.reference is not None}
    if not wanted:
        return values
    known = blobs.find_all(db, workspace_id, wanted)
    return [
        value if value.reference is None else _with_object_key(value, value.reference, known)
        for value in values
    ]


def _with_object_key(
    value: TensorValue, reference: ObjectReference, known: Mapping[bytes, Blob]
) -> TensorValue:
    blob = known.get(reference.sha256)
    return (
        value
        if blob is None
        else replace(value, reference=replace(reference, object_key=blob.object_key))
    )


def load(objects: ObjectStore, value: TensorValue, *, is_brief: bool = False) -> TensorValue:
    """Return the tensor with its bytes, at most `TENSOR_OBJECT_BYTES_MAX`, fetched if they are an object.

    Raises Unavailable when S3 is away, ObjectUnreadable when it fails to read the object, ObjectMissing when the object
    is gone or has other bytes. With `is_brief`, S3 is asked only once for it.
    """
    reference = value.reference
    if reference is None:
        return value
    if not reference.object_key:
        raise _missing(reference)
    try:
        data = b"".join(objects.read(reference.object_key, 0, reference.size, is_brief=is_brief))
    except ObjectMissing as error:
        raise _missing(reference) from error
    if hashlib.sha256(data).digest() != reference.sha256:
        raise _missing(reference)
    return replace(value, data=data, reference=None)


def load_sample(objects: ObjectStore, sample: _S) -> _S:
    """Return the same points with the bytes of every tensor. Raises as `load`."""
    if not isinstance(sample, TensorSample) or all(
        value.reference is None for value in sample.tensors
    ):
        return sample
    return replace(sample, tensors=[load(objects, value) for value in sample.tensors])


def load_samples(
    objects: ObjectStore, samples: Mapping[str, Mapping[str, _S]]
) -> dict[str, dict[str, _S]]:
    """Return the same samples, by run and tag, with the bytes of every tensor. Raises as `load`."""
    return {
        run: {tag: load_sample(objects, sample) for tag, sample in tags.items()}
        for run, tags in samples.items()
    }


def _missing(reference: ObjectReference) -> ObjectMissing:
    detail = f"the object of a tensor (SHA-256 {reference.sha256.hex()}, {reference.size} bytes) is missing or damaged"
    return ObjectMissing(f"{detail}; send it again: tbupload verify --repair")
