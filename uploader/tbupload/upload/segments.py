"""Segments: the points of one chunk of an event file, encoded under the server's limits."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events.points import (
    Blob,
    BlobSequenceColumns,
    Chunk,
    Columns,
    FileBlob,
    LegacyHistogram,
    ScalarColumns,
    SeriesPoints,
    Tensor,
    TensorColumns,
)
from tbupload.events.skip_reasons import EMPTY_VALUE
from tbupload.http.wire_limits import WireLimits
from tbupload.upload.repeated_steps import StepSpan, step_span
from tbwire import packing, wire_pb2
from tbwire.tag_owners import HPARAMS

PACKED_POINTS_MIN: Final = 1_024
"""Points of a series in a segment from which they are packed: for fewer it saves too little."""

TENSOR_REFERENCE_BYTES_MIN: Final = 1 << 20
"""Size from which a tensor may be a blob; the server reads a smaller one with its row."""

BLOB_REFERENCE_BYTES_MIN: Final = 64
"""Size from which a blob may be a reference, which would not be shorter than a smaller one."""


@dataclass(slots=True)
class EncodedSegment:
    """A segment ready to be sent.

    Attributes:
        stream: The stream it belongs to.
        start: Offset of its first byte in the event file.
        end: Offset after its last byte.
        body: A serialized WriteBatch of this segment alone.
        blobs: Blobs to upload before it, by SHA-256.
        metadata: Summary metadata in it, by tag.
        counts: Points by data class.
        skipped: Points that cannot be sent, by reason.
        empty_values: Values without content, which are not sent and not counted as skipped.
        spans: The steps of each series, by tag.
    """

    stream: wire_pb2.Stream
    start: int
    end: int
    body: bytes
    blobs: dict[bytes, Blob]
    metadata: dict[str, bytes]
    counts: Counter[str]
    skipped: Counter[str]
    empty_values: int = 0
    spans: dict[str, StepSpan] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return its size in memory in bytes."""
        return len(self.body) + sum(
            len(blob) for blob in self.blobs.values() if not isinstance(blob, FileBlob)
        )

    @property
    def streams_blobs(self) -> bool:
        """Return whether some of its blobs are streamed from their file, which may take long."""
        return any(isinstance(blob, FileBlob) for blob in self.blobs.values())


def encode_segment(
    stream: wire_pb2.Stream,
    chunk: Chunk,
    start_time: float | None,
    acknowledged: Mapping[str, bytes],
    limits: WireLimits,
) -> EncodedSegment:
    """Return a chunk as a segment of its stream.

    If it is longer than `batch_bytes_max`, blobs and tensors become references. It may still be
    longer after that: then the caller has to read a smaller chunk.

    Args:
        stream: The stream of the file.
        chunk: The points.
        start_time: Wall time of the file's first event.
        acknowledged: Summary metadata the server has, by tag, which is left out.
        limits: The server's limits.
    """
    encoded = _encode_once(stream, chunk, start_time, acknowledged, limits)
    if len(encoded.body) > limits.batch_bytes_max:
        limits = replace(
            limits,
            blob_inline_bytes_max=BLOB_REFERENCE_BYTES_MIN,
            tensor_bytes_max=min(limits.tensor_bytes_max, TENSOR_REFERENCE_BYTES_MIN),
        )
        encoded = _encode_once(stream, chunk, start_time, acknowledged, limits)
    return encoded


def drop_largest_series(chunk: Chunk) -> Chunk:
    """Return the chunk without its largest series, the points of which are counted as skipped."""
    largest = max(chunk.series, key=_series_bytes)
    skipped = Counter(chunk.skipped)
    skipped["too much in one record for one request"] += len(largest.columns.steps)
    rest = [series for series in chunk.series if series is not largest]
    return Chunk(chunk.start, chunk.end, chunk.start_checksum, chunk.end_checksum, rest, skipped)


def _series_bytes(series: SeriesPoints) -> int:
    columns = series.columns
    size = len(series.metadata) + 16 * len(columns.steps)
    if isinstance(columns, TensorColumns):
        size += sum(len(tensor.data) for tensor in columns.tensors)
    return size


def _encode_once(
    stream: wire_pb2.Stream,
    chunk: Chunk,
    start_time: float | None,
    acknowledged: Mapping[str, bytes],
    limits: WireLimits,
) -> EncodedSegment:
    batch = wire_pb2.WriteBatch()
    segment = batch.segments.add(
        stream=stream,
        start=chunk.start,
        end=chunk.end,
        start_checksum=chunk.start_checksum,
        end_checksum=chunk.end_checksum,
        run_start_time=start_time or 0.0,
    )

    skipped = Counter(chunk.skipped)
    empty_values = skipped.pop(EMPTY_VALUE, 0)
    for reason, count in sorted(skipped.items()):
        segment.skipped.add(reason=reason, count=count)

    blobs: dict[bytes, Blob] = {}
    metadata: dict[str, bytes] = {}
    counts: Counter[str] = Counter()
    spans = {
        points.tag: step_span(points.columns.steps) for points in chunk.series if _has_steps(points)
    }
    for points in chunk.series:
        series = segment.series.add(tag=points.tag)
        if acknowledged.get(points.tag) != points.metadata:
            series.summary_metadata = metadata[points.tag] = points.metadata
        span = spans.get(points.tag)
        kind, count = _add_columns(
            series,
            points.columns,
            limits,
            blobs,
            is_increasing=span is not None and span.is_increasing,
        )
        counts[kind] += count

    body = batch.SerializeToString()
    return EncodedSegment(
        stream, chunk.start, chunk.end, body, blobs, metadata, counts, skipped, empty_values, spans
    )


def _has_steps(points: SeriesPoints) -> bool:
    """Return whether the steps have a meaning: the values of hparams are in its metadata."""
    return len(points.columns.steps) > 0 and points.plugin != HPARAMS


def _add_columns(
    series: wire_pb2.Series,
    columns: Columns,
    limits: WireLimits,
    blobs: dict[bytes, Blob],
    *,
    is_increasing: bool,
) -> tuple[str, int]:
    """Fill in the series' points; return the data class they count as, and their number."""
    if isinstance(columns, ScalarColumns):
        _add_scalars(series.scalars, columns, limits.packed_points_max if is_increasing else 0)
        return "scalars", len(columns.steps)
    if isinstance(columns, TensorColumns):
        _add_tensors(series.tensors, columns, limits, blobs)
        return "tensors", len(columns.steps)
    _add_blob_sequences(series.blob_sequences, columns, limits.blob_inline_bytes_max, blobs)
    return "blobs", sum(map(len, columns.sequences))


def _add_scalars(
    wire: wire_pb2.ScalarPoints, columns: ScalarColumns, packed_points_max: int
) -> None:
    wire.SetInParent()  # also without points, the series has its data class
    if packed_points_max and len(columns.steps) >= PACKED_POINTS_MIN:
        wire.blocks.extend(_packed_blocks(columns, packed_points_max))
        return
    wire.steps = _column_bytes(columns.steps, "<i8")
    wire.wall_times = _column_bytes(columns.wall_times, "<f8")
    if columns.values.dtype == np.float32:
        wire.values32 = _column_bytes(columns.values, "<f4")
    else:
        wire.values64 = _column_bytes(columns.values, "<f8")


def _packed_blocks(columns: ScalarColumns, points_max: int) -> Iterator[bytes]:
    """Yield the points as packed blocks of about equal length, at most `points_max`."""
    count = -(-len(columns.steps) // min(points_max, packing.BLOCK_POINTS_MAX))
    bounds = [len(columns.steps) * index // count for index in range(count + 1)]
    for start, end in pairwise(bounds):
        block = slice(start, end)
        yield packing.pack(columns.steps[block], columns.wall_times[block], columns.values[block])


def _add_tensors(
    wire: wire_pb2.TensorPoints,
    columns: TensorColumns,
    limits: WireLimits,
    blobs: dict[bytes, Blob],
) -> None:
    inline_bytes_max = limits.tensor_bytes_max if limits.tensor_object_bytes_max else sys.maxsize
    wire.SetInParent()
    wire.steps = _column_bytes(columns.steps, "<i8")
    wire.wall_times = _column_bytes(columns.wall_times, "<f8")
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
        message.histogram.CopyFrom(_histogram(tensor.histogram))


def _histogram(histogram: LegacyHistogram) -> wire_pb2.LegacyHistogram:
    return wire_pb2.LegacyHistogram(
        min=histogram.min,
        max=histogram.max,
        num=histogram.num,
        sum=histogram.sum,
        sum_squares=histogram.sum_squares,
        bucket_limit=histogram.bucket_limit,
        bucket=histogram.bucket,
    )


def _add_blob_sequences(
    wire: wire_pb2.BlobSequencePoints,
    columns: BlobSequenceColumns,
    inline_bytes_max: int,
    blobs: dict[bytes, Blob],
) -> None:
    wire.SetInParent()
    wire.steps = _column_bytes(columns.steps, "<i8")
    wire.wall_times = _column_bytes(columns.wall_times, "<f8")
    for contents, content_type in zip(columns.sequences, columns.logged_content_types, strict=True):
        sequence = wire.sequences.add(logged_content_type=content_type)
        for content in contents:
            blob = sequence.blobs.add()
            if not isinstance(content, FileBlob) and len(content) <= inline_bytes_max:
                blob.content = content
            else:
                blob.reference.CopyFrom(_reference(content, blobs))


def _reference(blob: Blob, blobs: dict[bytes, Blob]) -> wire_pb2.BlobReference:
    """Add a blob to those to upload before the batch, and return the reference to it."""
    digest = blob.sha256 if isinstance(blob, FileBlob) else hashlib.sha256(blob).digest()
    blobs[digest] = blob
    return wire_pb2.BlobReference(sha256=digest, size=len(blob))


def _column_bytes(column: npt.NDArray[Any], dtype: str) -> bytes:
    return column.astype(dtype, copy=False).tobytes()
