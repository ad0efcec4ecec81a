"""Segments: the points of one chunk of an event file, encoded under the server's limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tbupload.events.points import (
    Blob,
    Chunk,
    FileBlob,
    SeriesPoints,
)
from tbupload.events.skip_reasons import EMPTY_VALUE
from tbupload.http.wire_limits import WireLimits
from tbupload.upload.point_encoding import COUNT_NAMES, encode_points
from tbupload.upload.repeated_steps import StepSpan, step_span
from tbwire import wire_pb2
from tbwire.points import TensorPoints
from tbwire.tag_owners import HPARAMS

TENSOR_REFERENCE_BYTES_MIN: Final = 1 << 20
"""Size from which a tensor may be a blob; the server reads a smaller one with its row."""

BLOB_REFERENCE_BYTES_MIN: Final = 64
"""Size from which a blob may be a reference, which would not be shorter than a smaller one."""

SEGMENT_SERIES_MAX: Final = 20_000
"""Series in a segment; a single record may have more.

The server updates a row of each in one transaction. 77,000 of a 4 MiB chunk took it 5 s of
processor time: on a machine with others, longer than a request may take, again and again.
"""


@dataclass
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
        acknowledged: Summary metadata the server has, by tag, which is left out; not of plugin
            `hparams`, where the wall time of a repetition counts.
        limits: The server's limits.
    """
    encoded = _encode_once(stream, chunk, start_time, acknowledged, limits)
    # Only then: an object in S3 costs a request, bytes in the batch cost none.
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
    if isinstance(columns, TensorPoints):
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
        # 0 in protobuf is absent: the server takes it for unknown.
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
        # Sent until it is acknowledged, and not until it was sent: a batch may be lost with it.
        if acknowledged.get(points.tag) != points.metadata or points.plugin == HPARAMS:
            series.summary_metadata = metadata[points.tag] = points.metadata
        span = spans.get(points.tag)
        columns = points.columns
        is_increasing = span is not None and span.is_increasing
        encode_points(series, columns, limits, blobs, is_increasing=is_increasing)
        counts[COUNT_NAMES[columns.data_class]] += columns.value_count

    body = batch.SerializeToString()
    return EncodedSegment(
        stream, chunk.start, chunk.end, body, blobs, metadata, counts, skipped, empty_values, spans
    )


def _has_steps(points: SeriesPoints) -> bool:
    """Return whether the steps have a meaning: the values of hparams are in its metadata."""
    return len(points.columns.steps) > 0 and points.plugin != HPARAMS
