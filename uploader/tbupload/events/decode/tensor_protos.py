"""Convert TensorFlow's TensorProto, in all its forms, to plain tensors.

The elements are either the bytes of `tensor_content`, or numbers in the field of their data type.
In the field, trailing elements may be missing: they repeat the last one there is.

Source: `tensorflow/core/framework/tensor.proto`, and `MakeNdarray` in TensorFlow's
`python/framework/tensor_util.py`, which pads; TensorBoard's `make_ndarray` in
`tensorboard/util/tensor_util.py` only repeats a single element.
"""

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
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors

EXPANDED_TENSOR_BYTES_MAX: Final = 16 << 20
"""Bytes of a tensor after decoding: string lengths, varints and repeated elements expanded.

`TensorProto` may be far smaller (tensorflow/core/framework/tensor.proto: repeated last element).
"""

_HALVES: Final = (tensors.BFLOAT16, 19)
"""DT_BFLOAT16 and DT_HALF: `half_val` has the bit patterns of both, each in an int32."""

_COMPLEX: Final = (8, 18)
"""DT_COMPLEX64 and DT_COMPLEX128."""

_VALUE_FIELDS: Final = {
    tensors.FLOAT: "float_val",
    tensors.DOUBLE: "double_val",
    3: "int_val",
    4: "int_val",
    5: "int_val",
    6: "int_val",
    8: "scomplex_val",
    9: "int64_val",
    10: "bool_val",
    tensors.BFLOAT16: "half_val",
    17: "int_val",
    18: "dcomplex_val",
    19: "half_val",
    22: "uint32_val",
    23: "uint64_val",
}
"""The field of each numeric data type's elements when they are not in `tensor_content`.

Source: the comments of `tensor.proto`; `tbwire.tensors.NAMES` names the data types.
"""

FLOAT_FIELDS: Final = {"float_val": 4, "double_val": 8, "scomplex_val": 4, "dcomplex_val": 8}
"""Fields with packed bytes equal to the tensor's data; bytes per number (a complex has two)."""


def to_tensor(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders = NO_PLACEHOLDERS
) -> Tensor:
    """Return the tensor of a proto; raise ValueRefused when it is malformed or too large.

    A single element is repeated for the complete tensor; without any, it is zeros.
    """
    shape = _shape(proto, limits)
    extents = _data(proto, shape, limits, placeholders)
    if len(extents) == 1 and isinstance(extents[0], bytes):
        return Tensor(proto.dtype, shape, extents[0])

    size = sum(map(len, extents))
    # A server without tensor objects only accepts inline data, so it must be loaded; the limit of
    # inline bytes is small.
    if size <= limits.tensor_bytes_max and (
        not limits.tensor_object_bytes_max or placeholders.try_reserve(size)
    ):
        return Tensor(proto.dtype, shape, b"".join(map(placeholders.load, extents)))
    return Tensor(proto.dtype, shape, b"", in_file=placeholders.splice(extents))


def to_number(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders = NO_PLACEHOLDERS
) -> np.float32 | np.float64:
    """Return a scalar: float32 bit by bit, any other real type as the nearest float64.

    Raises ValueRefused when it is not exactly one real number.
    """
    if proto.dtype == tensors.STRING or proto.dtype in _COMPLEX:
        raise ValueRefused(skip_reasons.NOT_ONE_NUMBER)
    shape = _shape(proto, limits)
    extents = _data(proto, shape, limits, placeholders)
    # TensorBoard takes `item()` of the array: any shape of one element will do.
    if tensors.element_count(shape) != 1:
        raise ValueRefused(skip_reasons.NOT_ONE_NUMBER)

    array = np.frombuffer(
        b"".join(map(placeholders.load, extents)), tensors.numpy_dtype(proto.dtype)
    )
    if proto.dtype == tensors.BFLOAT16:
        # bfloat16 is the upper half of a float32's bits.
        array = (array.astype("<u4") << 16).view("<f4")
    number = array[0]
    return np.float32(number) if proto.dtype == tensors.FLOAT else np.float64(number)


def to_strings(
    proto: pb.TensorProto, limits: ReadLimits, placeholders: FieldPlaceholders
) -> tuple[tuple[int, ...], list[bytes | FileField]]:
    """Return shape and elements of a string tensor.

    Raises ValueRefused when it is none, or has more bytes than a blob may have.
    """
    if proto.dtype != tensors.STRING:
        raise ValueRefused(skip_reasons.NOT_A_VECTOR)
    shape = _shape(proto, limits)
    return shape, _strings(proto, shape, limits.blob_bytes_max, "blob sequence", placeholders)


def _data(
    proto: pb.TensorProto,
    shape: tuple[int, ...],
    limits: ReadLimits,
    placeholders: FieldPlaceholders,
) -> list[bytes | FileField]:
    """Return a tensor's data as consecutive extents; fields left in the file are not loaded."""
    bytes_max = max(limits.tensor_bytes_max, limits.tensor_object_bytes_max)
    if proto.dtype == tensors.STRING:
        strings = _strings(proto, shape, bytes_max, "tensor", placeholders)
        return _packed_strings(strings)
    if proto.dtype not in _VALUE_FIELDS:
        raise ValueRefused(skip_reasons.TENSOR_TYPE_UNSUPPORTED)
    return _numeric_data(proto, tensors.element_count(shape), bytes_max, placeholders)


def _packed_strings(strings: list[bytes | FileField]) -> list[bytes | FileField]:
    """Return a string tensor's data as `tensors.pack_strings` packs it, as extents.

    Consecutive strings in memory are joined, also with the table of lengths before them.
    """
    if not any(isinstance(string, FileField) for string in strings):
        return [tensors.pack_strings([string for string in strings if isinstance(string, bytes)])]
    extents: list[bytes | FileField] = []
    joined = bytearray(np.fromiter(map(len, strings), "<u4", len(strings)).tobytes())
    for string in strings:
        if isinstance(string, FileField):
            extents += [bytes(joined), string]
            joined.clear()
        else:
            joined += string
    return [*extents, bytes(joined)]


def _check_expanded_size(size: int) -> None:
    """Raise ValueRefused when a tensor of `size` bytes is too large to be made in memory."""
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
    """Return the elements of a string tensor; `what` names it in the error over `bytes_max`."""
    strings, count = (
        [placeholders.restore(string) for string in proto.string_val],
        tensors.element_count(shape),
    )
    if len(strings) > count or proto.tensor_content:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)

    last = strings[-1] if strings else b""
    missing = count - len(strings)
    # Checked before anything is repeated: a few bytes can claim any number of elements.
    if 4 * count + sum(map(len, strings)) + missing * len(last) > bytes_max:
        raise over_limit_error(what, bytes_max, "bytes")
    _check_expanded_size(4 * count + missing * (len(last) if isinstance(last, bytes) else 0))
    return strings + [last] * missing


def _numeric_data(
    proto: pb.TensorProto, count: int, bytes_max: int, placeholders: FieldPlaceholders
) -> list[bytes | FileField]:
    """Return the data of a numeric tensor with `count` elements, as extents."""
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
    extents = placeholders.split(_float_bits(proto, field)) if field in FLOAT_FIELDS else []
    present = sum(map(len, extents))
    if present > size or present % dtype.itemsize:
        raise ValueRefused(skip_reasons.TENSOR_MALFORMED)
    if extents and present == size:
        return extents

    _check_expanded_size(size)
    if field in FLOAT_FIELDS:
        elements = np.frombuffer(b"".join(map(placeholders.load, extents)), dtype)
    else:
        elements = _integers(proto, field, dtype)
    return [_repeat_last(elements, dtype, count)]


def _repeat_last(elements: npt.NDArray[Any], dtype: np.dtype[Any], count: int) -> bytes:
    """Return the data of `count` elements; missing ones are the last of `elements`, or zero."""
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
    """Return the elements of a float field, bit by bit.

    They are the end of a message that has no other field. Read as Python's floats, which are
    doubles, signalling NaNs would become quiet, as they do here with some versions before 7.
    """
    alone = pb.TensorProto()
    getattr(alone, field).MergeFrom(getattr(proto, field))
    count = len(getattr(alone, field))
    return alone.SerializeToString()[-count * FLOAT_FIELDS[field] :] if count else b""
