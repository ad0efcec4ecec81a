"""Merge overlapping record sources in step order, and compare two of them, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tbwire.digests import Records, deduplicate_steps

RECORDS_IN_MEMORY: Final = 131_072
"""Records in memory, of all sources together; more if there are many sources."""

RECORDS_PER_SOURCE_MIN: Final = 256
"""Records in memory of each source, at least: otherwise reads would be too small."""

STEPS_SHOWN: Final = 5
"""Steps that are listed per kind of difference."""


@dataclass(frozen=True)
class RecordSource:
    """Records in step order, one per step; `read(first, count)` returns a range of them."""

    count: int
    read: Callable[[int, int], Records]


@dataclass
class StepSample:
    """The number of steps, and the first STEPS_SHOWN of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, steps: Records) -> None:
        """Add further steps, which must be greater than those before."""
        self.count += len(steps)
        self.first += steps[: STEPS_SHOWN - len(self.first)].tolist()


@dataclass
class Differences:
    """How stored points differ from those of the files.

    `missing`: only in the files. `extra`: only stored. `different`: another wall time or value.
    """

    missing: StepSample = field(default_factory=StepSample)
    extra: StepSample = field(default_factory=StepSample)
    different: StepSample = field(default_factory=StepSample)


class _Reader:
    """A cursor in a sequence of records; `loaded` is the current chunk, None at the end."""

    def __init__(self, records: Iterator[Records]) -> None:
        self._records = records
        self.loaded = self._next_chunk()

    def read_through(self, step: int) -> Records | None:
        """Return and consume the loaded records up to this step, or None if there are none."""
        if self.loaded is None or self.loaded["step"][0] > step:
            return None
        end = int(np.searchsorted(self.loaded["step"], step, "right"))
        records, rest = self.loaded[:end], self.loaded[end:]
        self.loaded = rest if len(rest) else self._next_chunk()
        return records

    def _next_chunk(self) -> Records | None:
        return next((chunk for chunk in self._records if len(chunk)), None)


def merge_in_step_order(sources: Sequence[RecordSource]) -> Iterator[Records]:
    """Yield the records of all sources in step order, one per step.

    The record of a step with the greatest wall time remains; among equal wall times, that of the
    last source.
    """
    count = max(RECORDS_PER_SOURCE_MIN, RECORDS_IN_MEMORY // max(1, len(sources)))
    readers = [_Reader(_chunks(source, count)) for source in sources]
    for chunks in _aligned_ranges(readers):
        yield deduplicate_steps(np.concatenate([chunk for chunk in chunks if chunk is not None]))


def compare(
    local: Iterable[Records], stored: Iterable[Records], *, accepts_later: bool = False
) -> Differences:
    """Return how stored records differ from local ones; both in step order, one per step.

    With `accepts_later`, a stored record with a greater wall time than the local one of its step is
    no difference: an upload of the local one would not replace it.
    """
    differences = Differences()
    for local_chunk, stored_chunk in _aligned_ranges([_Reader(iter(local)), _Reader(iter(stored))]):
        if local_chunk is not None and stored_chunk is not None:
            _compare(local_chunk, stored_chunk, differences, accepts_later=accepts_later)
        elif local_chunk is not None:
            differences.missing.add(local_chunk["step"])
        elif stored_chunk is not None:
            differences.extra.add(stored_chunk["step"])
    return differences


def _chunks(source: RecordSource, count: int) -> Iterator[Records]:
    for first in range(0, source.count, count):
        yield source.read(first, count)


def _aligned_ranges(readers: Sequence[_Reader]) -> Iterator[list[Records | None]]:
    """Yield, per range of steps, each reader's records in it; None where it has none.

    The ranges are in order, and end where the first loaded chunk ends.
    """
    while ends := [
        int(reader.loaded["step"][-1]) for reader in readers if reader.loaded is not None
    ]:
        step = min(ends)
        yield [reader.read_through(step) for reader in readers]


def _compare(
    local_chunk: Records, stored_chunk: Records, differences: Differences, *, accepts_later: bool
) -> None:
    """Add the differences of two chunks; values are compared as bits, so that NaN equals NaN."""
    steps, in_ours, in_theirs = np.intersect1d(
        local_chunk["step"], stored_chunk["step"], return_indices=True
    )
    differences.missing.add(np.delete(local_chunk["step"], in_ours))
    differences.extra.add(np.delete(stored_chunk["step"], in_theirs))
    bits = [
        records[indices].view(np.uint8).reshape(-1, records.itemsize)
        for records, indices in ((local_chunk, in_ours), (stored_chunk, in_theirs))
    ]
    is_different = (bits[0] != bits[1]).any(axis=1)
    if accepts_later:
        is_different &= stored_chunk["wall_time"][in_theirs] <= local_chunk["wall_time"][in_ours]
    differences.different.add(steps[is_different])
