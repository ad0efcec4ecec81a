"""Wire format of Protocol Buffers: wire types and varints, for code that handles bytes itself.

Source: "Encoding" in the Protocol Buffers documentation. A message is a sequence of fields; a field
is a key (the varint `number << 3 | wire type`) and a value. A varint has seven bits of the number
per byte, least significant first; the top bit of each byte is set when another one follows.

The functions here handle one number each. Columns of numbers have vectorised forms:
`tbupload.events.decode.templates` decodes steps, `tbupload.export.event_records` encodes them.
"""

from __future__ import annotations

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

WIRE_TYPE_BITS: Final = 3
"""Low bits of a key that are the wire type; the field number is in the bits above them."""

WIRE_TYPE_MASK: Final = (1 << WIRE_TYPE_BITS) - 1

FIELD_NUMBER_MAX: Final = (1 << 29) - 1

VARINT_BYTES_MAX: Final = 10
"""Bytes of the longest varint: 64 bits at seven bits per byte."""

SIZE_BYTES_MAX: Final = 5
"""Bytes of a key or a length: both are 32-bit, and protobuf's parsers refuse longer varints."""

CONTINUATION_BIT: Final = 0x80
"""Bit of a varint's byte that is set when another byte follows."""

PAYLOAD_MASK: Final = 0x7F
"""Bits of a varint's byte that belong to the number."""

PAYLOAD_BITS: Final = 7

_SHIFT_MAX: Final = PAYLOAD_BITS * (VARINT_BYTES_MAX - 1)
_UINT64_MASK: Final = (1 << 64) - 1


class MalformedVarint(ValueError):
    """A varint has more bytes than it may have."""


def encode_varint(number: int) -> bytes:
    """Return `number` as a varint; a negative int64 as the uint64 with the same bits."""
    number &= _UINT64_MASK
    encoded = bytearray()
    while number >= CONTINUATION_BIT:
        encoded.append(number & PAYLOAD_MASK | CONTINUATION_BIT)
        number >>= PAYLOAD_BITS
    encoded.append(number)
    return bytes(encoded)


def encode_field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field: a string, bytes or a message."""
    key = number << WIRE_TYPE_BITS | LENGTH_DELIMITED
    return encode_varint(key) + encode_varint(len(content)) + content


def decode_varint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the varint that starts at `position`, and the position after it.

    The tenth byte is not masked to the one bit that fits a uint64, so the number may be larger.
    Raises IndexError when the buffer ends first, MalformedVarint when it has more than 10 bytes.
    """
    # One byte first: most varints have no more, and this runs per field of a request body.
    value = buffer[position]
    position += 1
    if value < CONTINUATION_BIT:
        return value, position

    value &= PAYLOAD_MASK
    shift = PAYLOAD_BITS
    while (byte := buffer[position]) >= CONTINUATION_BIT:
        value |= (byte & PAYLOAD_MASK) << shift
        shift += PAYLOAD_BITS
        position += 1
        if shift > _SHIFT_MAX:
            raise MalformedVarint("a varint has too many bytes")
    return value | byte << shift, position + 1
