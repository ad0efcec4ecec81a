"""Protobuf's wire format by hand, sound and unsound, driven by a sequence of choices read from
bytes.

Fuzzers give the bytes: hypothesis makes them shorter to find the simplest failure, atheris changes
them to reach new code. The first of the options is always the ordinary one, and is what remains
when the bytes are used up.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

T = TypeVar("T")
Field = tuple[int, int, bytes]
"""Number, wire type, and content: of a LENGTH field, without its length."""


class Choices:
    """Choices read from bytes one after the other; the first option when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def below(self, count: int) -> int:
        """A number from 0 to count - 1; counts over 256 are never asked for."""
        if self._position >= len(self._data):
            return 0
        self._position += 1
        return self._data[self._position - 1] % count

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def seldom(self, one_in: int = 12) -> bool:
        """True once in a while."""
        return self.below(one_in) == one_in - 1

    def shuffled(self, items: list[T]) -> list[T]:
        """The items in another order, now and then."""
        if not self.seldom(4):
            return items
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def drawn(count: int, size: int = 300) -> Iterator[bytes]:
    """Inputs for `Choices`, the same each time: what is met once in a thousand is met."""
    generator = random.Random(count)  # noqa: S311 - no secret
    for _ in range(count):
        yield generator.randbytes(generator.randrange(size))


def varint(number: int, padding: int = 0) -> bytes:
    """A number as a varint of 64 bits; padding makes it longer than it needs to be, up to and over
    ten bytes.
    """
    number &= (1 << 64) - 1
    encoded = []
    while number >= 0x80 or padding:
        encoded.append(number & 0x7F | 0x80)
        padding -= number < 0x80
        number >>= 7
    return bytes([*encoded, number])


def key(number: int, kind: int, padding: int = 0) -> bytes:
    """What stands before a field's value."""
    return varint(number << 3 | kind, padding)


def message(choices: Choices, fields: list[Field]) -> bytes:
    """The fields as they stand in a file: in another order, twice, missing, wrapped or broken, once
    in a while.
    """
    parts = []
    for field in choices.shuffled(fields):
        if choices.seldom(24):
            continue
        parts.append(encode_field(choices, field))
        if choices.seldom(24):
            parts.append(encode_field(choices, field))
        if choices.seldom(24):
            parts.append(unknown_field(choices))
    return b"".join(parts)


def encode_field(choices: Choices, field: Field) -> bytes:
    """A field; its varints longer than they need to be, its length or wire type wrong, once in a
    while.
    """
    number, kind, content = field
    if choices.seldom(40):
        kind = choices.pick([VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32, 6, 7])
    start = key(number, kind, padding=choices.pick([1, 2, 4]) if choices.seldom(40) else 0)
    if kind != LENGTH:
        return start + content
    length = len(content)
    if choices.seldom(40):
        length = choices.pick(
            [length + 1, max(0, length - 1), 0, 127, 2**31 - 1, 2**31, 2**32 + 1, 2**63, 2**64 - 1]
        )
    return (
        start
        + varint(length, padding=choices.pick([1, 2, 4, 8]) if choices.seldom(40) else 0)
        + content
    )


def unknown_field(choices: Choices) -> bytes:
    """A field no message has: of any wire type, a group, or one that is not allowed at all."""
    number = choices.pick([15, 16, 100, 2**29 - 1, 0, 2**29])
    options = [
        key(number, VARINT) + b"\x01",
        key(number, FIXED64) + bytes(8),
        key(number, LENGTH) + b"\x03abc",
        key(number, FIXED32) + bytes(4),
        key(number, START_GROUP) + key(1, LENGTH) + b"\x01a" + key(number, END_GROUP),
        key(number, START_GROUP),
        key(number, START_GROUP) + key(number + 1, END_GROUP),
        key(number, END_GROUP),
        key(number, START_GROUP) * 200 + key(number, END_GROUP) * 200,
        key(number, LENGTH) + b"\x7f",
        b"\xff" * 11,
    ]
    return choices.pick(options)


def text(choices: Choices, ordinary: Sequence[str]) -> bytes:
    """A string's bytes: one of the ordinary ones, or one that is empty, long, holds a NUL, or is no
    UTF-8.
    """
    if not choices.seldom(10):
        return choices.pick(ordinary).encode()
    odd = [
        b"",
        b"a\0b",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        "\ud7ff\ue000\U0010ffff".encode(),
        b"x" * 300,
        b"\xe6\xbc",
    ]
    return choices.pick(odd)


def double(number: float) -> bytes:
    """A float64 as it stands in a file."""
    return struct.pack("<d", number)


def single(number: float) -> bytes:
    """A float32 as it stands in a file."""
    return struct.pack("<f", number)
