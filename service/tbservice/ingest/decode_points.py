"""Decode the points of a series in a WriteBatch by data class, and check the limits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

_WRONG_SIZE: Final = "the size of a column is not a multiple of the size of its elements"
_WRONG_LENGTHS: Final = "the columns of a series differ in length"
_NO_POINTS: Final = "a series has no points"
_NOT_FINITE: Final = "a wall time is NaN or infinite"


def decode_points(series: Iterable[wire_pb2.Series]) -> list[SentPoints]:
    """Return the points of each series. Raises Invalid and TooLarge as `decode.decode_batch`.

    Columns of scalars are decoded together: numpy takes as long for the one point of a series in a
    live flush as for the points of all.
    """
    decoded: list[SentPoints | None] = []
    columns: list[_Columns] = []
    for sent in series:
        field = sent.WhichOneof("points")
        if field is None:
            raise Invalid(f"tag {sent.tag[:100]!r} has no points")
        points = getattr(sent, field)
        if field == "scalars" and not points.blocks:
            columns.append(_read_columns(points))
            decoded.append(None)
        else:
            decoded.append(_DECODERS[field](points))
    scalars = _decode_columns(columns)
    return [next(scalars) if points is None else points for points in decoded]


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
        raise Invalid(_WRONG_SIZE)
    return np.frombuffer(data, dtype)


def _decode_steps_and_wall_times(
    steps: bytes, wall_times: bytes, count: int
) -> tuple[Int64s, Float64s]:
    step_column, wall_time_column = _decode_column(steps, "<i8"), _decode_column(wall_times, "<f8")
    if not len(step_column) == len(wall_time_column) == count:
        raise Invalid(_WRONG_LENGTHS)
    if not len(step_column):
        raise Invalid(_NO_POINTS)
    # Every rule about the newest point compares wall times: NaN is neither before nor after.
    if not np.isfinite(wall_time_column).all():
        raise Invalid(_NOT_FINITE)
    return step_column, wall_time_column


_Columns = tuple[bytes, bytes, bytes, bytes]
"""The steps, the wall times, and the float32 or float64 values of a scalar series."""


def _read_columns(sent: wire_pb2.ScalarPoints) -> _Columns:
    steps, wall_times = sent.steps, sent.wall_times
    values32, values64 = sent.values32, sent.values64
    if values32 and values64:
        raise Invalid("a scalar series has both values32 and values64")
    if len(steps) % 8 or len(wall_times) % 8 or len(values32) % 4 or len(values64) % 8:
        raise Invalid(_WRONG_SIZE)
    count = len(steps) // 8
    if not len(wall_times) // 8 == len(values32) // 4 + len(values64) // 8 == count:
        raise Invalid(_WRONG_LENGTHS)
    if not count:
        raise Invalid(_NO_POINTS)
    return steps, wall_times, values32, values64


def _decode_columns(series: Sequence[_Columns]) -> Iterator[ScalarPoints]:
    """Yield the points of each series, as slices of arrays that all share."""
    joined = [b"".join(columns[part] for columns in series) for part in range(4)]
    steps, wall_times = np.frombuffer(joined[0], "<i8"), np.frombuffer(joined[1], "<f8")
    if not np.isfinite(wall_times).all():
        raise Invalid(_NOT_FINITE)
    with np.errstate(invalid="ignore"):  # converting a signalling NaN makes it a quiet one
        narrow = np.frombuffer(joined[2], "<f4").astype(np.float64)
    wide = np.frombuffer(joined[3], "<f8")

    start = narrow_start = wide_start = 0
    for own_steps, _, values32, _ in series:
        count = len(own_steps) // 8
        end = start + count
        if values32:
            values = narrow[narrow_start : narrow_start + count]
            narrow_start += count
        else:
            values = wide[wide_start : wide_start + count]
            wide_start += count
        yield ScalarPoints(steps[start:end], wall_times[start:end], values)
        start = end


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
        raise Invalid(_NOT_FINITE)

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
    "scalars": _decode_packed_scalars,
    "tensors": _decode_tensors,
    "blob_sequences": _decode_blob_sequences,
}
"""Decoder by the field of `Series` that has the points (`tbwire.points.DATA_CLASSES`)."""
