"""Cache of event layouts: recognising a layout by its bits is far cheaper than parsing it again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbupload.events.decode.event_layout import EventLayout, ValueLayout, parse_layout
from tbupload.events.decode.record_rows import WORD_BYTES, Words, byte_mask
from tbwire.wire_format import CONTINUATION_BIT

VALUES_MAX: Final = 2_000
"""Values of all cached layouts, a few megabytes; when it is full, other layouts are not cached."""

_ALL_BITS: Final = 0xFF
_NO_BITS: Final = 0x00


@dataclass(frozen=True)
class KnownLayout:
    """An event's layout, with the masks to compare other events of its length with it.

    Attributes:
        layout: The layout.
        deciding: The bits that decide the layout, as words: equal bits mean the same layout.
        names: For each value the bits that identify its series, in as many words as `deciding`.
    """

    layout: EventLayout
    deciding: Words
    names: tuple[Words, ...]


@dataclass(frozen=True)
class _CachedEvent:
    """A parsed event and the mask of the bits that decide its layout, as (very long) integers."""

    event: int
    deciding: int
    known: KnownLayout


class _LayoutCache:
    def __init__(self) -> None:
        self._by_length: defaultdict[int, list[_CachedEvent]] = defaultdict(list)
        self._values = 0

    def find(self, event: bytes) -> KnownLayout | None:
        number = int.from_bytes(event, "big")
        for cached in self._by_length.get(len(event), ()):
            if not (number ^ cached.event) & cached.deciding:
                return cached.known

        layout = parse_layout(event)
        if layout is None:
            return None
        mask = _mask(event, layout)
        deciding = np.frombuffer(mask + bytes(-len(mask) % WORD_BYTES), "<u8")
        names = tuple(byte_mask(len(deciding), _name_spans(value)) for value in layout.values)
        known = KnownLayout(layout, deciding, names)

        if self._values + len(layout.values) <= VALUES_MAX:
            self._values += len(layout.values)
            self._by_length[len(event)].append(
                _CachedEvent(number, int.from_bytes(mask, "big"), known)
            )
        return known


def find_layout(event: bytes) -> KnownLayout | None:
    """Return the layout that `parse_layout` returns for the event, from the cache if possible."""
    return _CACHE.find(event)


def _name_spans(value: ValueLayout) -> list[slice]:
    return [value.tag] if value.metadata is None else [value.tag, value.metadata]


def _mask(event: bytes, layout: EventLayout) -> bytes:
    """Return the mask of the bits that decide the layout.

    These are all bits but those of numbers, tags and metadata. The step is a varint: its
    continuation bits are included, as they decide how many bytes it has.
    """
    mask = bytearray([_ALL_BITS]) * len(event)
    spans = [
        layout.wall_time,
        *(span for value in layout.values for span in (value.tag, value.metadata, value.value)),
    ]
    for span in spans:
        if span is not None:
            mask[span] = bytes([_NO_BITS]) * (span.stop - span.start)
    if layout.step is not None:
        mask[layout.step] = bytes([CONTINUATION_BIT]) * (layout.step.stop - layout.step.start)
    return bytes(mask)


_CACHE: Final = _LayoutCache()
