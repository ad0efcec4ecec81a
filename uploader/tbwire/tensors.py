"""The bytes of a tensor on the wire and in the store: TensorFlow's data types, numpy's, and how strings are packed.

Numeric tensors are their elements, little-endian and row-major. A string tensor of n elements is n little-endian uint32
lengths, then the n byte strings one after the other.
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
"""TensorFlow's DT_BFLOAT16: numpy has no such type, so its elements are carried as uint16 bit patterns."""

NAMES: Final[dict[int, str]] = {
    1: "float32",
    2: "float64",
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
"""Each data type we carry, by TensorFlow's number (core/framework/types.proto), with the API's word for it."""

_NUMPY_TYPES: Final[dict[int, str]] = {
    1: "<f4",
    2: "<f8",
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
"""Product of a shape's dimensions other than 0 that numpy can still address, at 16 bytes an element: empty or not."""


def numpy_dtype(dtype: int) -> np.dtype[Any]:
    """The numpy type that carries TensorFlow's numeric type `dtype`; KeyError for strings and types we do not carry."""
    return np.dtype(_NUMPY_TYPES[dtype])


def pack_strings(strings: Sequence[bytes]) -> bytes:
    """The data of a string tensor with these elements, in row-major order; each under 4 GiB."""
    lengths = np.fromiter(map(len, strings), dtype="<u4", count=len(strings))
    return lengths.tobytes() + b"".join(strings)


def unpack_strings(data: bytes, count: int) -> list[bytes]:
    """The `count` elements of a string tensor's data; ValueError when the bytes do not add up."""
    if len(data) < 4 * count:
        raise ValueError("a string tensor is shorter than its table of lengths")
    ends = 4 * count + np.cumsum(np.frombuffer(data, "<u4", count), dtype=np.int64)
    if (int(ends[-1]) if count else 0) != len(data):
        raise ValueError("a string tensor's lengths do not add up to its bytes")
    starts = [4 * count, *ends.tolist()]
    return [data[start:end] for start, end in zip(starts, ends.tolist(), strict=False)]


def element_count(shape: Sequence[int]) -> int:
    """How many elements a tensor of this shape has; ValueError for dimensions that no array can have."""
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
    """Raises ValueError unless `data` is exactly a tensor of this type and shape."""
    if dtype == STRING:
        unpack_strings(data, element_count(shape))
    else:
        check_size(dtype, shape, len(data))


def check_size(dtype: int, shape: Sequence[int], size: int) -> None:
    """Raise ValueError unless `size` bytes can be a tensor of this type and shape.

    Any bytes of that size are, if it is numeric; those of a string tensor have a table of lengths to be checked, too.
    """
    count = element_count(shape)
    if dtype == STRING:
        if size < 4 * count:
            raise ValueError("a string tensor is shorter than its table of lengths")
    elif dtype not in _NUMPY_TYPES:
        raise ValueError(f"TensorFlow's data type {dtype} is not one that can be kept")
    elif count * numpy_dtype(dtype).itemsize != size:
        raise ValueError("a tensor's bytes are not as many as its shape says")


def to_numpy(dtype: int, shape: Sequence[int], data: bytes) -> npt.NDArray[Any]:
    """The array of a tensor that passed `check`: read-only, of the type's carrier; strings as objects, of bytes."""
    if dtype == STRING:
        array = np.empty(element_count(shape), dtype=object)
        array[:] = unpack_strings(data, array.size)
        return array.reshape(tuple(shape))
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(tuple(shape))
