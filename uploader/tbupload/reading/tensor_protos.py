"""TensorFlow's TensorProto, in all the ways it may hold its elements, as plain tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.limits import ReadLimits
from tbupload.reading import refusals
from tbupload.reading.cuts import NO_CUTS, Cut, Cuts
from tbupload.reading.points import Tensor
from tbupload.reading.refusals import ValueRefused, over_limit
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

_FLOAT_FIELDS: Final = {"float_val": "<f4", "double_val": "<f8", "scomplex_val": "<f4", "dcomplex_val": "<f8"}
"""The fields whose elements stand in the file as numpy wants them; complex numbers are two elements."""


def to_tensor(proto: pb.TensorProto, limits: ReadLimits, cuts: Cuts = NO_CUTS) -> Tensor:
    """The tensor a proto stands for; raises ValueRefused when it is malformed or cannot be kept.

    Elements that are missing repeat the last one there is, as in TensorFlow: one element may stand for a whole tensor,
    and none at all for zeros.
    """
    shape = _shape(proto, limits)
    if proto.dtype == tensors.STRING:
        strings = _strings(proto, shape, limits.tensor_bytes_max, "tensor", cuts)
        return Tensor(proto.dtype, shape, tensors.pack_strings([cuts.load(string) for string in strings]))
    if proto.dtype not in _VALUE_FIELDS:
        raise ValueRefused(refusals.TENSOR_TYPE)
    return Tensor(proto.dtype, shape, _numeric_data(proto, tensors.element_count(shape), limits.tensor_bytes_max))


def to_number(proto: pb.TensorProto, limits: ReadLimits) -> np.float32 | np.float64:
    """The number of a scalar: float32 as it is, any other real type as the nearest float64; raises ValueRefused."""
    if proto.dtype == tensors.STRING or proto.dtype in _COMPLEX:
        raise ValueRefused(refusals.NOT_ONE_NUMBER)
    tensor = to_tensor(proto, limits)
    if tensors.element_count(tensor.shape) != 1:
        raise ValueRefused(refusals.NOT_ONE_NUMBER)
    array = np.frombuffer(tensor.data, tensors.numpy_dtype(tensor.dtype))
    if tensor.dtype == tensors.BFLOAT16:
        array = (array.astype("<u4") << 16).view("<f4")
    number = array[0]
    return np.float32(number) if tensor.dtype == _FLOAT else np.float64(number)


def to_strings(proto: pb.TensorProto, limits: ReadLimits, cuts: Cuts) -> tuple[tuple[int, ...], list[bytes | Cut]]:
    """Shape and elements of a string tensor, bounded by the limit of blobs; raises ValueRefused when it is none."""
    if proto.dtype != tensors.STRING:
        raise ValueRefused(refusals.NOT_A_VECTOR)
    shape = _shape(proto, limits)
    return shape, _strings(proto, shape, limits.blob_bytes_max, "blob sequence", cuts)


def _shape(proto: pb.TensorProto, limits: ReadLimits) -> tuple[int, ...]:
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if len(shape) > limits.tensor_rank_max:
        raise over_limit("tensor", limits.tensor_rank_max, "dimensions")
    try:
        tensors.element_count(shape)
    except ValueError as error:
        raise ValueRefused(refusals.TENSOR_MALFORMED) from error
    if proto.tensor_shape.unknown_rank:
        raise ValueRefused(refusals.TENSOR_MALFORMED)
    return shape


def _strings(proto: pb.TensorProto, shape: tuple[int, ...], bytes_max: int, what: str, cuts: Cuts) -> list[bytes | Cut]:
    strings, count = [cuts.restore(string) for string in proto.string_val], tensors.element_count(shape)
    if len(strings) > count or proto.tensor_content:
        raise ValueRefused(refusals.TENSOR_MALFORMED)
    last = strings[-1] if strings else b""
    missing = count - len(strings)
    # Before anything is repeated: a few bytes can claim to stand for any number of elements.
    if 4 * count + sum(map(len, strings)) + missing * len(last) > bytes_max:
        raise over_limit(what, bytes_max, "bytes")
    return strings + [last] * missing


def _numeric_data(proto: pb.TensorProto, count: int, bytes_max: int) -> bytes:
    dtype = tensors.numpy_dtype(proto.dtype)
    if count * dtype.itemsize > bytes_max:
        raise over_limit("tensor", bytes_max, "bytes")
    if proto.tensor_content:
        if len(proto.tensor_content) != count * dtype.itemsize:
            raise ValueRefused(refusals.TENSOR_MALFORMED)
        return proto.tensor_content
    return _elements(proto, dtype, count).tobytes()


def _elements(proto: pb.TensorProto, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    field = _VALUE_FIELDS[proto.dtype]
    if field in _FLOAT_FIELDS:
        values = _float_bits(proto, field, _FLOAT_FIELDS[field])
        if len(values) * values.itemsize % dtype.itemsize:
            raise ValueRefused(refusals.TENSOR_MALFORMED)
        elements = values.view(dtype)
    elif proto.dtype in _HALVES:
        elements = np.array(proto.half_val, np.int64).astype(np.uint16).view(dtype)
    else:
        widest = np.uint64 if field == "uint64_val" else np.int64
        elements = np.array(getattr(proto, field), widest).astype(dtype)
    if len(elements) > count:
        raise ValueRefused(refusals.TENSOR_MALFORMED)
    last = elements[-1:] if len(elements) else np.zeros(1, dtype)
    return np.concatenate([elements, np.repeat(last, count - len(elements))])


def _float_bits(proto: pb.TensorProto, field: str, dtype: str) -> npt.NDArray[Any]:
    """The elements of a field of floats, bit for bit.

    They are taken from a message that holds nothing else: Python's own floats would make every NaN a quiet one.
    """
    alone = pb.TensorProto()
    getattr(alone, field).MergeFrom(getattr(proto, field))
    count = len(getattr(alone, field))
    return np.frombuffer(alone.SerializeToString()[-count * int(dtype[-1]) :] if count else b"", dtype)
