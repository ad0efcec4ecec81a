"""Encoding of protobuf fields, many at a time: varints as columns of bytes, keys as constants.

The encoding is that of Protocol Buffers; field numbers are those of
`tensorboard/compat/proto/event.proto`, `summary.proto`, `tensor.proto` and `tensor_shape.proto`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbwire.wire_format import encode_varint

# `DataType` of `tensorboard/compat/proto/types.proto`.
DTYPE_FLOAT: Final = 1
DTYPE_DOUBLE: Final = 2
WALL_TIME: Final = struct.Struct("<d")

# Keys of fields: number << 3 | wire type. The prefix is the message.
EVENT_WALL_TIME: Final = b"\x09"
EVENT_STEP: Final = b"\x10"
EVENT_SUMMARY: Final = b"\x2a"
SUMMARY_VALUE: Final = b"\x0a"
VALUE_TAG: Final = b"\x0a"
VALUE_SIMPLE: Final = b"\x15"
VALUE_AUDIO: Final = b"\x32"
VALUE_TENSOR: Final = b"\x42"
VALUE_METADATA: Final = b"\x4a"
TENSOR_DTYPE: Final = b"\x08"
TENSOR_SHAPE: Final = b"\x12"
TENSOR_CONTENT: Final = b"\x22"
TENSOR_STRING: Final = b"\x42"
AUDIO_CONTENT: Final = b"\x22"
AUDIO_CONTENT_TYPE: Final = b"\x2a"

Bytes = npt.NDArray[np.uint8]


def varint_widths(steps: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the length of each step as a varint, in bytes: 10 for negative ones."""
    bits = steps.view(np.uint64)
    widths = np.ones(len(steps), np.int64)
    for septets in range(1, 10):
        widths += bits >> np.uint64(7 * septets) > 0
    return widths


def encode_varints(steps: npt.NDArray[np.int64], width: int) -> Bytes:
    """Return the steps as varints of `width` bytes each, one per row."""
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    septets = (steps.view(np.uint64)[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    septets[:, : width - 1] |= 0x80
    return septets


def column_bytes(column: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of a column's elements, one element per row."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.itemsize)


def encode_field(key: bytes, content: bytes) -> bytes:
    """Return a length-delimited field: a string, bytes or message."""
    return key + encode_varint(len(content)) + content
