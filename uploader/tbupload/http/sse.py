"""A parser of server-sent events (HTML Living Standard, section "Server-sent events")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tbupload.limits import RESPONSE_BYTES_MAX


@dataclass(frozen=True)
class ServerEvent:
    """An event; `id` is None if it has none of its own."""

    name: str
    data: bytes
    id: str | None


def read_events(chunks: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Yield the complete events of a body in chunks of any size; drop an incomplete one at its end.

    Parses what our server sends: lines end with a line feed, and data is one line.

    Raises:
        ValueError: An event is longer than RESPONSE_BYTES_MAX, or a name is not UTF-8.
    """
    fields: dict[str, bytes] = {}
    size = 0
    for line in _lines(chunks):
        size = size + len(line) + 1 if line else 0
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"an event is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        if line:
            name, _, value = line.partition(b":")
            fields[name.decode()] = value.removeprefix(b" ")
            continue

        if "data" in fields:
            name, event_id = fields.get("event", b"message"), fields.get("id")
            yield ServerEvent(
                name.decode(), fields["data"], None if event_id is None else event_id.decode()
            )
        fields = {}


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > RESPONSE_BYTES_MAX:
            raise ValueError(f"a line is over the limit of {RESPONSE_BYTES_MAX:,} bytes")
        for line in others:
            yield b"".join(rest)
            rest, size = [line], len(line)
