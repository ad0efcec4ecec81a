"""Server-sent events: from bytes, cut anywhere, to events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tbupload.limits import RESPONSE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; its `id` is None where it has none of its own."""

    name: str
    data: bytes
    id: str | None


def read_events(pieces: Iterable[bytes]) -> Iterator[ServerEvent]:
    """The whole events in these bytes, whose lines end with a line feed; one that is cut off at the end is dropped.

    Raises ValueError for an event over RESPONSE_BYTES_MAX, and for names that are no text.
    """
    fields: dict[str, bytes] = {}
    size = 0
    for line in _lines(pieces):
        size = size + len(line) + 1 if line else 0
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"an event is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        if line:
            name, _, value = line.partition(b":")
            fields[name.decode()] = value.removeprefix(b" ")
            continue
        if "data" in fields:
            name, number = fields.get("event", b"message"), fields.get("id")
            yield ServerEvent(
                name.decode(), fields["data"], None if number is None else number.decode()
            )
        fields = {}


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    for piece in pieces:
        first, *others = piece.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"a line is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        for line in others:
            yield b"".join(rest)
            rest, size = [line], len(line)
