"""Counts the fields of a serialized WriteBatch without building it: an empty message of two bytes becomes eighty."""

from __future__ import annotations

from typing import Final

from tbservice import limits
from tbservice.errors import Malformed, TooLarge

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_KIND: Final = 7
"""The bits of a key that tell the wire type."""

_MORE: Final = 0x80
"""The bit of a varint's byte that says that another byte follows."""

_KEY_BITS: Final = 0xFFFFFFFF
_FIELD_BYTES_MIN: Final = 2
"""A key and a value, or a length of 0."""


class _Inside(dict[int, "_Inside"]):
    """Which fields of a message, by their keys, are messages whose fields count as well; and so on in each."""


def _fields(inside: dict[int, _Inside]) -> _Inside:
    return _Inside({number << 3 | _LENGTH: fields for number, fields in inside.items()})


_BLOB_SEQUENCES: Final = _fields({3: _fields({})})
_SERIES: Final = _fields({4: _fields({}), 5: _BLOB_SEQUENCES})
_WRITE_BATCH: Final = _fields({1: _fields({6: _SERIES})})
"""Where wire.proto has messages that repeat: segments, series, reasons for skipping, tensors, sequences, blobs."""


def check(body: bytes) -> None:
    """Raises TooLarge when a WriteBatch has over `limits.batch_fields_max` fields, Malformed when it is none.

    What it does not raise for may still be malformed. It looks at no body that is too short to have as many.
    """
    if len(body) <= _FIELD_BYTES_MIN * limits.batch_fields_max:
        return
    try:
        _count(body, 0, len(body), _WRITE_BATCH, 0)
    except IndexError as error:
        raise Malformed("the body is no WriteBatch: it ends within a field") from error


def _count(body: bytes, position: int, end: int, inside: _Inside, count: int) -> int:
    """`count` and the fields from `position` to `end`. One loop, as it is a tenth of what decoding scalars takes."""
    while position < end:
        count += 1
        key = body[position]
        position += 1
        if key >= _MORE:
            key, position = _varint(body, position - 1)
            key &= _KEY_BITS
        kind = key & _KIND
        if kind == _LENGTH:
            size = body[position]
            position += 1
            if size >= _MORE:
                size, position = _varint(body, position - 1)
            if key in inside:
                count = _count(body, position, min(position + size, end), inside[key], count)
            position += size
        elif kind == _VARINT:
            _, position = _varint(body, position)
        elif kind in _FIXED_BYTES:
            position += _FIXED_BYTES[kind]
        else:
            raise Malformed("the body is no WriteBatch: it has a group, or a wire type that there is not")
        if count > limits.batch_fields_max:
            raise TooLarge(f"a batch has at most {limits.batch_fields_max} fields; send it in parts")
    return count


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where it ends; ten bytes at most are looked at."""
    value = shift = 0
    while (byte := body[position]) >= _MORE and shift < 63:  # noqa: PLR2004 - the last of ten bytes of 7 bits
        value |= (byte & ~_MORE) << shift
        shift += 7
        position += 1
    return value | byte << shift, position + 1
