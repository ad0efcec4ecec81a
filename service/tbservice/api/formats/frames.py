"""Points as frames of `tbwire/read.proto`, for light clients: lossless, compact, and never taken for whole when cut."""

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
"""Fewer points take fewer bytes as they are."""

_TABLE_BYTES: Final = 1024 * 1024
"""Bytes of a table in one frame: a reader holds a frame whole."""


def encode_frames(
    chunks: Iterable[SeriesChunk], sampling: str, lost: deque[LostPoint] | None = None
) -> Iterator[bytes]:
    """A beginning, each part, and an end that counts them; the points that come into `lost` meanwhile are taken out."""
    yield _begin(sampling)
    count = _Count(chunks)
    for chunk in count:
        yield from _take(lost)
        yield encode_frame(read_pb2.Frame(part=_part_message(chunk)))
    yield from _take(lost)
    yield count.end()


def table_frames(
    parts: Iterable[SeriesChunk],
    encode_table: Callable[[Iterable[SeriesChunk]], Iterator[bytes]],
    sampling: str,
    lost: deque[LostPoint],
) -> Iterator[bytes]:
    """The same with the bytes that `encode_table` makes of the parts, in frames that are short."""
    yield _begin(sampling)
    count = _Count(parts)
    for piece in encode_table(count):
        yield from _take(lost)
        for start in range(0, len(piece), _TABLE_BYTES):
            yield encode_frame(read_pb2.Frame(table=piece[start : start + _TABLE_BYTES]))
    yield from _take(lost)
    yield count.end()


class _Count:
    """Parts, counted as they are taken."""

    def __init__(self, parts: Iterable[SeriesChunk]) -> None:
        self._parts = parts
        self._end = read_pb2.End()

    def __iter__(self) -> Iterator[SeriesChunk]:
        for part in self._parts:
            self._end.series += part.is_first
            self._end.points += len(part.sample.steps)
            yield part

    def end(self) -> bytes:
        """The frame that ends an answer."""
        return encode_frame(read_pb2.Frame(end=self._end))


def _begin(sampling: str) -> bytes:
    return encode_frame(read_pb2.Frame(begin=read_pb2.Begin(sampling=sampling)))


def _take(lost: deque[LostPoint] | None) -> Iterator[bytes]:
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
        slice(at, at + packing.BLOCK_POINTS_MAX) for at in range(0, count, packing.BLOCK_POINTS_MAX)
    ]
    blocks = [packing.pack(steps[each], wall_times[each], values[each]) for each in ranges]
    return wire_pb2.ScalarPoints(blocks=blocks)


def _steps_and_times(
    sample: ScalarSample | TensorSample | BlobSequenceSample,
) -> tuple[bytes, bytes]:
    return sample.steps.astype("<i8").tobytes(), sample.wall_times.astype("<f8").tobytes()


def _tensor(value: TensorValue) -> wire_pb2.Tensor:
    message = wire_pb2.Tensor(dtype=value.dtype, shape=value.shape, data=value.data)
    if value.histogram is not None:
        message.histogram.MergeFromString(value.histogram)
        message.histogram.SetInParent()  # one whose fields are all zero is one, too
    return message


def _blob(key: str, blob: Blob) -> read_pb2.StoredBlob:
    return read_pb2.StoredBlob(
        key=key, sha256=bytes.fromhex(blob.sha256), size=blob.size, content_type=blob.content_type
    )
