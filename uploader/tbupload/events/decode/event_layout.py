"""Parse where the fields of one serialized event are, if it contains nothing but scalars.

Only the forms that writers of scalars produce are recognised; any other event has no layout, and
protobuf reads it. Conversely, an event with a layout is valid protobuf, except that the UTF-8 of
its tags and the inside of its metadata are not checked.

Field numbers: `tensorboard/compat/proto/event.proto` (Event), `summary.proto` (Summary, Value),
`tensor.proto` (TensorProto), `tensor_shape.proto` (TensorShapeProto), of TensorBoard 2.21.
"""
# ruff: noqa: PLR2004 - field numbers are explained where the fields are parsed

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, overload

from tbwire import tensors
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
    number: tensors.numpy_dtype(number).str
    for number, name in tensors.NAMES.items()
    if name.startswith(("float", "int", "uint"))
}
"""Data types with real elements in `tensor_content` that numpy can read: not bfloat16, bool."""


@dataclass(frozen=True)
class ValueLayout:
    """One scalar of an event; spans are byte ranges of the event.

    Attributes:
        tag: The tag's text.
        metadata: The serialized SummaryMetadata, if the value has one.
        value: The number.
        dtype: The number's type, as numpy names it.
        is_legacy: The number is a `simple_value` and not a tensor.
    """

    tag: slice
    metadata: slice | None
    value: slice
    dtype: str
    is_legacy: bool


@dataclass(frozen=True)
class EventLayout:
    """The fields of an event; an absent wall time or step is 0, as in proto3."""

    wall_time: slice | None
    step: slice | None
    values: tuple[ValueLayout, ...]


@dataclass(frozen=True)
class _Field:
    number: int
    wire_type: int
    start: int  # of the value, after key and length
    end: int
    varint: int

    @property
    def span(self) -> slice:
        return slice(self.start, self.end)


def shift_layout(layout: EventLayout, by: int) -> EventLayout:
    """Return the layout of the same event when it starts at byte `by` of a row."""
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
    """The bytes are something else than an event of plain scalars. Not an error."""


def parse_layout(event: bytes) -> EventLayout | None:
    """Return the layout of a serialized event of scalars; None when it is anything else."""
    try:
        return _parse_event(event)
    except (_NoLayout, IndexError, MalformedVarint):
        return None


def _parse_event(event: bytes) -> EventLayout:
    """Parse Event {wall_time = 1, step = 2, summary = 5 {value = 1}}."""
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
    if (field.number, field.wire_type) != (1, LENGTH_DELIMITED):
        raise _NoLayout
    return True


def _parse_value(event: bytes, value: _Field) -> ValueLayout:
    """Parse Summary.Value {tag = 1, simple_value = 2 or tensor = 8, metadata = 9}."""
    fields = _parse_message(
        event,
        value.start,
        value.end,
        {1: LENGTH_DELIMITED, 2: FIXED32, 8: LENGTH_DELIMITED, 9: LENGTH_DELIMITED},
    )
    # Exactly one of `simple_value` and `tensor`: they are a oneof, and of two the last would count.
    if 1 not in fields or (2 in fields) == (8 in fields):
        raise _NoLayout
    if 2 in fields:
        return ValueLayout(fields[1].span, _span(fields, 9), fields[2].span, "<f4", is_legacy=True)
    span, dtype = _parse_tensor(event, fields[8])
    return ValueLayout(fields[1].span, _span(fields, 9), span, dtype, is_legacy=False)


def _parse_tensor(event: bytes, tensor: _Field) -> tuple[slice, str]:
    """Parse TensorProto {dtype = 1, tensor_shape = 2, and one of 4, 5, 6}.

    Returns where the only element is, and its type: in `tensor_content` (4) as TensorFlow writes
    it, in `float_val` (5) as PyTorch does, or in `double_val` (6).
    """
    fields = {field.number: field for field in _fields(event, tensor.start, tensor.end)}
    if len(fields) != sum(1 for _ in _fields(event, tensor.start, tensor.end)):
        raise _NoLayout
    if 2 in fields:
        _check_single_element(event, fields.pop(2))
    data_type = fields.pop(1, None)
    if data_type is None or data_type.wire_type != VARINT or len(fields) != 1:
        raise _NoLayout
    (number, field), *_ = fields.items()
    return field.span, _element_type(data_type.varint, number, field)


def _element_type(data_type: int, number: int, field: _Field) -> str:
    size = field.end - field.start
    if number == 4 and field.wire_type == LENGTH_DELIMITED and data_type in _CONTENT_TYPES:
        dtype = _CONTENT_TYPES[data_type]
        if size == int(dtype[-1]):
            return dtype

    # A repeated number may be packed (length-delimited) or not: parsers must accept both forms.
    elif (number, data_type, size) == (5, tensors.FLOAT, 4) and field.wire_type in (
        LENGTH_DELIMITED,
        FIXED32,
    ):
        return "<f4"
    elif (number, data_type, size) == (6, tensors.DOUBLE, 8) and field.wire_type in (
        LENGTH_DELIMITED,
        FIXED64,
    ):
        return "<f8"
    raise _NoLayout


def _check_single_element(event: bytes, shape: _Field) -> None:
    """Check TensorShapeProto {dim = 2 {size = 1}}: no dimensions, or only dimensions of 1."""
    if shape.wire_type != LENGTH_DELIMITED:
        raise _NoLayout
    for dim in _fields(event, shape.start, shape.end):
        if (dim.number, dim.wire_type) != (2, LENGTH_DELIMITED):
            raise _NoLayout
        if [
            (size.number, size.wire_type, size.varint)
            for size in _fields(event, dim.start, dim.end)
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


def _parse_message(
    event: bytes, start: int, end: int, wire_types: dict[int, int]
) -> dict[int, _Field]:
    """Return a message's fields by number; each is in `wire_types`, with that type, at most once.

    A field that occurs twice would be valid protobuf (the last one counts), but no writer does it.
    """
    fields: dict[int, _Field] = {}
    for field in _fields(event, start, end):
        if field.number in fields or wire_types.get(field.number) != field.wire_type:
            raise _NoLayout
        fields[field.number] = field
    return fields


def _fields(event: bytes, start: int, end: int) -> Iterator[_Field]:
    position = start
    while position < end:
        key = event[position]
        # https://protobuf.dev/programming-guides/encoding/#structure
        if key >= CONTINUATION_BIT:  # a field number over 15: none of those above
            raise _NoLayout
        field = _parse_field_at(event, position + 1, key >> WIRE_TYPE_BITS, key & WIRE_TYPE_MASK)
        if field.end > end:
            raise _NoLayout
        yield field
        position = field.end


def _parse_field_at(event: bytes, position: int, number: int, wire_type: int) -> _Field:
    if wire_type == FIXED64:
        return _Field(number, wire_type, position, position + 8, 0)
    if wire_type == FIXED32:
        return _Field(number, wire_type, position, position + 4, 0)
    if wire_type not in (VARINT, LENGTH_DELIMITED):
        raise _NoLayout
    value, after = decode_varint(event, position)
    if wire_type == VARINT:
        return _Field(number, wire_type, position, after, value)
    if after - position > SIZE_BYTES_MAX:
        raise _NoLayout
    return _Field(number, wire_type, after, after + value, 0)
