"""The columns of a tensor, in `tensor_points` and `superseded_tensors`."""

from __future__ import annotations

from collections.abc import Sequence

from tbservice.db.arrays import Array, encode_array
from tbservice.samples import TensorValue


def encode_tensors(values: Sequence[TensorValue]) -> dict[str, Array]:
    """Return the columns of tensors as parameters of `points.upsert_points`."""
    return {
        "dtype": encode_array("smallint", [value.dtype for value in values]),
        # unnest flattens arrays of arrays, so each shape is sent as the text of an array.
        "shape": encode_array(
            "text", ["{" + ",".join(map(str, value.shape)) + "}" for value in values]
        ),
        "data": encode_array(
            "bytea", [value.data if value.reference is None else None for value in values]
        ),
        "histogram": encode_array("bytea", [value.histogram for value in values]),
        "object_sha256": encode_array(
            "bytea", [value.reference and value.reference.sha256 for value in values]
        ),
        "object_size": encode_array(
            "bigint", [value.reference and value.reference.size for value in values]
        ),
    }
