"""Finds the steps that a job writes in the same way again and again: records of the same sizes in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PATTERN_RECORDS: Final = 64
"""Records whose sizes have to have come before in just this order, for a repetition to be believed in."""

STEPS_MIN: Final = 768
"""With fewer steps of one kind, what each tag costs is more than what its records cost one by one."""

_STRETCH_STEPS_MIN: Final = 4
"""Fewer steps on end are left alone."""

_PERIOD_MAX: Final = 512
"""Records of a step; what is read at a time has too few steps of more."""

_KINDS_MAX: Final = 16
"""Kinds of steps of one period; further ones are left alone."""

_PROBES: Final = 5
"""Where a repetition is looked for: so many places, evenly spread."""

Indices = npt.NDArray[np.intp]
Sizes = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class PeriodicRecords:
    """Steps of `period` records each, whose sizes are the same in all of them.

    `begins` are the first records of stretches of such steps, in file order, and `counts` how many steps each has.
    """

    period: int
    begins: Indices
    counts: Indices

    def first_records(self) -> Indices:
        """The first record of each step, in file order."""
        places = np.arange(int(self.counts.sum())) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        return np.asarray(np.repeat(self.begins, self.counts) + places * self.period)

    def merge_steps(self, factor: int) -> PeriodicRecords:
        """The same with so many steps in the place of one."""
        return PeriodicRecords(self.period * factor, self.begins, self.counts // factor)


def find_period(sizes: Sizes) -> int:
    """How many records before the last ones the same sizes stood in the same order; 0 if they did not."""
    content, pattern = sizes.tobytes(), sizes[-PATTERN_RECORDS:].tobytes()
    before = content.rfind(pattern, 0, len(content) - sizes.itemsize)
    if len(sizes) <= PATTERN_RECORDS or before < 0 or before % sizes.itemsize:
        return 0
    return len(sizes) - PATTERN_RECORDS - before // sizes.itemsize


def find_periodic_records(sizes: Sizes, stops: Indices) -> Iterator[PeriodicRecords]:
    """The repetitions in records of these sizes; no record is in two of them.

    No step lies in two files, of which the records are those before each of `stops`.
    """
    is_free = np.ones(len(sizes), np.bool_)
    for period in _find_periods(sizes):
        for periodic in _find_with_period(sizes, stops, period, is_free):
            if int(periodic.counts.sum()) >= STEPS_MIN:
                for begin, count in zip(
                    periodic.begins.tolist(), periodic.counts.tolist(), strict=True
                ):
                    is_free[begin : begin + count * period] = False
                yield periodic


def _find_periods(sizes: Sizes) -> list[int]:
    """The periods found at some places, the shortest first."""
    places = [len(sizes) * number // _PROBES for number in range(1, _PROBES + 1)]
    found = {
        find_period(sizes[max(0, place - PATTERN_RECORDS - _PERIOD_MAX) : place])
        for place in places
    }
    return sorted(period for period in found if 0 < period * STEPS_MIN <= len(sizes))


def _find_with_period(
    sizes: Sizes, stops: Indices, period: int, is_free: npt.NDArray[np.bool_]
) -> list[PeriodicRecords]:
    """The repetitions of this period among free records, one for each kind of step."""
    is_same = (sizes[period:] == sizes[:-period]) & is_free[period:] & is_free[:-period]
    for stop in stops[:-1].tolist():
        is_same[max(0, stop - period) : stop] = False
    edges = np.diff(is_same.view(np.int8), prepend=np.int8(0), append=np.int8(0)).nonzero()[0]
    begins, ends = edges[::2], edges[1::2] + period
    begins[1:] = np.maximum(
        begins[1:], ends[:-1]
    )  # where one stretch ends, the next may seem to have begun
    is_long = ends - begins >= _STRETCH_STEPS_MIN * period
    kinds: dict[bytes, list[tuple[int, int]]] = {}
    for begin, end in zip(begins[is_long].tolist(), ends[is_long].tolist(), strict=True):
        pattern = sizes[begin : begin + period].tobytes()
        kind, turn = _rotated_kind(pattern, kinds)
        if kind in kinds or len(kinds) < _KINDS_MAX:
            kinds.setdefault(kind, []).append((begin + turn, (end - begin - turn) // period))
    return [
        PeriodicRecords(period, *np.array(stretches, np.intp).T) for stretches in kinds.values()
    ]


def _rotated_kind(pattern: bytes, kinds: dict[bytes, list[tuple[int, int]]]) -> tuple[bytes, int]:
    """The kind of step whose sizes these are when they are read from a later record on, and that record's index."""
    if pattern in kinds:
        return pattern, 0
    twice, size = pattern + pattern, np.dtype(np.uint32).itemsize
    for kind in kinds:
        at = twice.find(kind)
        if at >= 0 and at % size == 0:
            return kind, at // size
    return pattern, 0
