"""Counts what a serialized WriteBatch holds without building it: an empty message of two bytes becomes eighty.

An empty packed block of two bytes becomes thirty, and a tensor's dimension of one byte sixteen: they are counted apart,
as there may be more of them.
"""

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

_GOES_ON: Final = bytes(range(_MORE, 256))
"""All bytes of a varint but its last."""

_KEY_BITS: Final = 0xFFFFFFFF
_FIELD_BYTES_MIN: Final = 2
"""A key and a value, or a length of 0."""


_Limit = tuple[int, str]
"""How many there may be, and of what."""


class _Inside(dict[int, "_Inside"]):
    """Which fields of a message, by their keys, are messages whose fields count as well; and so on in each.

    `weight` is what each field of this message counts, itself; `numbers` is the key of one whose bytes are packed
    varints, each of which counts.
    """

    def __init__(self, inside: dict[int, _Inside], weight: int = 1, numbers: int | None = None) -> None:
        super().__init__({number << 3 | _LENGTH: fields for number, fields in inside.items()})
        self.weight = weight
        self.numbers = None if numbers is None else numbers << 3 | _LENGTH


_SERIES: Final = _Inside({4: _Inside({}), 5: _Inside({3: _Inside({})})})
_FIELDS: Final = _Inside({1: _Inside({6: _SERIES})})
"""Where wire.proto has messages that repeat: segments, series, reasons for skipping, tensors, sequences, blobs."""

_POINTS: Final = _Inside({3: _Inside({}), 4: _Inside({3: _Inside({}, numbers=2)}, weight=0)}, weight=0)
_ELEMENTS: Final = _Inside({1: _Inside({6: _POINTS}, weight=0)}, weight=0)
"""Where it has values that repeat and take more room than bytes: the blocks of scalars, the dimensions of tensors."""


def check(body: bytes) -> None:
    """Raises TooLarge when a WriteBatch is over `limits.batch_fields_max` or `batch_elements_max`, Malformed for none.

    What it does not raise for may still be malformed. It looks at no body that is too short to have as many.
    """
    try:
        if len(body) > _FIELD_BYTES_MIN * limits.batch_fields_max:
            _count(body, 0, len(body), _FIELDS, 0, (limits.batch_fields_max, "fields"))
        if len(body) > limits.batch_elements_max:
            what = "packed blocks and dimensions of tensors"
            _count(body, 0, len(body), _ELEMENTS, 0, (limits.batch_elements_max, what))
    except IndexError as error:
        raise Malformed("the body is no WriteBatch: it ends within a field") from error


def _count(body: bytes, position: int, end: int, inside: _Inside, count: int, limit: _Limit) -> int:
    """`count` and the fields from `position` to `end`. One loop, as it is a tenth of what decoding scalars takes."""
    while position < end:
        count += inside.weight
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
                count = _count(body, position, min(position + size, end), inside[key], count, limit)
            elif key == inside.numbers:
                count += len(body[position : position + size].translate(None, _GOES_ON))
            position += size
        elif kind == _VARINT:
            _, position = _varint(body, position)
        elif kind in _FIXED_BYTES:
            position += _FIXED_BYTES[kind]
        else:
            raise Malformed("the body is no WriteBatch: it has a group, or a wire type that there is not")
        if count > limit[0]:
            raise TooLarge(f"a batch has at most {limit[0]} {limit[1]}; send it in parts")
    return count


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and where it ends; ten bytes at most are looked at."""
    value = shift = 0
    while (byte := body[position]) >= _MORE and shift < 63:  # noqa: PLR2004 - the last of ten bytes of 7 bits
        value |= (byte & ~_MORE) << shift
        shift += 7
        position += 1
    return value | byte << shift, position + 1
