"""Points as frames of `tbwire/read.proto`: lossless, compact, and recognizably truncated if cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from tbservice.errors import ObjectUnreadable
from tbservice.reading.full_scan import LostPoint, SeriesChunk
from tbservice.types import Blob, BlobSequenceSample, ScalarSample, TensorSample, TensorValue
from tbwire import packing, read_pb2, wire_pb2
from tbwire.frames import encode_frame

_PACKED_POINTS_MIN: Final = 32
"""Below this number of points, packing takes more bytes than plain arrays."""

_TABLE_FRAME_BYTES_MAX: Final = 1024 * 1024
"""Maximum number of bytes of a table in a frame: clients buffer complete frames."""


def encode_frames(
    chunks: Iterable[SeriesChunk], sampling: str, lost: deque[LostPoint] | None = None
) -> Iterator[bytes]:
    """Yield a `begin` frame, a `part` frame per chunk, and an `end` frame with their counts.

    Points that are appended to `lost` while the chunks are read are removed from it, and yielded as
    `lost` frames before the next frame.
    """
    yield _begin_frame(sampling)
    counter = _ChunkCounter(chunks)
    for chunk in counter:
        yield from _drain_lost(lost)
        yield encode_frame(read_pb2.Frame(part=_part_message(chunk)))

    yield from _drain_lost(lost)
    yield counter.end_frame()


def table_frames(
    chunks: Iterable[SeriesChunk],
    encode_table: Callable[[Iterable[SeriesChunk]], Iterator[bytes]],
    sampling: str,
    lost: deque[LostPoint],
) -> Iterator[bytes]:
    """Yield frames as `encode_frames`, with `table` frames in place of `part` frames.

    Args:
        chunks: Chunks of series; those of one series are adjacent.
        encode_table: Encodes chunks in another format; its bytes become `table` frames, of at
            most `_TABLE_FRAME_BYTES_MAX` bytes each.
        sampling: Name of the sampling rule.
        lost: Queue of omitted points, appended to while the chunks are read.
    """
    yield _begin_frame(sampling)
    counter = _ChunkCounter(chunks)
    for table in encode_table(counter):
        yield from _drain_lost(lost)
        for start in range(0, len(table), _TABLE_FRAME_BYTES_MAX):
            end = start + _TABLE_FRAME_BYTES_MAX
            yield encode_frame(read_pb2.Frame(table=table[start:end]))

    yield from _drain_lost(lost)
    yield counter.end_frame()


class _ChunkCounter:
    """Iterable of chunks that counts their series and points during iteration."""

    def __init__(self, chunks: Iterable[SeriesChunk]) -> None:
        self._chunks = chunks
        self._end = read_pb2.End()

    def __iter__(self) -> Iterator[SeriesChunk]:
        for chunk in self._chunks:
            self._end.series += chunk.is_first
            self._end.points += len(chunk.sample.steps)
            yield chunk

    def end_frame(self) -> bytes:
        """Return the `end` frame, with the counts of the chunks iterated so far."""
        return encode_frame(read_pb2.Frame(end=self._end))


def _begin_frame(sampling: str) -> bytes:
    return encode_frame(read_pb2.Frame(begin=read_pb2.Begin(sampling=sampling)))


def _drain_lost(lost: deque[LostPoint] | None) -> Iterator[bytes]:
    """Yield a `lost` frame for each point in the queue, and remove it."""
    while lost:
        point = lost.popleft()
        message = read_pb2.LostPoint(
            run=point.series.run,
            tag=point.series.tag,
            step=point.step,
            is_unreadable=isinstance(point.error, ObjectUnreadable),
            detail=point.error.detail,
        )
        yield encode_frame(read_pb2.Frame(lost=message))


def _part_message(chunk: SeriesChunk) -> read_pb2.Part:
    message = read_pb2.Part(is_last=chunk.is_last)
    if chunk.is_first:
        message.series.run, message.series.tag, message.series.plugin = (
            chunk.series.run,
            chunk.series.tag,
            chunk.series.plugin,
        )
        message.series.data_class = int(chunk.series.data_class)
        message.series.summary_metadata = chunk.series.summary_metadata
        message.series.total = chunk.sample.total

    match chunk.sample:
        case ScalarSample() as sample:
            message.scalars.CopyFrom(_scalars(sample))
        case TensorSample() as sample:
            message.tensors.steps, message.tensors.wall_times = _steps_and_times(sample)
            message.tensors.tensors.extend(_tensor(value) for value in sample.tensors)
        case BlobSequenceSample() as sample:
            message.blob_sequences.steps, message.blob_sequences.wall_times = _steps_and_times(
                sample
            )
            for keys, digests, content_type in zip(
                sample.sequences, sample.digests, sample.logged_content_types, strict=True
            ):
                blobs = [
                    _blob(key, chunk.blobs[digest])
                    for key, digest in zip(keys, digests, strict=True)
                ]
                message.blob_sequences.sequences.add(blobs=blobs, logged_content_type=content_type)
    return message


def _scalars(sample: ScalarSample) -> wire_pb2.ScalarPoints:
    count = len(sample.steps)
    if count < _PACKED_POINTS_MIN:
        raw_steps, raw_times = _steps_and_times(sample)
        return wire_pb2.ScalarPoints(
            steps=raw_steps, wall_times=raw_times, values64=sample.values.astype("<f8").tobytes()
        )

    steps, wall_times = np.ascontiguousarray(sample.steps), np.ascontiguousarray(sample.wall_times)
    values = np.ascontiguousarray(sample.values)
    ranges = [
        slice(start, start + packing.BLOCK_POINTS_MAX)
        for start in range(0, count, packing.BLOCK_POINTS_MAX)
    ]
    blocks = [packing.pack(steps[rows], wall_times[rows], values[rows]) for rows in ranges]
    return wire_pb2.ScalarPoints(blocks=blocks)


def _steps_and_times(
    sample: ScalarSample | TensorSample | BlobSequenceSample,
) -> tuple[bytes, bytes]:
    return sample.steps.astype("<i8").tobytes(), sample.wall_times.astype("<f8").tobytes()


def _tensor(value: TensorValue) -> wire_pb2.Tensor:
    message = wire_pb2.Tensor(dtype=value.dtype, shape=value.shape, data=value.data)
    if value.histogram is not None:
        message.histogram.MergeFromString(value.histogram)
        message.histogram.SetInParent()  # sets presence when all fields are zero
    return message


def _blob(key: str, blob: Blob) -> read_pb2.StoredBlob:
    return read_pb2.StoredBlob(
        key=key, sha256=bytes.fromhex(blob.sha256), size=blob.size, content_type=blob.content_type
    )
