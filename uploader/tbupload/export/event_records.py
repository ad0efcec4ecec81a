"""Points as the records of an event file, from which the uploader, and TensorBoard, read the same series again.

Every value is written as a tensor, in the form of TensorFlow 2, with the series' own summary metadata on its first one.
But scalars that came as a `simple_value`, as those of PyTorch, are written as such, so that whatever read their files
reads these; and a legacy histogram, too, since its fields are more than its tensor, and audio with a content type.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from tbupload.events.decode.legacy import histogram_tensor, legacy_metadata
from tbupload.events.linear_checksum import checksums, mask
from tbupload.events.points import LegacyHistogram, ScalarColumns, Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tf_record import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, footer, header
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors
from tbwire.wire_format import encode_varint

_FLOAT: Final = 1
_DOUBLE: Final = 2
_WALL_TIME: Final = struct.Struct("<d")

# Keys of the fields that are written by hand: number << 3 | wire type
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

_FLOAT32: Final = np.dtype("<f4")

_Bytes = npt.NDArray[np.uint8]


def version_record(wall_time: float) -> bytes:
    """The record that every event file begins with."""
    return record(pb.Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString())


def record(payload: bytes) -> bytes:
    """One record around a payload."""
    return header(len(payload)) + payload + footer(google_crc32c.value(payload))


def scalar_records(
    tag: str, columns: ScalarColumns, metadata: bytes | None, *, is_simple: bool = False
) -> Iterator[bytes]:
    """Scalars in step order, many records in each piece; `metadata` goes with the first one.

    They are float32 where all of them are the same as such, bit by bit; these as a `simple_value` if the series
    `is_simple`.
    """
    values = _as_float32_if_exact(columns.values)
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
    for start, end in pairwise(
        bounds
    ):  # records of one length: steps rise, and so few of these are parted
        if end > start:
            rows = slice(begin + start, begin + end)
            points = columns.steps[rows], columns.wall_times[rows], values[rows]
            yield _scalar_rows(tag, None, *points, is_simple=is_simple)


def is_simple_value(tag: str, metadata: bytes) -> bool:
    """Whether this is the metadata that a reader makes of a `simple_value` that says nothing of itself."""
    implied = legacy_metadata(pb.Summary.Value(tag=tag), "simple_value")
    assert implied is not None  # noqa: S101 - it is a legacy kind
    implied.data_class = pb.DATA_CLASS_SCALAR
    return implied.SerializeToString() == metadata


def tensor_record(
    tag: str, step: int, wall_time: float, tensor: Tensor, metadata: bytes | None
) -> bytes:
    """A tensor, or its legacy histogram where it has one."""
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
    """Whether a tensor's legacy histogram is read again as this tensor, and with this metadata (None: any)."""
    if tensor.histogram is None:
        return False
    value = _legacy_value(tag, tensor.histogram, metadata)
    try:
        again = histogram_tensor(value.histo)
    except ValueRefused:  # its limits and counts do not fit together
        return False
    if (again.dtype, again.shape, again.data) != (tensor.dtype, tensor.shape, tensor.data):
        return False
    implied = legacy_metadata(value, "histo")
    assert implied is not None  # noqa: S101 - it is a legacy kind
    implied.data_class = pb.DATA_CLASS_TENSOR
    return metadata is None or implied.SerializeToString() == metadata


def blob_record_head(
    tag: str, step: int, wall_time: float, sizes: Sequence[int], metadata: bytes | None
) -> tuple[bytes, list[bytes], int]:
    """What stands before a sequence's blobs, before each of them, and how many bytes the payload has with them.

    They are the elements of a string vector, and may be as large as they like: nobody holds them here.
    """
    befores = [_TENSOR_STRING + encode_varint(size) for size in sizes]
    shape = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=len(sizes))]).SerializeToString()
    described = _TENSOR_DTYPE + encode_varint(tensors.STRING) + _encode_field(_TENSOR_SHAPE, shape)
    strings_bytes = sum(map(len, befores)) + sum(sizes)
    head = _head(tag, metadata, encode_varint(step), described, strings_bytes)
    payload_head = _EVENT_WALL_TIME + _WALL_TIME.pack(wall_time) + head
    return payload_head, befores, len(payload_head) + strings_bytes


def audio_record_head(
    tag: str, step: int, wall_time: float, size: int, content_type: str, metadata: bytes | None
) -> tuple[bytes, list[bytes], int]:
    """The same of a clip of `size` bytes and its content type, as legacy audio: a tensor has no place for the type."""
    before = _AUDIO_CONTENT + encode_varint(size)
    typed = _encode_field(_AUDIO_CONTENT_TYPE, content_type.encode())
    begun = _VALUE_AUDIO + encode_varint(len(typed) + len(before) + size) + typed
    described = None if metadata is None else _name_and_description(metadata).SerializeToString()
    head = _value_head(tag, described, encode_varint(step), begun, len(before) + size)
    payload_head = _EVENT_WALL_TIME + _WALL_TIME.pack(wall_time) + head
    return payload_head, [before], len(payload_head) + len(before) + size


def is_legacy_audio(tag: str, metadata: bytes) -> bool:
    """Whether this is the metadata that a reader makes of legacy audio with its name and description."""
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
    """The records of points whose steps take equally many bytes; at least one."""
    width = int(_varint_widths(steps[:1])[0])
    if is_simple:
        head = _value_head(tag, metadata, bytes(width), _VALUE_SIMPLE, values.itemsize)
    else:
        dtype = encode_varint(_FLOAT if values.dtype == _FLOAT32 else _DOUBLE)
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
    """An event from its step on, up to where `rest_bytes` more bytes end its tensor, and with it the event."""
    tensor = _VALUE_TENSOR + encode_varint(len(tensor_head) + rest_bytes) + tensor_head
    return _value_head(tag, metadata, step, tensor, rest_bytes)


def _value_head(
    tag: str, metadata: bytes | None, step: bytes, begun: bytes, rest_bytes: int
) -> bytes:
    """The same, up to where `rest_bytes` more bytes end the field that has `begun`."""
    before = _encode_field(_VALUE_TAG, tag.encode())
    if metadata is not None:
        before += _encode_field(_VALUE_METADATA, metadata)
    before += begun
    value = _SUMMARY_VALUE + encode_varint(len(before) + rest_bytes) + before
    return _EVENT_STEP + step + _EVENT_SUMMARY + encode_varint(len(value) + rest_bytes) + value


def _legacy_value(tag: str, histogram: LegacyHistogram, metadata: bytes | None) -> pb.Summary.Value:
    """A value from whose own fields a reader makes the metadata: it looks for a name and a description only."""
    value = pb.Summary.Value(tag=tag)
    if metadata is not None:
        value.metadata.CopyFrom(_name_and_description(metadata))
    for name in ("min", "max", "num", "sum", "sum_squares"):
        setattr(value.histo, name, getattr(histogram, name))
    value.histo.bucket_limit.extend(histogram.bucket_limit)
    value.histo.bucket.extend(histogram.bucket)
    value.histo.SetInParent()
    return value


def _name_and_description(metadata: bytes) -> pb.SummaryMetadata:
    """What a reader takes from the metadata that stands beside a legacy value."""
    wanted = pb.SummaryMetadata.FromString(metadata)
    return pb.SummaryMetadata(
        display_name=wanted.display_name, summary_description=wanted.summary_description
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


def _as_float32_if_exact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values as little-endian float32 if that loses nothing, otherwise as float64."""
    wide = values.astype("<f8", copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype("<f4")
        fits = np.array_equal(narrow.astype("<f8").view(np.uint64), wide.view(np.uint64))
    return narrow if fits else wide


def _varint_widths(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many bytes each step takes as a varint: ten when it is negative."""
    bits = steps.view(np.uint64)
    widths = np.ones(len(steps), np.int64)
    for septets in range(1, 10):
        widths += bits >> np.uint64(7 * septets) > 0
    return widths


def _encode_varints(steps: npt.NDArray[np.int64], width: int) -> _Bytes:
    """The steps as varints of `width` bytes, one a row."""
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    septets = (steps.view(np.uint64)[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    septets[:, : width - 1] |= 0x80
    return septets


def _column_bytes(column: npt.NDArray[Any]) -> _Bytes:
    """The bytes of each element, one element a row."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.itemsize)


def _encode_field(key: bytes, content: bytes) -> bytes:
    return key + encode_varint(len(content)) + content
