"""Bytes of a tensor on the wire and in the store: data types, and how elements are packed.

Numeric tensors are their elements, little-endian and row-major, as in `TensorProto.tensor_content`.
A string tensor of n elements is n little-endian uint32 lengths, then the n byte strings one after
the other: unlike `string_val`, that is one range of bytes, in which each string can be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FLOAT: Final = 1
DOUBLE: Final = 2
STRING: Final = 7
"""TensorFlow's DT_FLOAT, DT_DOUBLE and DT_STRING."""

BFLOAT16: Final = 14
"""TensorFlow's DT_BFLOAT16: the upper 16 bits of a float32.

numpy has no such type, so its elements are carried as uint16 bit patterns.
"""

NAMES: Final[dict[int, str]] = {
    FLOAT: "float32",
    DOUBLE: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    STRING: "string",
    8: "complex64",
    9: "int64",
    10: "bool",
    BFLOAT16: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
"""The supported data types by TensorFlow's number, with their names in the API.

Source: enum DataType in `tensorflow/core/framework/types.proto`, `types_pb2.py` in
`tensorboard/compat/proto`. Not supported: resource, variant, quantized and float8 types.
"""

_NUMPY_TYPES: Final[dict[int, str]] = {
    FLOAT: "<f4",
    DOUBLE: "<f8",
    3: "<i4",
    4: "|u1",
    5: "<i2",
    6: "|i1",
    8: "<c8",
    9: "<i8",
    10: "|b1",
    BFLOAT16: "<u2",
    17: "<u2",
    18: "<c16",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}


_ELEMENTS_MAX: Final = 2**58
"""Product of a shape's dimensions other than 0 that numpy can address, at 16 bytes per element.

numpy applies this limit to empty arrays, too.
"""


def numpy_dtype(dtype: int) -> np.dtype[Any]:
    """Return the numpy type that carries TensorFlow's numeric type `dtype`.

    Raises KeyError for strings and for types that are not supported.
    """
    return np.dtype(_NUMPY_TYPES[dtype])


def pack_strings(strings: Sequence[bytes]) -> bytes:
    """Return the data of a string tensor with these elements; each is shorter than 4 GiB."""
    lengths = np.fromiter(map(len, strings), dtype="<u4", count=len(strings))
    return lengths.tobytes() + b"".join(strings)


def unpack_strings(data: bytes, count: int) -> list[bytes]:
    """Return the `count` elements of a string tensor's data; ValueError if it is malformed."""
    if len(data) < 4 * count:
        raise ValueError("a string tensor is shorter than its table of lengths")
    ends = 4 * count + np.cumsum(np.frombuffer(data, "<u4", count), dtype=np.int64)
    if (int(ends[-1]) if count else 0) != len(data):
        raise ValueError("a string tensor's lengths do not add up to its bytes")
    starts = [4 * count, *ends.tolist()]
    return [data[start:end] for start, end in zip(starts, ends.tolist())]


def element_count(shape: Sequence[int]) -> int:
    """Return the number of elements of a tensor; ValueError for a shape that no array can have."""
    count = span = 1
    for size in shape:
        if size < 0:
            raise ValueError("a tensor's dimension is negative")
        count *= size
        span *= max(size, 1)
    if span > _ELEMENTS_MAX:
        raise ValueError("a tensor's dimensions are too large, whether or not one of them is 0")
    return count


def check_tensor(dtype: int, shape: Sequence[int], data: bytes) -> None:
    """Raise ValueError unless `data` is exactly a tensor of this type and shape."""
    if dtype == STRING:
        unpack_strings(data, element_count(shape))
    else:
        check_size(dtype, shape, len(data))


def check_size(dtype: int, shape: Sequence[int], size: int) -> None:
    """Raise ValueError unless `size` bytes can be a tensor of this type and shape.

    For a numeric tensor that is enough; the table of lengths of a string tensor needs a check of
    its own.
    """
    count = element_count(shape)
    if dtype == STRING:
        if size < 4 * count:
            raise ValueError("a string tensor is shorter than its table of lengths")
    elif dtype not in _NUMPY_TYPES:
        raise ValueError(f"TensorFlow's data type {dtype} is not supported")
    elif count * numpy_dtype(dtype).itemsize != size:
        raise ValueError("a tensor's size does not match its shape and type")


def to_numpy(dtype: int, shape: Sequence[int], data: bytes) -> npt.NDArray[Any]:
    """Return the array of a tensor that passed `check_tensor`.

    It is read-only, with `numpy_dtype(dtype)`; strings are an object array of bytes.
    """
    if dtype == STRING:
        array = np.empty(element_count(shape), dtype=object)
        array[:] = unpack_strings(data, array.size)
        return array.reshape(tuple(shape))
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(tuple(shape))
