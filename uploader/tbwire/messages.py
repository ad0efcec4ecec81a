"""Parse protobuf messages, with the same result in all versions of the library."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

_Message = TypeVar("_Message", bound=Message)


def parse(kind: type[_Message], content: bytes) -> _Message:
    """Return the message in these bytes.

    `FromString` of versions before 4.21 only warns about the end of a group that has no start, and
    ignores what follows.

    Raises:
        DecodeError: The bytes are no such message.
        UnicodeDecodeError: The same, from some versions, for a string that is not UTF-8.
    """
    message = kind()
    if message.MergeFromString(content) != len(content):
        raise DecodeError("the end of a group without a start")
    return message
