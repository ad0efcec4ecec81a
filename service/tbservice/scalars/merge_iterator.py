"""Merges what is not sealed of a scalar series into its sealed blocks, in step order and in bounded memory.

The sealed blocks stand in step order. Tail rows and open blocks do not, and may be any number: they are looked through
for the least steps that fit a window, and again for the next window when the merge has come to the end of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tbservice.types import ALL_STEPS, Int64s, StepRange
from tbwire.digests import SCALAR_RECORD, Records


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Records of one row, and the order of its arrival among the rows of its series: the later wins a tie."""

    records: Records
    order: int


@dataclass(frozen=True, slots=True)
class _StepWindow:
    """Records in step order, one a step, with their orders of arrival: all up to step `through`, or all there are."""

    records: Records
    orders: Int64s
    through: int | None

    def split(self, step: int) -> tuple[_StepWindow, _StepWindow]:
        """What is at most `step`, and the rest."""
        place = int(np.searchsorted(self.records["step"], step, "right"))
        return (
            _StepWindow(self.records[:place], self.orders[:place], step),
            _StepWindow(self.records[place:], self.orders[place:], self.through),
        )


class UnsortedRows:
    """The rows of a series that are not sealed; `read` gives them from the beginning, each time it is called.

    Only points up to the step `last` are looked at.
    """

    def __init__(
        self, read: Callable[[], Iterable[RowRecords]], points_max: int, last: int
    ) -> None:
        self._read = read
        self._points_max = points_max
        self._last = last

    def read_window(self, after: int | None) -> _StepWindow:
        """The `points_max` least steps greater than `after`, the newest point of each."""
        kept = _StepWindow(np.empty(0, SCALAR_RECORD), np.empty(0, np.int64), None)
        waiting: list[_StepWindow] = []
        for row in self._read():
            records = _slice_steps(
                row.records, after, self._last if kept.through is None else kept.through
            )
            waiting.append(_StepWindow(records, np.full(len(records), row.order), None))
            if sum(len(part.records) for part in waiting) > self._points_max:
                kept, waiting = self._keep_least_steps([kept, *waiting]), []
        return self._keep_least_steps([kept, *waiting])

    def _keep_least_steps(self, parts: list[_StepWindow]) -> _StepWindow:
        newest = _deduplicate_steps(parts)
        through = parts[0].through
        if len(newest.records) <= self._points_max:
            return _StepWindow(newest.records, newest.orders, through)
        return newest.split(int(newest.records["step"][self._points_max - 1]))[0]


def merge_rows(
    unsorted: UnsortedRows, sealed: Iterable[RowRecords], steps: StepRange
) -> Iterator[Records]:
    """All points of these steps, in step order and in pieces; `unsorted` ends with them, and blocks are in order."""
    after = None if steps.first == ALL_STEPS.first else steps.first - 1
    window = unsorted.read_window(after)
    for block in sealed:
        rest = _slice_steps(block.records, after, steps.last)
        while len(rest):
            last = int(rest["step"][-1])
            through = last if window.through is None else min(last, window.through)
            taken, window = window.split(through)
            place = int(np.searchsorted(rest["step"], through, "right"))
            orders = np.full(place, block.order)
            yield _deduplicate_steps([_StepWindow(rest[:place], orders, None), taken]).records
            rest = rest[place:]
            if window.through == through:
                window = unsorted.read_window(through)
    while True:
        yield window.records
        if window.through is None:
            return
        window = unsorted.read_window(window.through)


def _slice_steps(records: Records, after: int | None, through: int) -> Records:
    """The records with a step in (after, through]; they stand in step order."""
    steps = records["step"]
    first = 0 if after is None else int(np.searchsorted(steps, after, "right"))
    end = int(np.searchsorted(steps, through, "right"))
    return records[first:end]


def _deduplicate_steps(parts: list[_StepWindow]) -> _StepWindow:
    filled = [part for part in parts if len(part.records)]
    if len(filled) <= 1:  # each part has one point a step already
        return filled[0] if filled else parts[0]
    records = np.concatenate([part.records for part in filled])
    orders = np.concatenate([part.orders for part in filled])
    chosen = np.lexsort((orders, records["wall_time"], records["step"]))
    steps = records["step"][chosen]
    chosen = chosen[np.append(steps[1:] != steps[:-1], True)]
    return _StepWindow(records[chosen], orders[chosen], None)
