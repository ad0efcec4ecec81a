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
from tbupload.events.large_records.field_placeholders import FieldPlaceholders
from tbupload.limits import SKELETON_BYTES_MAX, ReadLimits
from tbwire import tensorboard_pb2 as pb

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_GROUP_DEPTH_MAX: Final = 100
_NUMBER_MAX: Final = 2**29 - 1  # of a field
_VARINT_BYTES_MAX: Final = 10
_SIZE_BYTES_MAX: Final = 5  # of a key or a length: protobuf takes no longer ones
_CONTINUATION_BIT: Final = 0x80
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
    for name, width in (
        ("float_val", 4),
        ("double_val", 8),
        ("scomplex_val", 4),
        ("dcomplex_val", 8),
    )
}
"""Packed numbers that stand in the file as in the tensor's data, and the bytes of each: a placeholder is some, too."""

_METADATA: Final = frozenset(
    {pb.SummaryMetadata.DESCRIPTOR.full_name, pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}
)
_PLUGIN_CONTENT: Final = f"{pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}.content"
_KEPT_BYTES_MAX: Final = 4 * SKELETON_BYTES_MAX
# What the two kinds of runtime have in common is in the one's stubs.
_EVENT: Final = cast("Descriptor", pb.Event.DESCRIPTOR)
_SUMMARY_VALUE: Final = cast("Descriptor", pb.Summary.Value.DESCRIPTOR)
_WHAT_FIELDS: Final = frozenset(field.number for field in _EVENT.oneofs_by_name["what"].fields)
_SUMMARY: Final = pb.Event.SUMMARY_FIELD_NUMBER
_VALUE: Final = pb.Summary.VALUE_FIELD_NUMBER


class MalformedMessage(Exception):
    """The bytes are no protobuf message; not an error, as it never leaves the reader."""


@dataclass(frozen=True, slots=True)
class MessageSkeleton:
    """A serialized message without its large parts. `is_whole` unless something was emptied that nothing stands for."""

    message: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class EventSkeleton:
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


class SkeletonBuilder:
    """Makes outlines of the messages in a file; fields up to a small size are always taken as they are."""

    def __init__(self, file: BinaryIO, placeholders: FieldPlaceholders, limits: ReadLimits) -> None:
        self._window = _FileWindow(file)
        self._placeholders = placeholders
        self._field_bytes_max = limits.skeleton_field_bytes_max
        chars_max = max(limits.name_chars_max, limits.logged_content_type_chars_max)
        self._text_bytes_max = max(limits.metadata_bytes_max, _CHARACTER_BYTES_MAX * chars_max) + 8
        self._kept_bytes = 0
        self._is_whole = True

    def event(self, start: int, end: int) -> EventSkeleton:
        """The outline of the event in bytes [start, end) of the file. Raises Malformed, and FileReplaced."""
        self._window.end = end
        self._begin()
        message, summaries, superseded = bytearray(), list[range](), list[range]()
        for field in self._fields(start, end):
            if field.kind == _LENGTH and field.number == _SUMMARY:
                message += _encode_field(field, b"")
                summaries.append(range(field.content, field.end))
                continue
            if field.kind == _LENGTH and field.number in _WHAT_FIELDS:
                superseded += (
                    summaries  # the last one counts; only summaries are joined to what came before
                )
                summaries = []
            message += self._reduce_field(_EVENT, field)
            self._check_kept()
        return EventSkeleton(bytes(message), summaries, superseded)

    def values(self, summaries: list[range]) -> Iterator[MessageSkeleton]:
        """The outline of each value of the summaries in these byte ranges of the file. Raises as `event` does."""
        for summary in summaries:
            for field in self._fields(summary.start, summary.stop):
                if (field.number, field.kind) == (_VALUE, _LENGTH):
                    yield self._value(field)

    def _begin(self) -> None:
        self._kept_bytes = 0
        self._is_whole = True

    def _value(self, value: _Field) -> MessageSkeleton:
        self._begin()
        if value.size <= self._field_bytes_max:
            return MessageSkeleton(self._window.read(value.content, value.end), is_whole=True)
        message = bytearray()
        for field in self._fields(value.content, value.end):
            message += self._reduce_field(_SUMMARY_VALUE, field)
            self._check_kept()
        return MessageSkeleton(bytes(message), self._is_whole)

    def _check_kept(self) -> None:
        """Raises Malformed when a message is made of very many fields that should be there once each."""
        if self._kept_bytes > _KEPT_BYTES_MAX:
            raise MalformedMessage

    def _reduce_field(self, message: Descriptor, field: _Field) -> bytes:
        """What is left of one field of this message: its key and content, or nothing."""
        if field.size <= self._field_bytes_max or field.kind not in (_LENGTH, _GROUP):
            self._kept_bytes += max(field.end - field.start, _FIELD_BYTES_MIN)
            return self._window.read(field.start, field.end)
        if field.kind != _LENGTH:
            return b""  # a group; nothing else is as long
        known = message.fields_by_number.get(field.number)
        if known is not None:
            return _encode_field(field, self._content(known, field))
        return (
            _encode_field(field, self._truncate(field)) if message.full_name in _METADATA else b""
        )

    def _content(self, known: FieldDescriptor, field: _Field) -> bytes:
        if known.message_type is not None:
            return self._reduce_message(known.message_type, field)
        if known.full_name in _BLOB_FIELDS:
            return self._placeholders.add(field.content, field.size)
        if known.full_name in _FLOAT_FIELDS:
            if field.size % _FLOAT_FIELDS[known.full_name]:
                raise MalformedMessage
            return self._placeholders.add(field.content, field.size)
        if known.type == FieldDescriptor.TYPE_STRING or known.full_name == _PLUGIN_CONTENT:
            return self._truncate(field)
        return self._read_or_drop(field)

    def _reduce_message(self, message: Descriptor, field: _Field) -> bytes:
        content = bytearray()
        for inner in self._fields(field.content, field.end):
            if self._kept_bytes > SKELETON_BYTES_MAX:  # millions of elements, a field each
                self._is_whole = False
                break
            content += self._reduce_field(message, inner)
        return bytes(content)

    def _truncate(self, field: _Field) -> bytes:
        """The beginning of a text, or of metadata: all of it, or more than its limit allows; whole characters."""
        if field.size <= self._text_bytes_max:
            return self._window.read(field.content, field.end)
        content = self._window.read(field.content, field.content + self._text_bytes_max)
        starts = (
            index
            for index in range(1, _CHARACTER_BYTES_MAX + 1)
            if content[-index] & 0xC0 != _CONTINUATION_BIT
        )
        return content[: -next(starts, 1)]

    def _read_or_drop(self, field: _Field) -> bytes:
        if self._kept_bytes + field.size > SKELETON_BYTES_MAX:
            self._is_whole = False
            return b""
        self._kept_bytes += field.size
        return self._window.read(field.content, field.end)

    def _fields(self, start: int, end: int) -> Iterator[_Field]:
        position = start
        while position < end:
            field = self._field(position)
            if field.end > end:
                raise MalformedMessage
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
            raise MalformedMessage
        return _Field(number, kind, start, content, content + (8 if kind == _FIXED64 else 4))

    def _key(self, start: int) -> tuple[int, int, int]:
        """The number and wire type of the field at `start`, and where its content begins."""
        key, content = self._window.varint(start, _SIZE_BYTES_MAX)
        if not 0 < key >> 3 <= _NUMBER_MAX:
            raise MalformedMessage
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
                raise MalformedMessage
        return position


class _FileWindow:
    """Bytes of a file by their offset up to `end`, read through a small buffer."""

    def __init__(self, file: BinaryIO) -> None:
        self.end = 0
        self._file = file
        self._base = 0
        self._buffer = b""

    def read(self, start: int, end: int) -> bytes:
        """The bytes [start, end). Raises Malformed past the window's end; FileReplaced when the file ends before."""
        if end > self.end:
            raise MalformedMessage
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
            value |= (byte & ~_CONTINUATION_BIT) << shift
            position += 1
            if byte < _CONTINUATION_BIT:
                return value, position
        raise MalformedMessage

    def _byte(self, position: int) -> int:
        index = position - self._base
        if 0 <= index < len(self._buffer) and position < self.end:
            return self._buffer[index]
        return self.read(position, position + 1)[0]


def _encode_field(field: _Field, content: bytes) -> bytes:
    return _encode_varint(field.number << 3 | field.kind) + _encode_varint(len(content)) + content


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _CONTINUATION_BIT:
        encoded.append(number & ~_CONTINUATION_BIT & 0xFF | _CONTINUATION_BIT)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
