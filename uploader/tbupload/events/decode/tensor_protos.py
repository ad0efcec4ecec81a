"""TensorFlow's TensorProto, in all the ways it may hold its elements, as plain tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events import skip_reasons
from tbupload.events.large_records.field_placeholders import (
    NO_PLACEHOLDERS,
    FieldPlaceholders,
    FileField,
)
from tbupload.events.points import Tensor
from tbupload.events.skip_reasons import ValueRefused, over_limit_error
from tbupload.limits import EXPANDED_TENSOR_BYTES_MAX, ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors

_FLOAT: Final = 1
_HALVES: Final = (14, 19)
_COMPLEX: Final = (8, 18)
_VALUE_FIELDS: Final = {
    1: "float_val",
    2: "double_val",
    3: "int_val",
    4: "int_val",
    5: "int_val",
    6: "int_val",
    8: "scomplex_val",
    9: "int64_val",
    10: "bool_val",
    14: "half_val",
    17: "int_val",
    18: "dcomplex_val",
    19: "half_val",
    22: "uint32_val",
    23: "uint64_val",
}
"""Where a numeric tensor of each data type holds its elements when they are not in `tensor_content`."""

_FLOAT_FIELDS: Final = {"float_val": 4, "double_val": 8, "scomplex_val": 4, "dcomplex_val": 8}
"""The fields whose elements, of so many bytes, stand in the file as in the data; complex numbers are two elements."""


def to_tensor(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders = NO_PLACEHOLDERS
) -> Tensor:
    """The tensor a proto stands for; raises ValueRefused when it is malformed or cannot be kept.

    Elements that are missing repeat the last one there is, as in TensorFlow: one element may stand for a whole tensor,
    and none at all for zeros.
    """
    shape = _shape(proto, limits)
    pieces = _pieces(proto, shape, limits, placeholders)
    if len(pieces) == 1 and isinstance(pieces[0], bytes):
        return Tensor(proto.dtype, shape, pieces[0])
    size = sum(map(len, pieces))
    # Where the server takes no objects, there is no other way than to load it: the limit of bytes is small.
    if size <= limits.tensor_bytes_max and (
        not limits.tensor_object_bytes_max or placeholders.try_reserve(size)
    ):
        return Tensor(proto.dtype, shape, b"".join(map(placeholders.load, pieces)))
    return Tensor(proto.dtype, shape, b"", in_file=placeholders.splice(pieces))


def to_number(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders = NO_PLACEHOLDERS
) -> np.float32 | np.float64:
    """The number of a scalar: float32 as it is, any other real type as the nearest float64; raises ValueRefused."""
    if proto.dtype == tensors.STRING or proto.dtype in _COMPLEX:
        raise ValueRefused(skip_reasons.NOT_ONE_NUMBER)
    shape = _shape(proto, limits)
    pieces = _pieces(proto, shape, limits, placeholders)
    if tensors.element_count(shape) != 1:
        raise ValueRefused(skip_reasons.NOT_ONE_NUMBER)
    array = np.frombuffer(
        b"".join(map(placeholders.load, pieces)), tensors.numpy_dtype(proto.dtype)
    )
    if proto.dtype == tensors.BFLOAT16:
        array = (array.astype("<u4") << 16).view("<f4")
    number = array[0]
    return np.float32(number) if proto.dtype == _FLOAT else np.float64(number)


def to_strings(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders
) -> tuple[tuple[int, ...], list[bytes | FileField]]:
    """Shape and elements of a string tensor, bounded by the limit of blobs; raises ValueRefused when it is none."""
    if proto.dtype != tensors.STRING:
        raise ValueRefused(skip_reasons.NOT_A_VECTOR)
    shape = _shape(proto, limits)
    return shape, _strings(proto, shape, limits.blob_bytes_max, "blob sequence", placeholders)


def _pieces(
    proto: pb.TensorProto,
    shape: tuple[int, ...],
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> list[bytes | FileField]:
    """A tensor's data as pieces, one after the other; what was cut out of its record is not loaded."""
    bytes_max = max(limits.tensor_bytes_max, limits.tensor_object_bytes_max)
    if proto.dtype == tensors.STRING:
        strings = _strings(proto, shape, bytes_max, "tensor", placeholders)
        return _packed_strings(strings)
    if proto.dtype not in _VALUE_FIELDS:
        raise ValueRefused(skip_reasons.TENSOR_TYPE_UNSUPPORTED)
    return _numeric_data(proto, tensors.element_count(shape), bytes_max, placeholders)


def _packed_strings(strings: list[bytes | FileField]) -> list[bytes | FileField]:
    """A string tensor's data: the table of lengths, then the strings, those in memory joined where they can be."""
    if not any(isinstance(string, FileField) for string in strings):
        return [tensors.pack_strings([string for string in strings if isinstance(string, bytes)])]
    pieces: list[bytes | FileField] = []
    joined = bytearray(np.fromiter(map(len, strings), "<u4", len(strings)).tobytes())
    for string in strings:
        if isinstance(string, FileField):
            pieces += [bytes(joined), string]
            joined.clear()
        else:
            joined += string
    return [*pieces, bytes(joined)]


def _check_expanded_size(size: int) -> None:
    """Raise ValueRefused when so many bytes of one tensor are more than are made in memory."""
    if size > EXPANDED_TENSOR_BYTES_MAX:
        raise ValueRefused(skip_reasons.RECORD_TOO_LARGE)


def _shape(proto: pb.TensorProto, limits: ReadLimits) -> tuple[int, ...]:
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if len(shape) > limits.tensor_rank_max:
        raise over_limit_error("tensor", limits.tensor_rank_max, "dimensions")
    try:
        tensors.element_count(shape)
    except ValueError as error:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED) from error
    if proto.tensor_shape.unknown_rank:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
    return shape


def _strings(
    proto: pb.TensorProto,
    shape: tuple[int, ...],
    bytes_max: int,
    what: str,
    placeholders: FieldPlaceholders,
) -> list[bytes | FileField]:
    strings, count = (
        [placeholders.restore(string) for string in proto.string_val],
        tensors.element_count(shape),
    )
    if len(strings) > count or proto.tensor_content:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
    last = strings[-1] if strings else b""
    missing = count - len(strings)
    # Before anything is repeated: a few bytes can claim to stand for any number of elements.
    if 4 * count + sum(map(len, strings)) + missing * len(last) > bytes_max:
        raise over_limit_error(what, bytes_max, "bytes")
    _check_expanded_size(4 * count + missing * (len(last) if isinstance(last, bytes) else 0))
    return strings + [last] * missing


def _numeric_data(
    proto: pb.TensorProto, count: int, bytes_max: int, placeholders: FieldPlaceholders
) -> list[bytes | FileField]:
    dtype = tensors.numpy_dtype(proto.dtype)
    size = count * dtype.itemsize
    if size > bytes_max:
        raise over_limit_error("tensor", bytes_max, "bytes")
    if proto.tensor_content:
        content = placeholders.restore(proto.tensor_content)
        if len(content) != size:
            raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
        return [content]
    field = _VALUE_FIELDS[proto.dtype]
    pieces = placeholders.split(_float_bits(proto, field)) if field in _FLOAT_FIELDS else []
    given = sum(map(len, pieces))
    if given > size or given % dtype.itemsize:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
    if pieces and given == size:
        return pieces
    _check_expanded_size(size)
    if field in _FLOAT_FIELDS:
        return [
            _repeat_last(
                np.frombuffer(b"".join(map(placeholders.load, pieces)), dtype), dtype, count
            )
        ]
    return [_repeat_last(_integers(proto, field, dtype), dtype, count)]


def _repeat_last(elements: npt.NDArray[Any], dtype: np.dtype[Any], count: int) -> bytes:
    """The data of `count` elements: these, and the last of them (or zero) for all that are missing."""
    if len(elements) > count:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
    last = elements[-1:] if len(elements) else np.zeros(1, dtype)
    return np.concatenate([elements, np.repeat(last, count - len(elements))]).tobytes()


def _integers(proto: pb.TensorProto, field: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if proto.dtype in _HALVES:
        return np.array(proto.half_val, np.int64).astype(np.uint16).view(dtype)
    widest = np.uint64 if field == "uint64_val" else np.int64
    return np.array(getattr(proto, field), widest).astype(dtype)


def _float_bits(proto: pb.TensorProto, field: str) -> bytes:
    """The elements of a field of floats, bit for bit.

    They are taken from a message that holds nothing else: Python's own floats would make every NaN a quiet one.
    """
    alone = pb.TensorProto()
    getattr(alone, field).MergeFrom(getattr(proto, field))
    count = len(getattr(alone, field))
    return alone.SerializeToString()[-count * _FLOAT_FIELDS[field] :] if count else b""
