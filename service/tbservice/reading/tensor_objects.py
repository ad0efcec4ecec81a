"""Tensors stored as objects in S3, loaded after points were read.

No transaction is open during a call to S3: `attach_object_keys` looks the object keys up inside
the snapshot, `load` fetches the bytes after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Connection

from tbservice.errors import ObjectMissing
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs
from tbservice.samples import ObjectReference, Sample, Samples, TensorSample, TensorValue
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.series import Blob, Series

_S = TypeVar("_S", bound=Sample)


def attach_object_keys(
    db: Connection, workspace_id: WorkspaceId, values: Sequence[TensorValue]
) -> Sequence[TensorValue]:
    """Return the same tensors with their object keys; unknown objects get none."""
    digests = {value.reference.sha256 for value in values if value.reference is not None}
    if not digests:
        return values

    known = blobs.find_all(db, workspace_id, digests)
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
    """Return the tensor with its bytes; fetches at most `TENSOR_OBJECT_BYTES_MAX` if an object.

    Raises Unavailable when S3 is unavailable, ObjectUnreadable when S3 fails to read the object,
    ObjectMissing when the object is missing or its bytes do not have the SHA-256. With `is_brief`,
    the object is requested only once, without retries.
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


def load_samples(objects: ObjectStore, samples: Iterable[tuple[Series, _S]]) -> Samples[_S]:
    """Return the same samples with the bytes of every tensor. Raises as `load`."""
    return [(series, load_sample(objects, sample)) for series, sample in samples]


def _missing(reference: ObjectReference) -> ObjectMissing:
    name = f"SHA-256 {reference.sha256.hex()}, {reference.size} bytes"
    detail = f"the object of a tensor ({name}) is missing or damaged"
    return ObjectMissing(f"{detail}; send it again: tbupload verify --repair")
