"""The files of one decode: which of them each record belongs to, and what was decoded of each."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tbupload.events.decode.record_walk import Indices
from tbupload.events.points import SeriesPoints
from tbupload.events.tag_registry import TagRegistry


@dataclass
class FilePart:
    """The records of one file in a decode.

    Attributes:
        registry: The file's tags so far; decoding adds to it.
        stop: Index after the file's last record; its first one follows the part before.
        series: The points that were decoded.
        skipped: Number of values that cannot be sent, by reason.
    """

    registry: TagRegistry
    stop: int
    series: list[SeriesPoints] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


class FileParts:
    """All parts of a decode, in the order of their records."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        self._parts = parts
        self._stops = [part.stop for part in parts]
        self.stops = np.array(self._stops)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, index: int) -> FilePart:
        return self._parts[index]

    def index_of(self, record: int) -> int:
        """Return the index of the part that has this record."""
        return bisect_right(self._stops, record)

    def indices_of(self, records: Indices) -> Indices:
        """Return the index of the part of each of these records, which are in file order."""
        counts = np.diff(np.searchsorted(records, self.stops), prepend=0)
        return np.repeat(np.arange(len(self._parts)), counts)

    def skip(self, reason: str, records: Indices) -> None:
        """Count one value of each of these records as one that cannot be sent."""
        for part, count in zip(*np.unique(self.indices_of(records), return_counts=True)):
            self._parts[part].skipped[reason] += int(count)
