"""Server-sent events: from bytes, cut anywhere, to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; its `id` is None where it has none of its own."""

    name: str
    data: bytes
    id: str | None


def read_events(pieces: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The whole events in these bytes, whose lines end with a line feed; one that is cut off at the end is dropped."""
    fields: dict[str, bytes] = {}
    for line in _lines(pieces):
        if line:
            name, _, value = line.partition(b":")
            fields[name.decode()] = value.removeprefix(b" ")
            continue
        if "data" in fields:
            name, number = fields.get("event", b"message"), fields.get("id")
            yield ServerEvent(name.decode(), fields["data"], None if number is None else number.decode())
        fields = {}


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        for line in others:
            yield b"".join(rest)
            rest = [line]
