"""Reduce a long record to its skeleton: small messages that protobuf can parse.

The record's fields are read where they are in the file. A field that becomes a blob is replaced by
a placeholder. Texts and metadata are truncated just above the limits that will refuse them. Any
other field that is too large to be sent is emptied, and the skeleton is then not `is_complete`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tbupload.events.decode.tensor_protos import FLOAT_FIELDS
from tbupload.events.large_records.field_placeholders import FieldPlaceholders
from tbupload.events.large_records.field_reader import (
    FieldReader,
    FileMessageField,
    MalformedMessage,
)
from tbupload.limits import SKELETON_BYTES_MAX, ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire.wire_format import LENGTH_DELIMITED, START_GROUP, encode_field

_FIELD_BYTES_MIN: Final = 64
"""Bytes counted for even the shortest field: about its memory when it is parsed."""

_CHARACTER_BYTES_MAX: Final = 4
"""Bytes of a character in UTF-8 (RFC 3629)."""

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
"""Bytes fields that are replaced by a placeholder."""

_FLOAT_FIELDS: Final = {
    pb.TensorProto.DESCRIPTOR.fields_by_name[name].full_name: width
    for name, width in FLOAT_FIELDS.items()
}
"""A placeholder is a whole number of them, too: protobuf parses it as numbers."""

_METADATA: Final = frozenset(
    {pb.SummaryMetadata.DESCRIPTOR.full_name, pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}
)
_PLUGIN_CONTENT: Final = f"{pb.SummaryMetadata.PluginData.DESCRIPTOR.full_name}.content"
_KEPT_BYTES_MAX: Final = 4 * SKELETON_BYTES_MAX

# The stubs describe only one of protobuf's two runtimes; `Descriptor` is what both have in common.
_EVENT: Final = cast("Descriptor", pb.Event.DESCRIPTOR)
_SUMMARY_VALUE: Final = cast("Descriptor", pb.Summary.Value.DESCRIPTOR)
_WHAT_FIELDS: Final = frozenset(field.number for field in _EVENT.oneofs_by_name["what"].fields)
_SUMMARY: Final = pb.Event.SUMMARY_FIELD_NUMBER
_VALUE: Final = pb.Summary.VALUE_FIELD_NUMBER


@dataclass(frozen=True)
class MessageSkeleton:
    """A serialized message without its large parts.

    It is complete unless a field was emptied without a placeholder.
    """

    message: bytes
    is_complete: bool


@dataclass(frozen=True)
class EventSkeleton:
    """An event without the values of its summary.

    Attributes:
        message: The serialized event.
        summaries: The byte ranges in the file of its summaries; protobuf merges them into one.
        superseded: The byte ranges of summaries that a later field of the same oneof replaces.
    """

    message: bytes
    summaries: list[range]
    superseded: list[range]


class SkeletonBuilder:
    """Builds the skeletons of messages in a file; small fields are copied unchanged."""

    def __init__(self, file: BinaryIO, placeholders: FieldPlaceholders, limits: ReadLimits) -> None:
        self._reader = FieldReader(file)
        self._placeholders = placeholders
        self._field_bytes_max = limits.skeleton_field_bytes_max
        chars_max = max(limits.name_chars_max, limits.logged_content_type_chars_max)
        self._text_bytes_max = max(limits.metadata_bytes_max, _CHARACTER_BYTES_MAX * chars_max) + 8
        self._kept_bytes = 0
        self._is_complete = True

    def event(self, start: int, end: int) -> EventSkeleton:
        """Return the skeleton of the event in bytes [start, end) of the file.

        Raises MalformedMessage, FileReplaced when the file ends early, and OSError.
        """
        self._reader.end = end
        self._begin()
        message, summaries, superseded = bytearray(), list[range](), list[range]()

        for field in self._reader.fields(start, end):
            if field.wire_type == LENGTH_DELIMITED and field.number == _SUMMARY:
                message += encode_field(field.number, b"")
                summaries.append(range(field.content, field.end))
                continue
            if field.wire_type == LENGTH_DELIMITED and field.number in _WHAT_FIELDS:
                # The last field of a oneof counts; only equal message fields are merged.
                superseded += summaries
                summaries = []
            message += self._reduce_field(_EVENT, field)
            self._check_kept()
        return EventSkeleton(bytes(message), summaries, superseded)

    def values(self, summaries: list[range]) -> Iterator[MessageSkeleton]:
        """Yield the skeleton of each value of the summaries in these byte ranges of the file.

        Raises as `event` does.
        """
        for summary in summaries:
            for field in self._reader.fields(summary.start, summary.stop):
                if (field.number, field.wire_type) == (_VALUE, LENGTH_DELIMITED):
                    yield self._value(field)

    def _begin(self) -> None:
        self._kept_bytes = 0
        self._is_complete = True

    def _value(self, value: FileMessageField) -> MessageSkeleton:
        self._begin()
        if value.size <= self._field_bytes_max:
            return MessageSkeleton(self._reader.read(value.content, value.end), is_complete=True)
        message = bytearray()
        for field in self._reader.fields(value.content, value.end):
            message += self._reduce_field(_SUMMARY_VALUE, field)
            self._check_kept()
        return MessageSkeleton(bytes(message), self._is_complete)

    def _check_kept(self) -> None:
        """Raise MalformedMessage for a message of very many fields that should occur once each."""
        if self._kept_bytes > _KEPT_BYTES_MAX:
            raise MalformedMessage

    def _reduce_field(self, message: Descriptor, field: FileMessageField) -> bytes:
        """Return the skeleton of one field of this message, with its key; empty to drop it."""
        if field.size <= self._field_bytes_max or field.wire_type not in (
            LENGTH_DELIMITED,
            START_GROUP,
        ):
            self._kept_bytes += max(field.end - field.start, _FIELD_BYTES_MIN)
            return self._reader.read(field.start, field.end)
        if field.wire_type != LENGTH_DELIMITED:
            return b""  # a long group: an unknown field

        known = message.fields_by_number.get(field.number)
        if known is not None:
            return encode_field(field.number, self._content(known, field))
        # Unknown fields of metadata are sent with it, so they count against its limit.
        is_sent = message.full_name in _METADATA
        return encode_field(field.number, self._truncate(field)) if is_sent else b""

    def _content(self, known: FieldDescriptor, field: FileMessageField) -> bytes:
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

    def _reduce_message(self, message: Descriptor, field: FileMessageField) -> bytes:
        content = bytearray()
        for inner in self._reader.fields(field.content, field.end):
            if self._kept_bytes > SKELETON_BYTES_MAX:  # for example, one field per element
                self._is_complete = False
                break
            content += self._reduce_field(message, inner)
        return bytes(content)

    def _truncate(self, field: FileMessageField) -> bytes:
        """Return the beginning of a text or of metadata, without a cut character at its end.

        A truncated text is still longer than its limit, so that the value will be refused.
        """
        if field.size <= self._text_bytes_max:
            return self._reader.read(field.content, field.end)
        content = self._reader.read(field.content, field.content + self._text_bytes_max)
        starts = (
            index
            for index in range(1, _CHARACTER_BYTES_MAX + 1)
            if content[-index] & 0xC0 != 0x80  # noqa: PLR2004 - UTF-8's continuation bytes are 10xxxxxx
        )
        # A cut character would make protobuf refuse the text, and with it the complete event:
        # strings must be UTF-8 (https://protobuf.dev/programming-guides/proto3/#scalar).
        return content[: -next(starts, 1)]

    def _read_or_drop(self, field: FileMessageField) -> bytes:
        if self._kept_bytes + field.size > SKELETON_BYTES_MAX:
            self._is_complete = False
            return b""
        self._kept_bytes += field.size
        return self._reader.read(field.content, field.end)
