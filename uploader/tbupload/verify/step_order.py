"""Points in step order from pieces that overlap, and two sides of them beside each other, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tbwire.digests import Records, deduplicate_steps

RECORDS_IN_MEMORY: Final = 131_072
"""Records held of all pieces together; of many pieces, at least `RECORDS_PER_SOURCE_MIN` of each."""

RECORDS_PER_SOURCE_MIN: Final = 256

STEPS_SHOWN: Final = 5
"""Steps that are named of those that differ."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Records in step order, one a step: how many, and how to read `count` of them from number `first` on."""

    count: int
    read: Callable[[int, int], Records]


@dataclass(slots=True)
class StepSample:
    """How many steps there are of a kind, and the first few."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, steps: Records) -> None:
        """Takes further steps, in order."""
        self.count += len(steps)
        self.first += steps[: STEPS_SHOWN - len(self.first)].tolist()


@dataclass(slots=True)
class Differences:
    """How the stored points differ from the files': not there, there although in no file, there with another value."""

    missing: StepSample = field(default_factory=StepSample)
    extra: StepSample = field(default_factory=StepSample)
    different: StepSample = field(default_factory=StepSample)


class _Reader:
    """A sequence of records with a place in it; `loaded` is the part at that place, None at the end."""

    def __init__(self, records: Iterator[Records]) -> None:
        self._records = records
        self.loaded = self._next_loaded()

    def read_through(self, step: int) -> Records | None:
        """What is loaded up to this step; None when nothing is."""
        if self.loaded is None or self.loaded["step"][0] > step:
            return None
        place = int(np.searchsorted(self.loaded["step"], step, "right"))
        taken, rest = self.loaded[:place], self.loaded[place:]
        self.loaded = rest if len(rest) else self._next_loaded()
        return taken

    def _next_loaded(self) -> Records | None:
        return next((part for part in self._records if len(part)), None)


def merge_in_step_order(sources: Sequence[RecordSource]) -> Iterator[Records]:
    """All points, the newest of each step; of one step and wall time, that of the later piece."""
    count = max(RECORDS_PER_SOURCE_MIN, RECORDS_IN_MEMORY // max(1, len(sources)))
    readers = [_Reader(_parts(source, count)) for source in sources]
    for parts in _aligned_ranges(readers):
        yield deduplicate_steps(np.concatenate([part for part in parts if part is not None]))


def compare(local: Iterable[Records], stored: Iterable[Records]) -> Differences:
    """How the stored points differ from the local ones; both in step order, one a step."""
    found = Differences()
    for ours, theirs in _aligned_ranges([_Reader(iter(local)), _Reader(iter(stored))]):
        if ours is not None and theirs is not None:
            _compare(ours, theirs, found)
        elif ours is not None:
            found.missing.add(ours["step"])
        elif theirs is not None:
            found.extra.add(theirs["step"])
    return found


def _parts(source: RecordSource, count: int) -> Iterator[Records]:
    for first in range(0, source.count, count):
        yield source.read(first, count)


def _aligned_ranges(readers: Sequence[_Reader]) -> Iterator[list[Records | None]]:
    """Parts of all readers for the same range of steps, one range after the other; at least one has a part."""
    while ends := [
        int(reader.loaded["step"][-1]) for reader in readers if reader.loaded is not None
    ]:
        step = min(ends)
        yield [reader.read_through(step) for reader in readers]


def _compare(ours: Records, theirs: Records, found: Differences) -> None:
    steps, in_ours, in_theirs = np.intersect1d(ours["step"], theirs["step"], return_indices=True)
    found.missing.add(np.delete(ours["step"], in_ours))
    found.extra.add(np.delete(theirs["step"], in_theirs))
    bits = [
        records[chosen].view(np.uint8).reshape(-1, records.itemsize)
        for records, chosen in ((ours, in_ours), (theirs, in_theirs))
    ]
    found.different.add(steps[(bits[0] != bits[1]).any(axis=1)])
