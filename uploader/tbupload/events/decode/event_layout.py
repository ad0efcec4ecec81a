"""Where the fields of one serialized event lie, when it holds nothing but scalars: what the bulk decoder goes by.

Only the shapes that writers of scalars produce are understood; for any other event there is no layout, and protobuf has
to read it. An event with a layout is valid protobuf, but for the text in its tags and the inside of its metadata.
The field numbers are those of tbwire/tensorboard.proto.
"""
# ruff: noqa: PLR2004 - field numbers and the continuation bit of varints say more as numbers

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, overload

from tbwire.wire_format import (
    CONTINUATION_BIT,
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    SIZE_BYTES_MAX,
    VARINT,
    WIRE_TYPE_BITS,
    WIRE_TYPE_MASK,
    MalformedVarint,
    decode_varint,
)

_CONTENT_TYPES: Final = {
    1: "<f4",
    2: "<f8",
    3: "<i4",
    4: "|u1",
    5: "<i2",
    6: "|i1",
    9: "<i8",
    17: "<u2",
    19: "<f2",
    22: "<u4",
    23: "<u8",
}
"""TensorFlow's real numeric types whose bytes numpy reads as they stand in `tensor_content`."""


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """One scalar of an event; spans are byte ranges of the event.

    `dtype` is numpy's name for what lies in `value`. `is_legacy` tells a `simple_value` from a tensor.
    """

    tag: slice
    metadata: slice | None
    value: slice
    dtype: str
    is_legacy: bool


@dataclass(frozen=True, slots=True)
class EventLayout:
    """The fields of an event; a wall time or step that is absent is 0."""

    wall_time: slice | None
    step: slice | None
    values: tuple[ValueLayout, ...]


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    kind: int
    start: int  # of the value, after key and length
    end: int
    varint: int

    @property
    def span(self) -> slice:
        return slice(self.start, self.end)


def shift_layout(layout: EventLayout, by: int) -> EventLayout:
    """The layout of an event that stands so many bytes further on."""
    return EventLayout(
        _shift_span(layout.wall_time, by),
        _shift_span(layout.step, by),
        tuple(
            ValueLayout(
                _shift_span(each.tag, by),
                _shift_span(each.metadata, by),
                _shift_span(each.value, by),
                each.dtype,
                each.is_legacy,
            )
            for each in layout.values
        ),
    )


class _NoLayout(Exception):
    """The bytes are something else than a plain event of scalars; not an error."""


def parse_layout(event: bytes) -> EventLayout | None:
    """The layout of a serialized event of scalars, or None when it is anything else."""
    try:
        return _parse_event(event)
    except (_NoLayout, IndexError, MalformedVarint):
        return None


def _parse_event(event: bytes) -> EventLayout:
    fields = _parse_message(event, 0, len(event), {1: FIXED64, 2: VARINT, 5: LENGTH_DELIMITED})
    if 5 not in fields:
        raise _NoLayout
    summary = fields[5]
    values = [
        _parse_value(event, field)
        for field in _fields(event, summary.start, summary.end)
        if _is_value(field)
    ]
    return EventLayout(_span(fields, 1), _span(fields, 2), tuple(values))


def _is_value(field: _Field) -> bool:
    if (field.number, field.kind) != (1, LENGTH_DELIMITED):
        raise _NoLayout
    return True


def _parse_value(event: bytes, value: _Field) -> ValueLayout:
    fields = _parse_message(
        event,
        value.start,
        value.end,
        {1: LENGTH_DELIMITED, 2: FIXED32, 8: LENGTH_DELIMITED, 9: LENGTH_DELIMITED},
    )
    if 1 not in fields or (2 in fields) == (8 in fields):
        raise _NoLayout
    if 2 in fields:
        return ValueLayout(fields[1].span, _span(fields, 9), fields[2].span, "<f4", is_legacy=True)
    span, dtype = _parse_tensor(event, fields[8])
    return ValueLayout(fields[1].span, _span(fields, 9), span, dtype, is_legacy=False)


def _parse_tensor(event: bytes, tensor: _Field) -> tuple[slice, str]:
    """Where the single element of a tensor lies, and its type; in `tensor_content`, `float_val` or `double_val`."""
    fields = {field.number: field for field in _fields(event, tensor.start, tensor.end)}
    if len(fields) != sum(1 for _ in _fields(event, tensor.start, tensor.end)):
        raise _NoLayout
    if 2 in fields:
        _check_single_element(event, fields.pop(2))
    data_type = fields.pop(1, None)
    if data_type is None or data_type.kind != VARINT or len(fields) != 1:
        raise _NoLayout
    (number, field), *_ = fields.items()
    return field.span, _element_type(data_type.varint, number, field)


def _element_type(data_type: int, number: int, field: _Field) -> str:
    size = field.end - field.start
    if number == 4 and field.kind == LENGTH_DELIMITED and size and data_type in _CONTENT_TYPES:
        dtype = _CONTENT_TYPES[data_type]
        if size == int(dtype[-1]):
            return dtype
    elif (number, data_type, size) == (5, 1, 4) and field.kind in (LENGTH_DELIMITED, FIXED32):
        return "<f4"
    elif (number, data_type, size) == (6, 2, 8) and field.kind in (LENGTH_DELIMITED, FIXED64):
        return "<f8"
    raise _NoLayout


def _check_single_element(event: bytes, shape: _Field) -> None:
    if shape.kind != LENGTH_DELIMITED:
        raise _NoLayout
    for dim in _fields(event, shape.start, shape.end):
        if (dim.number, dim.kind) != (2, LENGTH_DELIMITED):
            raise _NoLayout
        if [
            (size.number, size.kind, size.varint) for size in _fields(event, dim.start, dim.end)
        ] != [(1, VARINT, 1)]:
            raise _NoLayout


@overload
def _shift_span(span: slice, by: int) -> slice: ...
@overload
def _shift_span(span: slice | None, by: int) -> slice | None: ...
def _shift_span(span: slice | None, by: int) -> slice | None:
    return None if span is None else slice(span.start + by, span.stop + by)


def _span(fields: dict[int, _Field], number: int) -> slice | None:
    return fields[number].span if number in fields else None


def _parse_message(event: bytes, start: int, end: int, kinds: dict[int, int]) -> dict[int, _Field]:
    """The fields of a message that may have these, once each, of these wire types; no layout for any other."""
    fields: dict[int, _Field] = {}
    for field in _fields(event, start, end):
        if field.number in fields or kinds.get(field.number) != field.kind:
            raise _NoLayout
        fields[field.number] = field
    return fields


def _fields(event: bytes, start: int, end: int) -> Iterator[_Field]:
    position = start
    while position < end:
        key = event[position]
        if key >= CONTINUATION_BIT:  # a field number over 15: none of ours
            raise _NoLayout
        field = _parse_field_at(event, position + 1, key >> WIRE_TYPE_BITS, key & WIRE_TYPE_MASK)
        if field.end > end:
            raise _NoLayout
        yield field
        position = field.end


def _parse_field_at(event: bytes, position: int, number: int, kind: int) -> _Field:
    if kind == FIXED64:
        return _Field(number, kind, position, position + 8, 0)
    if kind == FIXED32:
        return _Field(number, kind, position, position + 4, 0)
    if kind not in (VARINT, LENGTH_DELIMITED):
        raise _NoLayout
    value, after = decode_varint(event, position)
    if kind == VARINT:
        return _Field(number, kind, position, after, value)
    if after - position > SIZE_BYTES_MAX:
        raise _NoLayout
    return _Field(number, kind, after, after + value, 0)
