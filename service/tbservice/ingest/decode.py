"""Decode a WriteBatch, and check everything that can be checked without the database.

The messages are defined in `tbwire/wire.proto`; summary metadata is TensorBoard's
(`tensorboard/compat/proto/summary.proto`).
"""

from __future__ import annotations

import math
from typing import Final

from google.protobuf.message import DecodeError

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, TooLarge
from tbservice.ingest.batch import (
    Segment,
    SentMetadata,
    SentPoints,
    SentSeries,
    iter_referenced_tensors,
)
from tbservice.ingest.decode_points import SHA256_BYTES, check_name, decode_points
from tbservice.ingest.field_counts import (
    FIELD_BYTES_MIN,
    CountedFields,
    MalformedMessage,
    count_fields,
)
from tbservice.types.series import Stream
from tbservice.waits import give_way
from tbwire import wire_pb2
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

BATCH_SEGMENTS_MAX: Final = 10_000
"""Segments in one WriteBatch."""

BATCH_TENSOR_OBJECTS_MAX: Final = 2_000
"""Tensors in one WriteBatch with their bytes in S3."""

FILE_NAME_CHARS_MAX: Final = 1_000
"""Characters of an event file's name."""

_INT64_MAX = 2**63 - 1
_SKIPPED_REASONS_MAX = 1_000

BATCH_FIELDS_MAX: Final = 500_000
"""Fields in one WriteBatch: those of segments and series, and each tensor, sequence and blob."""
BATCH_ELEMENTS_MAX: Final = 2_000_000
"""Packed blocks and tensor dimensions in one WriteBatch, and the fields beside them."""
_SERIES: Final = CountedFields({4: CountedFields({}), 5: CountedFields({3: CountedFields({})})})
_FIELDS: Final = CountedFields({1: CountedFields({6: _SERIES})})
"""Repeated messages of wire.proto: segments, series, skip reasons, tensors, sequences, blobs."""
_POINTS: Final = CountedFields(
    {3: CountedFields({}), 4: CountedFields({3: CountedFields({}, packed_field=2)}, weight=0)},
    weight=0,
)
_ELEMENTS: Final = CountedFields({1: CountedFields({6: _POINTS}, weight=0)}, weight=0)
"""Repeated values that need more memory than bytes: packed blocks, tensor dimensions."""


def decode_batch(body: bytes) -> list[Segment]:
    """Return the segments of a serialized WriteBatch, in its order.

    Raises:
        MalformedRequest: The body is not a WriteBatch.
        TooLarge: A limit is exceeded; the message names it.
        Invalid: Columns differ in length, a wall time is not finite, a tensor's shape does not
            match its bytes, or a name cannot be stored.
    """
    # Before protobuf builds its messages: a small body can take gigabytes of them.
    check_counts(body)
    try:
        batch = wire_pb2.WriteBatch.FromString(body)
    except DecodeError as error:
        raise MalformedRequest(
            "the body is not a WriteBatch: it cannot be decoded as protobuf"
        ) from error
    if len(batch.segments) > BATCH_SEGMENTS_MAX:
        raise TooLarge(
            f"a batch has at most {BATCH_SEGMENTS_MAX} segments; this has {len(batch.segments)}"
        )
    segments = [_decode_segment(index, sent) for index, sent in enumerate(batch.segments)]
    if sum(1 for _ in iter_referenced_tensors(segments)) > BATCH_TENSOR_OBJECTS_MAX:
        raise TooLarge(f"a batch has at most {BATCH_TENSOR_OBJECTS_MAX} tensors stored as objects")
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
        series=[
            _decode_series(series, points, index, sent.start)
            for series, points in zip(sent.series, decode_points(sent.series), strict=True)
        ],
        skipped={check_name("a reason", skipped.reason): skipped.count for skipped in sent.skipped},
        # Not refused: it is of the file's first record, and its other points are sound.
        run_start_time=sent.run_start_time if math.isfinite(sent.run_start_time) else 0.0,
    )


def _decode_stream(sent: wire_pb2.Stream) -> Stream:
    if len(sent.first_record_digest) != SHA256_BYTES or len(sent.filters_digest) != SHA256_BYTES:
        raise Invalid("each digest of a stream must be a SHA-256 of 32 bytes")
    if sent.generation > 2**31 - 1:
        raise Invalid("a stream's generation is at most 2^31 - 1")
    return Stream(
        run=check_name("a run's name", sent.run),
        file_name=check_name("a file's name", sent.file_name, FILE_NAME_CHARS_MAX),
        first_record_digest=sent.first_record_digest,
        generation=sent.generation,
        filters_digest=sent.filters_digest,
    )


def _decode_series(sent: wire_pb2.Series, points: SentPoints, index: int, start: int) -> SentSeries:
    tag = check_name("a tag", sent.tag)
    serialized = sent.summary_metadata
    metadata = _decode_metadata(serialized) if serialized else None
    if metadata is not None and metadata.data_class is not points.data_class:
        raise Invalid(
            f"tag {tag[:100]!r}: the data class of its metadata is not that of its points"
        )
    return SentSeries(tag, metadata, points, index, start)


def _decode_metadata(serialized: bytes) -> SentMetadata:
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
        check_name("a plugin's name", metadata.plugin_data.plugin_name), data_class, serialized
    )


def check_counts(body: bytes) -> None:
    """Raise TooLarge if a WriteBatch exceeds `BATCH_FIELDS_MAX` or `BATCH_ELEMENTS_MAX`.

    Raises MalformedRequest for some bodies that are not a WriteBatch; others pass, and fail in
    decoding. Bodies too short to exceed a limit are not read.
    """
    # A field takes two bytes at least, key and length:
    # https://protobuf.dev/programming-guides/encoding/
    if len(body) > FIELD_BYTES_MIN * BATCH_FIELDS_MAX:
        _check(body, _FIELDS, BATCH_FIELDS_MAX, "fields")
    if len(body) > BATCH_ELEMENTS_MAX:
        # An element takes a byte at least: a dimension in a packed repeated field has no key.
        what = "packed blocks and dimensions of tensors"
        _check(body, _ELEMENTS, BATCH_ELEMENTS_MAX, what)


def _check(body: bytes, counted: CountedFields, limit: int, what: str) -> None:
    try:
        count = count_fields(body, counted, limit, give_way)
    except MalformedMessage as error:
        raise MalformedRequest(f"the body is not a WriteBatch: {error}") from error
    if count > limit:
        raise TooLarge(f"a batch has at most {limit} {what}; send it in parts")
