"""Points in step order from pieces that overlap, and two sides of them beside each other, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tbwire.digests import Records, newest_of_each_step

RECORDS_AT_ONCE: Final = 131_072
"""Records held of all pieces together; of many pieces, at least `RECORDS_A_PIECE_MIN` of each."""

RECORDS_A_PIECE_MIN: Final = 256

STEPS_SHOWN: Final = 5
"""Steps that are named of those that differ."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records in step order, one a step: how many, and how to read `count` of them from number `first` on."""

    count: int
    read: Callable[[int, int], Records]


@dataclass(slots=True)
class Steps:
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

    missing: Steps = field(default_factory=Steps)
    extra: Steps = field(default_factory=Steps)
    different: Steps = field(default_factory=Steps)


class _Reader:
    """A sequence of records with a place in it; `loaded` is the part at that place, None at the end."""

    def __init__(self, records: Iterator[Records]) -> None:
        self._records = records
        self.loaded = self._find()

    def take_through(self, step: int) -> Records | None:
        """What is loaded up to this step; None when nothing is."""
        if self.loaded is None or self.loaded["step"][0] > step:
            return None
        place = int(np.searchsorted(self.loaded["step"], step, "right"))
        taken, rest = self.loaded[:place], self.loaded[place:]
        self.loaded = rest if len(rest) else self._find()
        return taken

    def _find(self) -> Records | None:
        return next((part for part in self._records if len(part)), None)


def in_step_order(pieces: Sequence[Piece]) -> Iterator[Records]:
    """All points, the newest of each step; of one step and wall time, that of the later piece."""
    count = max(RECORDS_A_PIECE_MIN, RECORDS_AT_ONCE // max(1, len(pieces)))
    readers = [_Reader(_parts(piece, count)) for piece in pieces]
    for parts in _abreast(readers):
        yield newest_of_each_step(np.concatenate([part for part in parts if part is not None]))


def compare(local: Iterable[Records], stored: Iterable[Records]) -> Differences:
    """How the stored points differ from the local ones; both in step order, one a step."""
    found = Differences()
    for ours, theirs in _abreast([_Reader(iter(local)), _Reader(iter(stored))]):
        if ours is not None and theirs is not None:
            _compare(ours, theirs, found)
        elif ours is not None:
            found.missing.add(ours["step"])
        elif theirs is not None:
            found.extra.add(theirs["step"])
    return found


def _parts(piece: Piece, count: int) -> Iterator[Records]:
    for first in range(0, piece.count, count):
        yield piece.read(first, count)


def _abreast(readers: Sequence[_Reader]) -> Iterator[list[Records | None]]:
    """Parts of all readers for the same range of steps, one range after the other; at least one has a part."""
    while ends := [int(reader.loaded["step"][-1]) for reader in readers if reader.loaded is not None]:
        step = min(ends)
        yield [reader.take_through(step) for reader in readers]


def _compare(ours: Records, theirs: Records, found: Differences) -> None:
    steps, in_ours, in_theirs = np.intersect1d(ours["step"], theirs["step"], return_indices=True)
    found.missing.add(np.delete(ours["step"], in_ours))
    found.extra.add(np.delete(theirs["step"], in_theirs))
    bits = [
        records[chosen].view(np.uint8).reshape(-1, records.itemsize)
        for records, chosen in ((ours, in_ours), (theirs, in_theirs))
    ]
    found.different.add(steps[(bits[0] != bits[1]).any(axis=1)])
