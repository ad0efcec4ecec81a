"""Protobuf's wire format by hand, valid and invalid, driven by a sequence of choices read from
bytes.

Fuzzers provide the bytes: hypothesis shortens them to find the simplest failure, atheris changes
them to reach new code. The first option of each choice is the ordinary one, which is taken when the
bytes are used up.
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
    """Choices read from bytes in order; the first option when they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def below(self, count: int) -> int:
        """Return a number from 0 to count - 1; count is at most 256."""
        if self._position >= len(self._data):
            return 0
        self._position += 1
        return self._data[self._position - 1] % count

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def seldom(self, one_in: int = 12) -> bool:
        """Return True in a few cases."""
        return self.below(one_in) == one_in - 1

    def shuffled(self, items: list[T]) -> list[T]:
        """Return the items, in another order in a few cases."""
        if not self.seldom(4):
            return items
        rest = list(items)
        return [rest.pop(self.below(len(rest))) for _ in items]


def drawn(count: int, size: int = 300) -> Iterator[bytes]:
    """Return inputs for `Choices`, the same each time: enough to meet what happens once in a
    thousand.
    """
    generator = random.Random(count)  # noqa: S311 - no secret
    for _ in range(count):
        yield generator.randbytes(generator.randrange(size))


def varint(number: int, padding: int = 0) -> bytes:
    """Return a number as a varint of 64 bits; padding makes it longer than necessary, up to more
    than ten bytes.
    """
    number &= (1 << 64) - 1
    encoded = []
    while number >= 0x80 or padding:
        encoded.append(number & 0x7F | 0x80)
        padding -= number < 0x80
        number >>= 7
    return bytes([*encoded, number])


def key(number: int, kind: int, padding: int = 0) -> bytes:
    """Return a field's tag: its number and wire type."""
    return varint(number << 3 | kind, padding)


def message(choices: Choices, fields: list[Field]) -> bytes:
    """Return the encoded fields; in a few cases in another order, twice, missing, wrapped or
    broken.
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
    """Return an encoded field; in a few cases with long varints, or a wrong length or wire type."""
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
    """Return a field that no message has: of any wire type, a group, or an invalid one."""
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
    """Return a string's bytes: an ordinary one, an empty or long one, one with NUL, or invalid
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
    """Return the eight bytes of a float64."""
    return struct.pack("<d", number)


def single(number: float) -> bytes:
    """Return the four bytes of a float32."""
    return struct.pack("<f", number)
