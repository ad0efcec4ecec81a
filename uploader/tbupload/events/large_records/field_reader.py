"""Read the fields of protobuf messages in a file without loading the messages.

Source of the encoding: see `tbwire.wire_format`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tbupload.errors import FileReplaced
from tbwire.wire_format import (
    END_GROUP,
    FIELD_NUMBER_MAX,
    FIXED32,
    FIXED64,
    LENGTH_DELIMITED,
    SIZE_BYTES_MAX,
    START_GROUP,
    VARINT,
    VARINT_BYTES_MAX,
    WIRE_TYPE_BITS,
    WIRE_TYPE_MASK,
    MalformedVarint,
    decode_varint,
)

_GROUP_DEPTH_MAX: Final = 100
"""Nested groups; protobuf's parsers have the same default for messages and groups together."""

_WINDOW_BYTES: Final = 64 << 10


class MalformedMessage(Exception):
    """The bytes are not a protobuf message. Not an error: it never leaves the reader of records."""


@dataclass(frozen=True)
class FileMessageField:
    """A field of a message in a file: the file offsets of its key, its content and its end.

    `wire_type` is one of `tbwire.wire_format`. A group's content includes its end key.
    """

    number: int
    wire_type: int
    start: int
    content: int
    end: int

    @property
    def size(self) -> int:
        """Return the size of the content in bytes."""
        return self.end - self.content


class FieldReader:
    """Reads fields and bytes of one record in a file, through a window of 64 KiB.

    `end` is the file offset at which the record's payload ends; set it before reading.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.end = 0
        self._file = file
        self._base = 0
        self._buffer = b""

    def fields(self, start: int, end: int) -> Iterator[FileMessageField]:
        """Yield the fields of the message in bytes [start, end).

        Raises MalformedMessage, also when a field ends after `end`, and FileReplaced.
        """
        position = start
        while position < end:
            field = self._field(position)
            if field.end > end:
                raise MalformedMessage
            yield field
            position = field.end

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes [start, end).

        Raises MalformedMessage past the payload's end, FileReplaced when the file ends before.
        """
        if end > self.end:
            raise MalformedMessage

        if not self._base <= start <= end <= self._base + len(self._buffer):
            self._file.seek(start)
            self._base, self._buffer = start, self._file.read(max(end - start, _WINDOW_BYTES))
            if end > start + len(self._buffer):
                raise FileReplaced(Path(self._file.name))

        content = self._buffer[start - self._base : end - self._base]
        if len(self._buffer) > _WINDOW_BYTES:
            self._base, self._buffer = 0, b""  # a large field is read once: free its memory
        return content

    def _field(self, start: int) -> FileMessageField:
        number, wire_type, content = self._key(start)
        if wire_type == VARINT:
            end = self._varint(content)[1]
        elif wire_type == LENGTH_DELIMITED:
            size, content = self._varint(content, SIZE_BYTES_MAX)
            end = content + size
        elif wire_type == START_GROUP:
            end = self._group_end(number, content)
        elif wire_type in (FIXED64, FIXED32):
            end = content + (8 if wire_type == FIXED64 else 4)
        else:
            raise MalformedMessage
        return FileMessageField(number, wire_type, start, content, end)

    def _key(self, start: int) -> tuple[int, int, int]:
        """Return the number and wire type of the field at `start`, and where its content starts."""
        key, content = self._varint(start, SIZE_BYTES_MAX)
        if not 0 < key >> WIRE_TYPE_BITS <= FIELD_NUMBER_MAX:
            raise MalformedMessage
        return key >> WIRE_TYPE_BITS, key & WIRE_TYPE_MASK, content

    def _group_end(self, number: int, position: int) -> int:
        """Return where a group ends; its content starts at `position`.

        No message of TensorBoard has groups, but unknown fields may have any wire type.
        """
        groups = [number]
        while groups:
            number, wire_type, content = self._key(position)
            if wire_type == START_GROUP and len(groups) < _GROUP_DEPTH_MAX:
                groups.append(number)
                position = content
            elif wire_type not in (START_GROUP, END_GROUP):
                position = self._field(position).end
            elif wire_type == END_GROUP and groups.pop() == number:
                position = content
            else:
                raise MalformedMessage
        return position

    def _varint(self, start: int, bytes_max: int = VARINT_BYTES_MAX) -> tuple[int, int]:
        """Return the varint at `start`, and the offset after it."""
        if start >= self.end:
            raise MalformedMessage
        content = self.read(start, min(start + bytes_max, self.end))
        try:
            number, size = decode_varint(content, 0)  # IndexError also over `bytes_max`
        except (IndexError, MalformedVarint) as error:
            raise MalformedMessage from error
        return number, start + size
