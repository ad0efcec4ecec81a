"""Points as frames of `tbwire/read.proto`, for light clients: lossless, compact, and never taken for whole when cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tbservice.domain.whole import Part
from tbservice.types import Blob, BlobSequenceSample, ScalarSample, TensorSample, TensorValue
from tbwire import packing, read_pb2, wire_pb2
from tbwire.frames import encode

_PACKED_POINTS_MIN: Final = 32
"""Fewer points take fewer bytes as they are."""


def frames(parts: Iterable[Part], sampling: str) -> Iterator[bytes]:
    """A beginning, each part, and an end that counts them."""
    yield encode(read_pb2.Frame(begin=read_pb2.Begin(sampling=sampling)))
    series = points = 0
    for part in parts:
        series += part.is_first
        points += len(part.sample.steps)
        yield encode(read_pb2.Frame(part=_part(part)))
    yield encode(read_pb2.Frame(end=read_pb2.End(series=series, points=points)))


def _part(part: Part) -> read_pb2.Part:
    message = read_pb2.Part(is_last=part.is_last)
    if part.is_first:
        message.series.run, message.series.tag, message.series.plugin = (
            part.series.run,
            part.series.tag,
            part.series.plugin,
        )
        message.series.data_class = int(part.series.data_class)
        message.series.summary_metadata = part.series.summary_metadata
        message.series.total = part.sample.total
    match part.sample:
        case ScalarSample() as sample:
            message.scalars.CopyFrom(_scalars(sample))
        case TensorSample() as sample:
            message.tensors.steps, message.tensors.wall_times = _steps_and_times(sample)
            message.tensors.tensors.extend(_tensor(value) for value in sample.tensors)
        case BlobSequenceSample() as sample:
            message.blob_sequences.steps, message.blob_sequences.wall_times = _steps_and_times(sample)
            for keys in sample.sequences:
                blobs = [_blob(key, part.blobs[key]) for key in keys]
                message.blob_sequences.sequences.append(read_pb2.StoredSequence(blobs=blobs))
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
    ranges = [slice(at, at + packing.BLOCK_POINTS_MAX) for at in range(0, count, packing.BLOCK_POINTS_MAX)]
    blocks = [packing.pack(steps[each], wall_times[each], values[each]) for each in ranges]
    return wire_pb2.ScalarPoints(blocks=blocks)


def _steps_and_times(sample: ScalarSample | TensorSample | BlobSequenceSample) -> tuple[bytes, bytes]:
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
