"""Find steps that a job writes repeatedly: records of the same sizes in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

PATTERN_RECORDS: Final = 64
"""Consecutive sizes that must have occurred before, in the same order, to be a period."""

STEPS_MIN: Final = 768
"""With fewer steps of one kind, the fixed cost per tag exceeds that of decoding by templates."""

_RUN_STEPS_MIN: Final = 4
"""Fewer consecutive steps are not decoded as steps."""

_PERIOD_MAX: Final = 512
"""Records per step; of longer steps, a chunk has too few."""

_KINDS_MAX: Final = 16
"""Kinds of steps with one period, for example training and evaluation; others are not decoded."""

_PROBES: Final = 5
"""Evenly spaced positions at which a period is searched for."""

Indices = npt.NDArray[np.intp]
Sizes = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class PeriodicRecords:
    """Steps of `period` records each, with the same record sizes in all of them.

    Attributes:
        period: Records per step.
        begins: The first record of each range of consecutive steps, in file order.
        counts: The number of steps in each range.
    """

    period: int
    begins: Indices
    counts: Indices

    def first_records(self) -> Indices:
        """Return the first record of each step, in file order."""
        steps = np.arange(int(self.counts.sum())) - np.repeat(
            np.cumsum(self.counts) - self.counts, self.counts
        )
        return np.asarray(np.repeat(self.begins, self.counts) + steps * self.period)

    def merge_steps(self, factor: int) -> PeriodicRecords:
        """Return the same records with `factor` consecutive steps as one."""
        return PeriodicRecords(self.period * factor, self.begins, self.counts // factor)


def find_period(sizes: Sizes) -> int:
    """Return how many records before the last ones the same sizes occurred; 0 if they did not.

    The last ones are `PATTERN_RECORDS`; the latest earlier occurrence counts.
    """
    content, pattern = sizes.tobytes(), sizes[-PATTERN_RECORDS:].tobytes()
    # A search in bytes is C code; comparing windows of an array would make a matrix of them.
    before = content.rfind(pattern, 0, len(content) - sizes.itemsize)
    # A match of bytes that is not aligned to a size is none.
    if len(sizes) <= PATTERN_RECORDS or before < 0 or before % sizes.itemsize:
        return 0
    return len(sizes) - PATTERN_RECORDS - before // sizes.itemsize


def find_periodic_records(sizes: Sizes, stops: Indices) -> Iterator[PeriodicRecords]:
    """Yield the kinds of repeating steps in records of these sizes; each record is in one at most.

    Args:
        sizes: The size of each record.
        stops: The end of each file's records; no step extends over two files.
    """
    is_free = np.ones(len(sizes), np.bool_)
    for period in _find_periods(sizes):
        for periodic in _find_with_period(sizes, stops, period, is_free):
            if int(periodic.counts.sum()) >= STEPS_MIN:
                for begin, count in zip(periodic.begins.tolist(), periodic.counts.tolist()):
                    is_free[begin : begin + count * period] = False
                yield periodic


def _find_periods(sizes: Sizes) -> list[int]:
    """Return the periods at some positions, the shortest first."""
    stops = [len(sizes) * number // _PROBES for number in range(1, _PROBES + 1)]
    periods = {
        find_period(sizes[max(0, stop - PATTERN_RECORDS - _PERIOD_MAX) : stop]) for stop in stops
    }
    return sorted(period for period in periods if 0 < period * STEPS_MIN <= len(sizes))


def _find_with_period(
    sizes: Sizes, stops: Indices, period: int, is_free: npt.NDArray[np.bool_]
) -> list[PeriodicRecords]:
    """Return the repeating steps with this period among free records, one item per kind."""
    is_same = (sizes[period:] == sizes[:-period]) & is_free[period:] & is_free[:-period]
    for stop in stops[:-1].tolist():
        is_same[max(0, stop - period) : stop] = False

    edges = np.diff(is_same.view(np.int8), prepend=np.int8(0), append=np.int8(0)).nonzero()[0]
    begins, ends = edges[::2], edges[1::2] + period
    # A range may seem to begin before the previous one has ended: by chance, sizes are equal.
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    is_long = ends - begins >= _RUN_STEPS_MIN * period

    kinds: dict[bytes, list[tuple[int, int]]] = {}
    for begin, end in zip(begins[is_long].tolist(), ends[is_long].tolist()):
        pattern = sizes[begin : begin + period].tobytes()
        kind, rotation = _rotated_kind(pattern, kinds)
        if kind in kinds or len(kinds) < _KINDS_MAX:
            steps = (end - begin - rotation) // period
            kinds.setdefault(kind, []).append((begin + rotation, steps))
    return [PeriodicRecords(period, *np.array(ranges, np.intp).T) for ranges in kinds.values()]


def _rotated_kind(pattern: bytes, kinds: dict[bytes, list[tuple[int, int]]]) -> tuple[bytes, int]:
    """Return the known kind that the pattern is a rotation of, and the record it then begins with.

    Two ranges of the same steps may begin at different records of a step. An unknown pattern is a
    kind of its own.
    """
    if pattern in kinds:
        return pattern, 0
    # A rotation of a word is a part of the word written twice.
    twice, size = pattern + pattern, np.dtype(np.uint32).itemsize
    for kind in kinds:
        at = twice.find(kind)
        if at >= 0 and at % size == 0:
            return kind, at // size
    return pattern, 0
