"""Refuse messages with millions of fields before they are built: each empty one takes 2 bytes."""

from __future__ import annotations

import functools
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tbservice.errors import MalformedRequest, TooLarge
from tbservice.ingest.field_counts import (
    FIELD_BYTES_MIN,
    CountedFields,
    MalformedMessage,
    count_fields,
)

GRPC_MESSAGE_FIELDS_MAX: Final = 2_000_000
"""Fields in one message of a gRPC client: built, each empty message takes 64 bytes of memory."""


def check_count(message: bytes, kind: type[Message]) -> None:
    """Raise TooLarge if a message of this kind has more than `GRPC_MESSAGE_FIELDS_MAX` fields.

    Fields within messages that repeat nothing are not counted: they are as many as the messages.
    Raises MalformedRequest for some bytes that are no such message; others pass, and fail in
    decoding. Messages too short to exceed the limit are not read.
    """
    limit = GRPC_MESSAGE_FIELDS_MAX
    if len(message) <= FIELD_BYTES_MIN * limit:
        return
    name = kind.DESCRIPTOR.full_name
    try:
        count = count_fields(message, _find_counted(kind.DESCRIPTOR), limit)
    except MalformedMessage as error:
        raise MalformedRequest(f"the message is not a {name}: {error}") from error
    if count > limit:
        raise TooLarge(
            f"a message has at most {limit} fields (grpc_message_fields_max), "
            "counting those of lists; send fewer at a time"
        )


@functools.cache
def _find_counted(kind: Descriptor) -> CountedFields:
    """Return the fields that hold messages with repeated fields, at any depth.

    The messages must not contain themselves.
    """
    fields = ((each.number, each.message_type) for each in kind.fields if each.message_type)
    return CountedFields(
        {number: _find_counted(inside) for number, inside in fields if _repeats(inside)}
    )


def _repeats(kind: Descriptor) -> bool:
    return any(
        each.is_repeated or (each.message_type and _repeats(each.message_type))
        for each in kind.fields
    )
