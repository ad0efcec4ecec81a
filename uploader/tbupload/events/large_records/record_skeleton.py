"""A long record as what is left of it when its large parts stay in the file: small messages that protobuf can read.

The record is walked field by field where it lies. Bytes that become blobs are cut out (a placeholder stands for them);
texts and metadata are cut short just over the limits they will be refused by; whatever else is too large to be sent
is emptied, and the outline then says that it `is_whole` no longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tbupload.errors import FileReplaced
from tbupload.events.large_records.field_placeholders import Cuts
from tbupload.limits import OUTLINE_BYTES_MAX, ReadLimits
from tbwire import tensorboard_pb2 as pb

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_GROUP_DEPTH_MAX: Final = 100
_NUMBER_MAX: Final = 2**29 - 1  # of a field
_VARINT_BYTES_MAX: Final = 10
_SIZE_BYTES_MAX: Final = 5  # of a key or a length: protobuf takes no longer ones
_MORE: Final = 0x80
_FIELD_BYTES_MIN: Final = 64  # what even the shortest takes in memory when it has been parsed
_WINDOW_BYTES: Final = 64 << 10
_CHARACTER_BYTES_MAX: Final = 4

_BLOB_FIELDS: Final = frozenset(
    message.DESCRIPTOR.fields_by_name[name].full_name
    for message, name in (
        (pb.Event, "graph_def"),
        (pb.TaggedRunMetadata, "run_metadata"),
        (pb.Summary.Image, "encoded_image_string"),
        (pb.Summary.Audio, "encoded_audio_string"),
        (pb.TensorProto, "string_val"),
        (pb.TensorProto, "tensor_content"),
    )
)

_FLOAT_FIELDS: Final = {
    pb.TensorProto.DESCRIPTOR.fields_by_name[name].full_name: width
    for name, width in (("float_val", 4), ("double_val", 8), ("scomplex_val", 4), ("dcomplex_val", 8))
}
"""Packed numbers that stand in the file as in the tensor's data, and the bytes of each: a placeholder is some, too."""

_METADATA: Final = frozenset(
    {pb.SummaryMetadata.DESCRIPTOR.full_name, pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}
)
_PLUGIN_CONTENT: Final = f"{pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}.content"
_TAKEN_BYTES_MAX: Final = 4 * OUTLINE_BYTES_MAX
# What the two kinds of runtime have in common is in the one's stubs.
_EVENT: Final = cast("Descriptor", pb.Event.DESCRIPTOR)
_SUMMARY_VALUE: Final = cast("Descriptor", pb.Summary.Value.DESCRIPTOR)
_WHAT: Final = frozenset(field.number for field in _EVENT.oneofs_by_name["what"].fields)
_SUMMARY: Final = pb.Event.SUMMARY_FIELD_NUMBER
_VALUE: Final = pb.Summary.VALUE_FIELD_NUMBER


class Malformed(Exception):
    """The bytes are no protobuf message; not an error, as it never leaves the reader."""


@dataclass(frozen=True, slots=True)
class Outline:
    """A serialized message without its large parts. `is_whole` unless something was emptied that nothing stands for."""

    message: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class EventOutline:
    """An event without the values of its summary, and the byte ranges of the file where those are.

    `superseded` are those of summaries that something else later in the event takes the place of.
    """

    message: bytes
    summaries: list[range]
    superseded: list[range]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message in a file: byte offsets of its key, its content and its end."""

    number: int
    kind: int
    start: int
    content: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return self.end - self.content


class Outliner:
    """Makes outlines of the messages in a file; fields up to a small size are always taken as they are."""

    def __init__(self, file: BinaryIO, cuts: Cuts, limits: ReadLimits) -> None:
        self._window = _Window(file)
        self._cuts = cuts
        self._field_bytes_max = limits.outline_field_bytes_max
        chars_max = max(limits.name_chars_max, limits.logged_content_type_chars_max)
        self._text_bytes_max = max(limits.metadata_bytes_max, _CHARACTER_BYTES_MAX * chars_max) + 8
        self._taken_bytes = 0
        self._is_whole = True

    def event(self, start: int, end: int) -> EventOutline:
        """The outline of the event in bytes [start, end) of the file. Raises Malformed, and FileReplaced."""
        self._window.end = end
        self._begin()
        message, summaries, superseded = bytearray(), list[range](), list[range]()
        for field in self._fields(start, end):
            if field.kind == _LENGTH and field.number == _SUMMARY:
                message += _encoded(field, b"")
                summaries.append(range(field.content, field.end))
                continue
            if field.kind == _LENGTH and field.number in _WHAT:
                superseded += summaries  # the last one counts; only summaries are joined to what came before
                summaries = []
            message += self._left_of(_EVENT, field)
            self._check_taken()
        return EventOutline(bytes(message), summaries, superseded)

    def values(self, summaries: list[range]) -> Iterator[Outline]:
        """The outline of each value of the summaries in these byte ranges of the file. Raises as `event` does."""
        for summary in summaries:
            for field in self._fields(summary.start, summary.stop):
                if (field.number, field.kind) == (_VALUE, _LENGTH):
                    yield self._value(field)

    def _begin(self) -> None:
        self._taken_bytes = 0
        self._is_whole = True

    def _value(self, value: _Field) -> Outline:
        self._begin()
        if value.size <= self._field_bytes_max:
            return Outline(self._window.read(value.content, value.end), is_whole=True)
        message = bytearray()
        for field in self._fields(value.content, value.end):
            message += self._left_of(_SUMMARY_VALUE, field)
            self._check_taken()
        return Outline(bytes(message), self._is_whole)

    def _check_taken(self) -> None:
        """Raises Malformed when a message is made of very many fields that should be there once each."""
        if self._taken_bytes > _TAKEN_BYTES_MAX:
            raise Malformed

    def _left_of(self, message: Descriptor, field: _Field) -> bytes:
        """What is left of one field of this message: its key and content, or nothing."""
        if field.size <= self._field_bytes_max or field.kind not in (_LENGTH, _GROUP):
            self._taken_bytes += max(field.end - field.start, _FIELD_BYTES_MIN)
            return self._window.read(field.start, field.end)
        if field.kind != _LENGTH:
            return b""  # a group; nothing else is as long
        known = message.fields_by_number.get(field.number)
        if known is not None:
            return _encoded(field, self._content(known, field))
        return _encoded(field, self._cut_short(field)) if message.full_name in _METADATA else b""

    def _content(self, known: FieldDescriptor, field: _Field) -> bytes:
        if known.message_type is not None:
            return self._inside(known.message_type, field)
        if known.full_name in _BLOB_FIELDS:
            return self._cuts.cut(field.content, field.size)
        if known.full_name in _FLOAT_FIELDS:
            if field.size % _FLOAT_FIELDS[known.full_name]:
                raise Malformed
            return self._cuts.cut(field.content, field.size)
        if known.type == FieldDescriptor.TYPE_STRING or known.full_name == _PLUGIN_CONTENT:
            return self._cut_short(field)
        return self._all_or_nothing(field)

    def _inside(self, message: Descriptor, field: _Field) -> bytes:
        content = bytearray()
        for inner in self._fields(field.content, field.end):
            if self._taken_bytes > OUTLINE_BYTES_MAX:  # millions of elements, a field each
                self._is_whole = False
                break
            content += self._left_of(message, inner)
        return bytes(content)

    def _cut_short(self, field: _Field) -> bytes:
        """The beginning of a text, or of metadata: all of it, or more than its limit allows; whole characters."""
        if field.size <= self._text_bytes_max:
            return self._window.read(field.content, field.end)
        content = self._window.read(field.content, field.content + self._text_bytes_max)
        starts = (index for index in range(1, _CHARACTER_BYTES_MAX + 1) if content[-index] & 0xC0 != _MORE)
        return content[: -next(starts, 1)]

    def _all_or_nothing(self, field: _Field) -> bytes:
        if self._taken_bytes + field.size > OUTLINE_BYTES_MAX:
            self._is_whole = False
            return b""
        self._taken_bytes += field.size
        return self._window.read(field.content, field.end)

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        position = start
        while position < end:
            field = self._field(position)
            if field.end > end:
                raise Malformed
            yield field
            position = field.end

    def _field(self, start: int) -> _Field:
        number, kind, content = self._key(start)
        if kind == _VARINT:
            return _Field(number, kind, start, content, self._window.varint(content)[1])
        if kind == _LENGTH:
            size, content = self._window.varint(content, _SIZE_BYTES_MAX)
            return _Field(number, kind, start, content, content + size)
        if kind == _GROUP:
            return _Field(number, kind, start, content, self._group_end(number, content))
        if kind not in (_FIXED64, _FIXED32):
            raise Malformed
        return _Field(number, kind, start, content, content + (8 if kind == _FIXED64 else 4))

    def _key(self, start: int) -> tuple[int, int, int]:
        """The number and wire type of the field at `start`, and where its content begins."""
        key, content = self._window.varint(start, _SIZE_BYTES_MAX)
        if not 0 < key >> 3 <= _NUMBER_MAX:
            raise Malformed
        return key >> 3, key & 7, content

    def _group_end(self, number: int, position: int) -> int:
        """Where a group ends: no message of TensorBoard's has any, but unknown fields may be of any kind."""
        groups = [number]
        while groups:
            number, kind, content = self._key(position)
            if kind == _GROUP and len(groups) < _GROUP_DEPTH_MAX:
                groups.append(number)
                position = content
            elif kind not in (_GROUP, _GROUP_END):
                position = self._field(position).end
            elif kind == _GROUP_END and groups.pop() == number:
                position = content
            else:
                raise Malformed
        return position


class _Window:
    """Bytes of a file by their offset up to `end`, read through a small buffer."""

    def __init__(self, file: BinaryIO) -> None:
        self.end = 0
        self._file = file
        self._base = 0
        self._buffer = b""

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end). Raises Malformed past the window's end; FileReplaced when the file ends before."""
        if end > self.end:
            raise Malformed
        if not self._base <= start <= end <= self._base + len(self._buffer):
            self._file.seek(start)
            self._base, self._buffer = start, self._file.read(max(end - start, _WINDOW_BYTES))
            if end > start + len(self._buffer):
                raise FileReplaced(Path(self._file.name))
        content = self._buffer[start - self._base : end - self._base]
        if len(self._buffer) > _WINDOW_BYTES:
            self._base, self._buffer = 0, b""  # not worth keeping in memory
        return content

    def varint(self, start: int, bytes_max: int = _VARINT_BYTES_MAX) -> tuple[int, int]:
        """The number at `start`, and where it ends. Raises Malformed when it is none, or takes more bytes."""
        value, position = 0, start
        for shift in range(0, 7 * bytes_max, 7):
            byte = self._byte(position)
            value |= (byte & ~_MORE) << shift
            position += 1
            if byte < _MORE:
                return value, position
        raise Malformed

    def _byte(self, position: int) -> int:
        index = position - self._base
        if 0 <= index < len(self._buffer) and position < self.end:
            return self._buffer[index]
        return self.read(position, position + 1)[0]


def _encoded(field: _Field, content: bytes) -> bytes:
    return _varint(field.number << 3 | field.kind) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _MORE:
        encoded.append(number & ~_MORE & 0xFF | _MORE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
