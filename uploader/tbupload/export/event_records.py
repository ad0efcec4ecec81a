"""Encode points as event file records, from which TensorBoard and tbupload read the same series.

Every value is written as a tensor, as by TensorFlow 2 (`tensorboard/compat/proto/summary.proto`:
`Summary.Value.tensor`), with the series' summary metadata on its first value. Exceptions are the
legacy forms that contain more, or that readers may rely on: a scalar `simple_value` (as written by
PyTorch), a legacy histogram (more fields than its tensor), and audio with a content type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from tbupload.events.decode.legacy import histogram_tensor, legacy_metadata
from tbupload.events.linear_checksum import checksums, mask
from tbupload.events.points import Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tf_record import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, footer, header
from tbwire import packing, tensors, wire_pb2
from tbwire import tensorboard_pb2 as pb
from tbwire.messages import parse
from tbwire.points import ScalarPoints
from tbwire.wire_format import encode_varint

_FLOAT32: Final = np.dtype("<f4")

# `DataType` of `tensorboard/compat/proto/types.proto`.
_DTYPE_FLOAT: Final = 1
_DTYPE_DOUBLE: Final = 2
_WALL_TIME: Final = struct.Struct("<d")
# Keys of fields: number << 3 | wire type. The prefix is the message.
_EVENT_WALL_TIME: Final = b"\x09"
_EVENT_STEP: Final = b"\x10"
_EVENT_SUMMARY: Final = b"\x2a"
_SUMMARY_VALUE: Final = b"\x0a"
_VALUE_TAG: Final = b"\x0a"
_VALUE_SIMPLE: Final = b"\x15"
_VALUE_AUDIO: Final = b"\x32"
_VALUE_TENSOR: Final = b"\x42"
_VALUE_METADATA: Final = b"\x4a"
_TENSOR_DTYPE: Final = b"\x08"
_TENSOR_SHAPE: Final = b"\x12"
_TENSOR_CONTENT: Final = b"\x22"
_TENSOR_STRING: Final = b"\x42"
_AUDIO_CONTENT: Final = b"\x22"
_AUDIO_CONTENT_TYPE: Final = b"\x2a"
_Bytes = npt.NDArray[np.uint8]


def version_record(wall_time: float) -> bytes:
    """Return the first record of an event file (see `tensorflow/core/util/events_writer.cc`)."""
    return record(pb.Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString())


def record(payload: bytes) -> bytes:
    """Return a complete TFRecord: length, masked CRC32C of it, payload, masked CRC32C of it.

    The framing is documented in `tensorflow/core/lib/io/record_writer.h`.
    """
    return header(len(payload)) + payload + footer(google_crc32c.value(payload))


def scalar_records(
    tag: str, columns: ScalarPoints, metadata: bytes | None, *, is_simple: bool = False
) -> Iterator[bytes]:
    """Yield chunks of many records each, in step order; `metadata` is written to the first record.

    The values are float32 if that preserves all of them bit by bit, otherwise float64. With
    `is_simple`, float32 values are written as `simple_value`.
    """
    values = packing.as_float32_if_exact(columns.values)
    is_simple = is_simple and values.dtype == _FLOAT32
    if metadata is not None and len(columns.steps):
        described = None if is_simple else metadata
        yield _scalar_rows(
            tag,
            described,
            columns.steps[:1],
            columns.wall_times[:1],
            values[:1],
            is_simple=is_simple,
        )

    begin = int(metadata is not None)
    steps = columns.steps[begin:]
    widths = _varint_widths(steps)
    bounds = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist(), len(steps)]
    # Records of equal length, since ascending steps change their varint length only a few times.
    for start, end in zip(bounds, bounds[1:]):
        if end > start:
            rows = slice(begin + start, begin + end)
            points = columns.steps[rows], columns.wall_times[rows], values[rows]
            yield _scalar_rows(tag, None, *points, is_simple=is_simple)


def is_simple_value(tag: str, metadata: bytes) -> bool:
    """Return whether a reader derives this metadata from a `simple_value` without metadata."""
    implied = legacy_metadata(pb.Summary.Value(tag=tag), "simple_value")
    assert implied is not None  # noqa: S101 - it is a legacy kind
    implied.data_class = pb.DATA_CLASS_SCALAR
    return implied.SerializeToString() == metadata


def tensor_record(
    tag: str, step: int, wall_time: float, tensor: Tensor, metadata: bytes | None
) -> bytes:
    """Return the record of a tensor, as its legacy histogram if it has one."""
    value = pb.Summary.Value(tag=tag)
    if tensor.histogram is not None:
        value.CopyFrom(_legacy_value(tag, tensor.histogram, metadata))
    else:
        if metadata is not None:
            value.metadata.MergeFromString(metadata)
        value.tensor.CopyFrom(_tensor_proto(tensor))
    event = pb.Event(wall_time=wall_time, step=step, summary=pb.Summary(value=[value]))
    return record(event.SerializeToString())


def is_as_written(tag: str, tensor: Tensor, metadata: bytes | None) -> bool:
    """Return whether a reader derives this tensor and metadata (None: any) from its histogram."""
    if tensor.histogram is None:
        return False
    value = _legacy_value(tag, tensor.histogram, metadata)
    try:
        derived = histogram_tensor(value.histo)
    except ValueRefused:  # its bucket limits and counts have different lengths
        return False
    if (derived.dtype, derived.shape, derived.data) != (tensor.dtype, tensor.shape, tensor.data):
        return False
    implied = legacy_metadata(value, "histo")
    assert implied is not None  # noqa: S101 - it is a legacy kind
    implied.data_class = pb.DATA_CLASS_TENSOR
    return metadata is None or implied.SerializeToString() == metadata


def blob_record_head(
    tag: str, step: int, wall_time: float, sizes: Sequence[int], metadata: bytes | None
) -> tuple[bytes, list[bytes], int]:
    """Return what precedes the blobs of a point, what precedes each blob, and the payload's size.

    The blobs are the elements of a string tensor. They are not passed here, so that the caller can
    stream blobs of any size. `sizes` and the returned size are in bytes.
    """
    prefixes = [_TENSOR_STRING + encode_varint(size) for size in sizes]
    shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=len(sizes))]).SerializeToString()
    described = _TENSOR_DTYPE + encode_varint(tensors.STRING) + _encode_field(_TENSOR_SHAPE, shape)
    strings_bytes = sum(map(len, prefixes)) + sum(sizes)
    head = _head(tag, metadata, encode_varint(step), described, strings_bytes)
    payload_head = _EVENT_WALL_TIME + _WALL_TIME.pack(wall_time) + head
    return payload_head, prefixes, len(payload_head) + strings_bytes


def audio_record_head(
    tag: str, step: int, wall_time: float, size: int, content_type: str, metadata: bytes | None
) -> tuple[bytes, list[bytes], int]:
    """Return the same for one audio clip as legacy audio, since tensors have no content type."""
    before = _AUDIO_CONTENT + encode_varint(size)
    typed = _encode_field(_AUDIO_CONTENT_TYPE, content_type.encode())
    field_head = _VALUE_AUDIO + encode_varint(len(typed) + len(before) + size) + typed
    described = None if metadata is None else _name_and_description(metadata).SerializeToString()
    head = _value_head(tag, described, encode_varint(step), field_head, len(before) + size)
    payload_head = _EVENT_WALL_TIME + _WALL_TIME.pack(wall_time) + head
    return payload_head, [before], len(payload_head) + len(before) + size


def is_legacy_audio(tag: str, metadata: bytes) -> bool:
    """Return whether a reader derives this metadata from legacy audio with its display name."""
    implied = legacy_metadata(
        pb.Summary.Value(tag=tag, metadata=_name_and_description(metadata)), "audio"
    )
    assert implied is not None  # noqa: S101 - it is a legacy kind
    implied.data_class = pb.DATA_CLASS_BLOB_SEQUENCE
    return implied.SerializeToString() == metadata


def _scalar_rows(
    tag: str,
    metadata: bytes | None,
    steps: npt.NDArray[np.int64],
    wall_times: npt.NDArray[Any],
    values: npt.NDArray[Any],
    *,
    is_simple: bool,
) -> bytes:
    """Return the records of points with steps of equal varint length; at least one."""
    width = int(_varint_widths(steps[:1])[0])
    if is_simple:
        head = _value_head(tag, metadata, bytes(width), _VALUE_SIMPLE, values.itemsize)
    else:
        dtype = encode_varint(_DTYPE_FLOAT if values.dtype == _FLOAT32 else _DTYPE_DOUBLE)
        described = (
            _TENSOR_DTYPE
            + dtype
            + _encode_field(_TENSOR_SHAPE, b"")
            + _TENSOR_CONTENT
            + encode_varint(values.itemsize)
        )
        head = _head(tag, metadata, bytes(width), described, values.itemsize)
    wall_time_at = len(_EVENT_WALL_TIME)
    step_at = wall_time_at + _WALL_TIME.size + len(_EVENT_STEP)
    template = _EVENT_WALL_TIME + bytes(_WALL_TIME.size) + head + bytes(values.itemsize)
    payloads = np.empty((len(steps), len(template)), np.uint8)
    payloads[:] = np.frombuffer(template, np.uint8)
    payloads[:, wall_time_at : wall_time_at + _WALL_TIME.size] = _column_bytes(
        wall_times.astype("<f8", copy=False)
    )
    payloads[:, step_at : step_at + width] = _encode_varints(steps, width)
    payloads[:, -values.itemsize :] = _column_bytes(values)
    differing = [
        *range(wall_time_at, step_at + width),
        *range(len(template) - values.itemsize, len(template)),
    ]
    rows = np.empty((len(steps), len(template) + FRAME_BYTES), np.uint8)
    rows[:, :HEADER_BYTES] = np.frombuffer(header(len(template)), np.uint8)
    rows[:, HEADER_BYTES:-FOOTER_BYTES] = payloads
    rows[:, -FOOTER_BYTES:] = _column_bytes(
        mask(checksums(payloads, np.array(differing))).astype("<u4")
    )
    return rows.tobytes()


def _head(
    tag: str, metadata: bytes | None, step: bytes, tensor_head: bytes, rest_bytes: int
) -> bytes:
    """Return an event from its step on, without the last `rest_bytes` of its tensor."""
    tensor = _VALUE_TENSOR + encode_varint(len(tensor_head) + rest_bytes) + tensor_head
    return _value_head(tag, metadata, step, tensor, rest_bytes)


def _value_head(
    tag: str, metadata: bytes | None, step: bytes, field_head: bytes, rest_bytes: int
) -> bytes:
    """Return an event from its step on, without the last `rest_bytes` of the field `field_head`."""
    fields = _encode_field(_VALUE_TAG, tag.encode())
    if metadata is not None:
        fields += _encode_field(_VALUE_METADATA, metadata)
    fields += field_head
    value = _SUMMARY_VALUE + encode_varint(len(fields) + rest_bytes) + fields
    return _EVENT_STEP + step + _EVENT_SUMMARY + encode_varint(len(value) + rest_bytes) + value


def _legacy_value(
    tag: str, histogram: wire_pb2.LegacyHistogram, metadata: bytes | None
) -> pb.Summary.Value:
    """Return a legacy value; readers only use the name and description of its metadata."""
    value = pb.Summary.Value(tag=tag)
    if metadata is not None:
        value.metadata.CopyFrom(_name_and_description(metadata))
    # The fields of both messages have the same numbers and types.
    value.histo.MergeFromString(histogram.SerializeToString())
    value.histo.SetInParent()
    return value


def _name_and_description(metadata: bytes) -> pb.SummaryMetadata:
    """Return the fields of the metadata that readers use for a legacy value."""
    complete = parse(pb.SummaryMetadata, metadata)
    return pb.SummaryMetadata(
        display_name=complete.display_name, summary_description=complete.summary_description
    )


def _tensor_proto(tensor: Tensor) -> pb.TensorProto:
    shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in tensor.shape])
    proto = pb.TensorProto(dtype=tensor.dtype, tensor_shape=shape)
    if tensor.dtype == tensors.STRING:
        proto.string_val.extend(
            tensors.unpack_strings(tensor.data, tensors.element_count(tensor.shape))
        )
    else:
        proto.tensor_content = tensor.data
    return proto


def _varint_widths(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the length of each step as a varint, in bytes: 10 for negative ones."""
    bits = steps.view(np.uint64)
    widths = np.ones(len(steps), np.int64)
    for septets in range(1, 10):
        widths += bits >> np.uint64(7 * septets) > 0
    return widths


def _encode_varints(steps: npt.NDArray[np.int64], width: int) -> _Bytes:
    """Return the steps as varints of `width` bytes each, one per row."""
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    septets = (steps.view(np.uint64)[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    septets[:, : width - 1] |= 0x80
    return septets


def _column_bytes(column: npt.NDArray[Any]) -> _Bytes:
    """Return the bytes of a column's elements, one element per row."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.itemsize)


def _encode_field(key: bytes, content: bytes) -> bytes:
    """Return a length-delimited field: a string, bytes or message."""
    return key + encode_varint(len(content)) + content
