"""Layouts of events met before, by the bits they have in common: telling one again is far cheaper than parsing it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from tbupload.reading.event_layout import EventLayout, parse_layout

VALUES_MAX: Final = 2_000
"""Values of all layouts that are remembered, so that they stay under a few megabytes; later ones are parsed anew."""

_DECIDES: Final = 0xFF
_FREE: Final = 0x00
_CONTINUATION: Final = 0x80


@dataclass(frozen=True, slots=True)
class _Known:
    """An event that was parsed, the bits of it that decide its layout, both as numbers, and the layout."""

    event: int
    mask: int
    layout: EventLayout


class _LayoutBook:
    def __init__(self) -> None:
        self._by_length: defaultdict[int, list[_Known]] = defaultdict(list)
        self._values = 0

    def find(self, event: bytes) -> EventLayout | None:
        number = int.from_bytes(event)
        for known in self._by_length.get(len(event), ()):
            if not (number ^ known.event) & known.mask:
                return known.layout
        layout = parse_layout(event)
        if layout is not None and self._values + len(layout.values) <= VALUES_MAX:
            self._values += len(layout.values)
            self._by_length[len(event)].append(_Known(number, int.from_bytes(_mask(event, layout)), layout))
        return layout


def find_layout(event: bytes) -> EventLayout | None:
    """What `parse_layout` says of the event."""
    return _BOOK.find(event)


def _mask(event: bytes, layout: EventLayout) -> bytes:
    """Ones for the bits that decide the layout: none in numbers and names, but whether a varint goes on."""
    mask = bytearray([_DECIDES]) * len(event)
    spans = [layout.wall_time, *(span for value in layout.values for span in (value.tag, value.metadata, value.value))]
    for span in spans:
        if span is not None:
            mask[span] = bytes([_FREE]) * (span.stop - span.start)
    if layout.step is not None:
        mask[layout.step] = bytes([_CONTINUATION]) * (layout.step.stop - layout.step.start)
    return bytes(mask)


_BOOK: Final = _LayoutBook()
