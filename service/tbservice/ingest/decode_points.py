"""Decode the points of a series in a WriteBatch by data class, and check the limits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.batch import InlineBlob, ReferencedBlob, SentBlob, SentPoints
from tbservice.samples import ObjectReference, TensorValue
from tbservice.series.tables.scalar_format import PackedScalarPoints, concatenate
from tbservice.types.identifiers import Float64s, Int64s
from tbwire import packing, tensors, wire_pb2
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints

SHA256_BYTES: Final = 32


def decode_points(sent: wire_pb2.Series) -> SentPoints:
    """Return the points of a series. Raises Invalid and TooLarge as `decode.decode_batch`."""
    field = sent.WhichOneof("points")
    if field is None:
        raise Invalid(f"tag {sent.tag[:100]!r} has no points")
    return _DECODERS[field](getattr(sent, field))


def check_name(what: str, name: str, chars_max: int = limits.NAME_CHARS_MAX) -> str:
    """Return a name that can be stored. Raises TooLarge or Invalid, with `what` it names."""
    if len(name) > chars_max:
        raise TooLarge(f"{what} has at most {chars_max} characters; this has {len(name)}")
    # Whatever the encoding is: https://www.postgresql.org/docs/18/datatype-character.html
    if "\0" in name:
        raise Invalid(f"{what} contains a NUL character, which PostgreSQL cannot store")
    return name


def _decode_column(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    if len(data) % np.dtype(dtype).itemsize:
        raise Invalid("the size of a column is not a multiple of the size of its elements")
    return np.frombuffer(data, dtype)


def _decode_steps_and_wall_times(
    steps: bytes, wall_times: bytes, count: int | None
) -> tuple[Int64s, Float64s]:
    step_column, wall_time_column = _decode_column(steps, "<i8"), _decode_column(wall_times, "<f8")
    if len(step_column) != len(wall_time_column) or (
        count is not None and count != len(step_column)
    ):
        raise Invalid("the columns of a series differ in length")
    if not len(step_column):
        raise Invalid("a series has no points")
    # Every rule about the newest point compares wall times: NaN is neither before nor after.
    if not np.isfinite(wall_time_column).all():
        raise Invalid("a wall time is NaN or infinite")
    return step_column, wall_time_column


def _decode_scalars(sent: wire_pb2.ScalarPoints) -> ScalarPoints:
    if sent.blocks:
        return _decode_packed_scalars(sent)
    if sent.values32 and sent.values64:
        raise Invalid("a scalar series has both values32 and values64")
    with np.errstate(invalid="ignore"):  # converting a signalling NaN makes it a quiet one
        values = (
            _decode_column(sent.values64, "<f8")
            if sent.values64
            else _decode_column(sent.values32, "<f4").astype(np.float64)
        )
    steps, wall_times = _decode_steps_and_wall_times(sent.steps, sent.wall_times, len(values))
    return ScalarPoints(steps, wall_times, values)


def _decode_packed_scalars(sent: wire_pb2.ScalarPoints) -> ScalarPoints:
    if sent.steps or sent.wall_times or sent.values32 or sent.values64:
        raise Invalid("a scalar series has both packed blocks and columns")
    try:
        counts = [packing.count(block) for block in sent.blocks]
        if max(counts) > limits.PACKED_POINTS_MAX:
            raise TooLarge(
                f"a packed block has at most {limits.PACKED_POINTS_MAX} points; "
                f"this has {max(counts)}"
            )
        points = concatenate([ScalarPoints(*packing.unpack(block)) for block in sent.blocks])
    except ValueError as error:
        raise Invalid(str(error)) from error
    # Blocks are stored as they came, and readers rely on ascending steps.
    if not bool(np.all(points.steps[1:] > points.steps[:-1])):
        raise Invalid("the steps of packed blocks are not strictly ascending; send columns")
    if not np.isfinite(points.wall_times).all():
        raise Invalid("a wall time is NaN or infinite")

    # Stored as they came, without packing them again, unless that makes rows of too few points.
    is_stored_packed = min(counts) >= limits.PACKED_POINTS_MIN
    if not is_stored_packed:
        return points
    return PackedScalarPoints(points.steps, points.wall_times, points.values, tuple(sent.blocks))


def _decode_tensors(sent: wire_pb2.TensorPoints) -> TensorPoints[TensorValue]:
    steps, wall_times = _decode_steps_and_wall_times(sent.steps, sent.wall_times, len(sent.tensors))
    return TensorPoints(steps, wall_times, [_decode_tensor(tensor) for tensor in sent.tensors])


def _decode_tensor(sent: wire_pb2.Tensor) -> TensorValue:
    if len(sent.data) > limits.TENSOR_BYTES_MAX:
        limit = f"a tensor in a batch has at most {limits.TENSOR_BYTES_MAX} bytes"
        raise TooLarge(
            f"{limit}; this has {len(sent.data)}: PUT it first and refer to it by its SHA-256"
        )
    if len(sent.shape) > limits.TENSOR_RANK_MAX:
        raise TooLarge(
            f"a tensor has at most {limits.TENSOR_RANK_MAX} dimensions; this has {len(sent.shape)}"
        )
    reference = _decode_tensor_reference(sent) if sent.HasField("reference") else None
    try:
        if reference is None:
            # Readers reshape the bytes by dtype and shape: they must fit.
            tensors.check_tensor(sent.dtype, sent.shape, sent.data)
        else:
            tensors.check_size(sent.dtype, sent.shape, reference.size)
    except ValueError as error:
        raise Invalid(str(error)) from error
    histogram = sent.histogram.SerializeToString() if sent.HasField("histogram") else None
    return TensorValue(sent.dtype, tuple(sent.shape), sent.data, histogram, reference)


def _decode_tensor_reference(sent: wire_pb2.Tensor) -> ObjectReference:
    reference = sent.reference
    if sent.data:
        raise Invalid("a tensor has both data and a reference to an object")
    if len(reference.sha256) != SHA256_BYTES:
        raise Invalid("the SHA-256 of a tensor's reference must have 32 bytes")
    if reference.size > limits.TENSOR_OBJECT_BYTES_MAX:
        limit = (
            f"a tensor has at most {limits.TENSOR_OBJECT_BYTES_MAX} bytes (tensor_object_bytes_max)"
        )
        raise TooLarge(f"{limit}; this has {reference.size}")
    return ObjectReference(reference.sha256, reference.size)


def _decode_blob_sequences(sent: wire_pb2.BlobSequencePoints) -> BlobSequencePoints[SentBlob]:
    steps, wall_times = _decode_steps_and_wall_times(
        sent.steps, sent.wall_times, len(sent.sequences)
    )
    return BlobSequencePoints(
        steps,
        wall_times,
        [_decode_sequence(sequence) for sequence in sent.sequences],
        [_get_logged_content_type(sequence) for sequence in sent.sequences],
    )


def _decode_sequence(sent: wire_pb2.BlobSequence) -> list[SentBlob]:
    if len(sent.blobs) > limits.BLOB_SEQUENCE_LENGTH_MAX:
        raise TooLarge(
            f"a step has at most {limits.BLOB_SEQUENCE_LENGTH_MAX} blobs; "
            f"this has {len(sent.blobs)}"
        )
    return [_decode_blob(blob) for blob in sent.blobs]


def _get_logged_content_type(sent: wire_pb2.BlobSequence) -> str:
    if sent.logged_content_type and len(sent.blobs) != 1:
        raise Invalid(f"a content type is logged with one blob; this step has {len(sent.blobs)}")
    return check_name(
        "a logged content type", sent.logged_content_type, limits.LOGGED_CONTENT_TYPE_CHARS_MAX
    )


def _decode_blob(sent: wire_pb2.Blob) -> SentBlob:
    kind = sent.WhichOneof("source")
    if kind == "content":
        if len(sent.content) > limits.BLOB_INLINE_BYTES_MAX:
            raise TooLarge(
                f"a blob inside a batch has at most {limits.BLOB_INLINE_BYTES_MAX} bytes; "
                "PUT it first"
            )
        return InlineBlob(_sha256(sent.content), sent.content)
    if kind is None or len(sent.reference.sha256) != SHA256_BYTES:
        raise Invalid("a blob must have content or a SHA-256 of 32 bytes")
    return ReferencedBlob(sent.reference.sha256, sent.reference.size)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


_DECODERS: Final[Mapping[str, Callable[[Any], SentPoints]]] = {
    "scalars": _decode_scalars,
    "tensors": _decode_tensors,
    "blob_sequences": _decode_blob_sequences,
}
"""Decoder by the field of `Series` that has the points (`tbwire.points.DATA_CLASSES`)."""
