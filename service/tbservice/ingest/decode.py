"""Decode a WriteBatch, and check everything that can be checked without the database.

The messages are defined in `tbwire/wire.proto`; summary metadata is TensorBoard's
(`tensorboard/compat/proto/summary.proto`).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, TooLarge
from tbservice.ingest import guard
from tbservice.ingest.batch import (
    InlineBlob,
    ReferencedBlob,
    Segment,
    SentBlob,
    SentMetadata,
    SentPoints,
    SentSeries,
    iter_referenced_tensors,
)
from tbservice.store.scalar_format import PackedScalarPoints, concatenate, unpack
from tbservice.types import Float64s, Int64s, ObjectReference, Stream, TensorValue
from tbwire import packing, tensors, wire_pb2
from tbwire.points import BlobSequencePoints, DataClass, ScalarPoints, TensorPoints
from tbwire.tensorboard_pb2 import SummaryMetadata

_SHA256_BYTES = 32
_INT64_MAX = 2**63 - 1
_SKIPPED_REASONS_MAX = 1_000


def decode_batch(body: bytes) -> list[Segment]:
    """Return the segments of a serialized WriteBatch, in its order.

    Raises:
        MalformedRequest: The body is not a WriteBatch.
        TooLarge: A limit is exceeded; the message names it.
        Invalid: Columns differ in length, a wall time is not finite, a tensor's shape does not
            match its bytes, or a name cannot be stored.
    """
    guard.check_counts(body)
    try:
        batch = wire_pb2.WriteBatch.FromString(body)
    except DecodeError as error:
        raise MalformedRequest(
            "the body is not a WriteBatch: it cannot be decoded as protobuf"
        ) from error
    if len(batch.segments) > limits.BATCH_SEGMENTS_MAX:
        raise TooLarge(
            f"a batch has at most {limits.BATCH_SEGMENTS_MAX} segments; "
            f"this has {len(batch.segments)}"
        )
    segments = [_decode_segment(index, sent) for index, sent in enumerate(batch.segments)]
    if sum(1 for _ in iter_referenced_tensors(segments)) > limits.BATCH_TENSOR_OBJECTS_MAX:
        raise TooLarge(
            f"a batch has at most {limits.BATCH_TENSOR_OBJECTS_MAX} tensors stored as objects"
        )
    return segments


def _decode_segment(index: int, sent: wire_pb2.Segment) -> Segment:
    if not sent.start <= sent.end <= _INT64_MAX:
        raise Invalid(f"segment {index}: start is greater than end, or end than 2^63 - 1")
    tags = [series.tag for series in sent.series]
    if len(set(tags)) != len(tags):
        raise Invalid(f"segment {index}: a tag occurs twice; merge its columns")
    if len(sent.skipped) > _SKIPPED_REASONS_MAX:
        raise TooLarge(f"segment {index}: at most {_SKIPPED_REASONS_MAX} reasons for skipping")
    return Segment(
        index=index,
        stream=_decode_stream(sent.stream),
        start=sent.start,
        end=sent.end,
        start_checksum=sent.start_checksum,
        end_checksum=sent.end_checksum,
        series=[_decode_series(series) for series in sent.series],
        skipped={
            _check_name("a reason", skipped.reason): skipped.count for skipped in sent.skipped
        },
        run_start_time=sent.run_start_time if math.isfinite(sent.run_start_time) else 0.0,
    )


def _decode_stream(sent: wire_pb2.Stream) -> Stream:
    if len(sent.first_record_digest) != _SHA256_BYTES or len(sent.filters_digest) != _SHA256_BYTES:
        raise Invalid("each digest of a stream must be a SHA-256 of 32 bytes")
    if sent.generation > 2**31 - 1:
        raise Invalid("a stream's generation is at most 2^31 - 1")
    return Stream(
        run=_check_name("a run's name", sent.run),
        file_name=_check_name("a file's name", sent.file_name, limits.FILE_NAME_CHARS_MAX),
        first_record_digest=sent.first_record_digest,
        generation=sent.generation,
        filters_digest=sent.filters_digest,
    )


def _check_name(what: str, name: str, chars_max: int = limits.NAME_CHARS_MAX) -> str:
    if len(name) > chars_max:
        raise TooLarge(f"{what} has at most {chars_max} characters; this has {len(name)}")
    if "\0" in name:
        raise Invalid(f"{what} contains a NUL character, which PostgreSQL cannot store")
    return name


def _decode_series(sent: wire_pb2.Series) -> SentSeries:
    tag = _check_name("a tag", sent.tag)
    series = SentSeries(tag, _decode_metadata(sent.summary_metadata), _decode_points(sent))
    if series.metadata is not None and series.metadata.data_class is not series.data_class:
        raise Invalid(
            f"tag {tag[:100]!r}: the data class of its metadata is not that of its points"
        )
    return series


def _decode_points(sent: wire_pb2.Series) -> SentPoints:
    match sent.WhichOneof("points"):
        case "scalars":
            return _decode_scalars(sent.scalars)
        case "tensors":
            return _decode_tensors(sent.tensors)
        case "blob_sequences":
            return _decode_blob_sequences(sent.blob_sequences)
        case _:
            raise Invalid(f"tag {sent.tag[:100]!r} has no points")


def _decode_metadata(serialized: bytes) -> SentMetadata | None:
    if not serialized:
        return None
    if len(serialized) > limits.METADATA_BYTES_MAX:
        raise TooLarge(
            f"summary metadata has at most {limits.METADATA_BYTES_MAX} bytes; "
            f"this has {len(serialized)}"
        )
    try:
        metadata = SummaryMetadata.FromString(serialized)
        data_class = DataClass(metadata.data_class)
    except (DecodeError, ValueError) as error:
        raise Invalid("summary metadata cannot be decoded, or has no data class") from error
    return SentMetadata(
        _check_name("a plugin's name", metadata.plugin_data.plugin_name), data_class, serialized
    )


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
        points = concatenate([unpack(block) for block in sent.blocks])
    except ValueError as error:
        raise Invalid(str(error)) from error
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
    if len(reference.sha256) != _SHA256_BYTES:
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
    return _check_name(
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
    if kind is None or len(sent.reference.sha256) != _SHA256_BYTES:
        raise Invalid("a blob must have content or a SHA-256 of 32 bytes")
    return ReferencedBlob(sent.reference.sha256, sent.reference.size)


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
