"""Encode the points of a series for a WriteBatch: one encoder per data class."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from tbupload.events.points import Blob, Columns, FileBlob, Tensor
from tbupload.http.wire_limits import WireLimits
from tbwire import packing, wire_pb2
from tbwire.points import (
    BlobSequencePoints,
    DataClass,
    ScalarPoints,
    TensorPoints,
    column_bytes,
    set_columns,
)

PACKED_POINTS_MIN: Final = 1_024
"""Points of a series in a segment from which they are packed: for fewer it saves too little."""

COUNT_NAMES: Final[Mapping[DataClass, str]] = {
    DataClass.SCALAR: "scalars",
    DataClass.TENSOR: "tensors",
    DataClass.BLOB_SEQUENCE: "blobs",
}
"""Counters of each data class: the fields of `WriteResult`."""


def encode_points(
    series: wire_pb2.Series,
    columns: Columns,
    limits: WireLimits,
    blobs: dict[bytes, Blob],
    *,
    is_increasing: bool,
) -> None:
    """Set the points of a series; also without points, it has its data class.

    Args:
        series: The message.
        columns: The points.
        limits: The server's limits.
        blobs: Blobs to upload before the batch, by SHA-256; references are added.
        is_increasing: Whether the steps increase strictly, so that scalars may be packed.
    """
    field, encode = _ENCODERS[columns.data_class]
    encode(getattr(series, field), columns, limits, blobs, is_increasing)


def _add_scalars(
    wire: wire_pb2.ScalarPoints,
    columns: ScalarPoints,
    limits: WireLimits,
    _blobs: dict[bytes, Blob],
    is_increasing: bool,
) -> None:
    wire.SetInParent()  # also without points, the series has its data class
    may_pack = is_increasing and limits.packed_points_max > 0
    if may_pack and len(columns.steps) >= PACKED_POINTS_MIN:
        wire.blocks.extend(_packed_blocks(columns, limits.packed_points_max))
        return
    set_columns(wire, columns)
    if columns.values.dtype == np.float32:
        wire.values32 = column_bytes(columns.values, "<f4")
    else:
        wire.values64 = column_bytes(columns.values, "<f8")


def _packed_blocks(columns: ScalarPoints, points_max: int) -> Iterator[bytes]:
    """Yield the points as packed blocks of about equal length, at most `points_max`."""
    count = -(-len(columns.steps) // min(points_max, packing.BLOCK_POINTS_MAX))
    bounds = [len(columns.steps) * index // count for index in range(count + 1)]
    for start, end in zip(bounds, bounds[1:]):
        block = slice(start, end)
        yield packing.pack(columns.steps[block], columns.wall_times[block], columns.values[block])


def _add_tensors(
    wire: wire_pb2.TensorPoints,
    columns: TensorPoints[Tensor],
    limits: WireLimits,
    blobs: dict[bytes, Blob],
    _is_increasing: bool,
) -> None:
    inline_bytes_max = limits.tensor_bytes_max if limits.tensor_object_bytes_max else sys.maxsize
    wire.SetInParent()
    set_columns(wire, columns)
    for tensor in columns.tensors:
        _add_tensor(wire, tensor, inline_bytes_max, blobs)


def _add_tensor(
    wire: wire_pb2.TensorPoints, tensor: Tensor, inline_bytes_max: int, blobs: dict[bytes, Blob]
) -> None:
    if tensor.in_file is None and len(tensor.data) <= inline_bytes_max:
        message = wire.tensors.add(dtype=tensor.dtype, shape=tensor.shape, data=tensor.data)
    else:
        blob = tensor.in_file or tensor.data
        message = wire.tensors.add(
            dtype=tensor.dtype, shape=tensor.shape, reference=_reference(blob, blobs)
        )
    if tensor.histogram is not None:
        message.histogram.CopyFrom(tensor.histogram)


def _add_blob_sequences(
    wire: wire_pb2.BlobSequencePoints,
    columns: BlobSequencePoints[Blob],
    limits: WireLimits,
    blobs: dict[bytes, Blob],
    _is_increasing: bool,
) -> None:
    wire.SetInParent()
    set_columns(wire, columns)
    for contents, content_type in zip(columns.sequences, columns.logged_content_types):
        sequence = wire.sequences.add(logged_content_type=content_type)
        for content in contents:
            blob = sequence.blobs.add()
            if not isinstance(content, FileBlob) and len(content) <= limits.blob_inline_bytes_max:
                blob.content = content
            else:
                blob.reference.CopyFrom(_reference(content, blobs))


def _reference(blob: Blob, blobs: dict[bytes, Blob]) -> wire_pb2.BlobReference:
    """Add a blob to those to upload before the batch, and return the reference to it."""
    digest = blob.sha256 if isinstance(blob, FileBlob) else hashlib.sha256(blob).digest()
    blobs[digest] = blob
    return wire_pb2.BlobReference(sha256=digest, size=len(blob))


_ENCODERS: Final[Mapping[DataClass, tuple[str, Callable[..., None]]]] = {
    DataClass.SCALAR: ("scalars", _add_scalars),
    DataClass.TENSOR: ("tensors", _add_tensors),
    DataClass.BLOB_SEQUENCE: ("blob_sequences", _add_blob_sequences),
}
"""The field of `Series`, and what fills it in."""
