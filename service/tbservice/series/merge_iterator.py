"""Merge the unsealed points of a scalar series into its sealed blocks, in step order.

Memory is bounded: sealed blocks are in step order, but write buffer rows and open blocks are not,
and may be many. They are scanned for the least steps that fit a window, and again for each next
window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tbservice.series.restarts import find_periods
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbservice.types.identifiers import Float64s, Int64s
from tbservice.types.sampling import ALL_STEPS, StepRange
from tbwire.dedup import deduplicated_order
from tbwire.points import ScalarPoints


@dataclass(frozen=True, slots=True)
class RowPoints:
    """Points of one row, in step order, and its position in the order of arrival.

    The later row wins among points with equal step and wall time.
    """

    points: ScalarPoints
    order: int


@dataclass(frozen=True, slots=True)
class _StepWindow:
    """Points in step order, one per step (or step and period), with their order of arrival.

    They are complete up to the step `through`; None if none follow.
    """

    points: ScalarPoints
    orders: Int64s
    through: int | None

    def split(self, step: int) -> tuple[_StepWindow, _StepWindow]:
        """Return the points up to and including `step`, and those after it."""
        index = int(np.searchsorted(self.points.steps, step, "right"))
        first, rest = slice(index), slice(index, None)
        return (
            _StepWindow(self.points.select(first), self.orders[first], step),
            _StepWindow(self.points.select(rest), self.orders[rest], self.through),
        )


class UnsortedRows:
    """The unsealed rows of a series; each call of `read` returns them from the first one.

    Points after the step `last` are ignored. With `restarts`, the newest point of each period of a
    step remains, in place of that of the step.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[RowPoints]],
        points_max: int,
        last: int,
        restarts: Float64s | None = None,
    ) -> None:
        self._read = read
        self._points_max = points_max
        self._last = last
        self.restarts = restarts

    def read_window(self, after: int | None) -> _StepWindow:
        """Return the `points_max` least steps greater than `after`, the newest point of each."""
        window = _StepWindow(EMPTY_POINTS, np.empty(0, np.int64), None)
        pending: list[_StepWindow] = []
        for row in self._read():
            through = self._last if window.through is None else window.through
            points = _slice_steps(row.points, after, through)
            # Collected, and deduplicated only when they are too many: one sort for many small rows.
            pending.append(_StepWindow(points, np.full(len(points), row.order), None))
            if sum(len(rows.points) for rows in pending) > self._points_max:
                window, pending = self._select_least_steps([window, *pending]), []
        return self._select_least_steps([window, *pending])

    def _select_least_steps(self, windows: list[_StepWindow]) -> _StepWindow:
        newest = _deduplicate_steps(windows, self.restarts)
        through = windows[0].through
        if len(newest.points) <= self._points_max:
            return _StepWindow(newest.points, newest.orders, through)
        return newest.split(int(newest.points.steps[self._points_max - 1]))[0]


def merge_rows(
    unsorted: UnsortedRows, sealed: Iterable[RowPoints], steps: StepRange
) -> Iterator[ScalarPoints]:
    """Yield all points in a step range, in step order and in chunks.

    Args:
        unsorted: The unsealed rows, read up to the end of the range.
        sealed: The sealed blocks that overlap the range, in step order.
        steps: The range.
    """
    after = _find_before(steps)
    window = unsorted.read_window(after)
    for block in sealed:
        rest = _slice_steps(block.points, after, steps.last)
        while len(rest):
            last = int(rest.steps[-1])
            through = last if window.through is None else min(last, window.through)
            unsealed, window = window.split(through)
            index = int(np.searchsorted(rest.steps, through, "right"))
            orders = np.full(index, block.order)
            windows = [_StepWindow(rest.select(slice(index)), orders, None), unsealed]
            yield _deduplicate_steps(windows, unsorted.restarts).points
            # A sealed block may be longer than the window of unsealed points: it is consumed in
            # parts.
            rest = rest.select(slice(index, None))
            if window.through == through:
                window = unsorted.read_window(through)

    # The points that follow the last sealed block.
    while True:
        yield window.points
        if window.through is None:
            return
        window = unsorted.read_window(window.through)


def slice_steps(points: ScalarPoints, steps: StepRange) -> ScalarPoints:
    """Return the points, which are in step order, with a step in the range."""
    return points if steps == ALL_STEPS else _slice_steps(points, _find_before(steps), steps.last)


def _find_before(steps: StepRange) -> int | None:
    return None if steps.first == ALL_STEPS.first else steps.first - 1


def _slice_steps(points: ScalarPoints, after: int | None, through: int) -> ScalarPoints:
    """Return the points, which are in step order, with a step in (after, through]."""
    first = 0 if after is None else int(np.searchsorted(points.steps, after, "right"))
    end = int(np.searchsorted(points.steps, through, "right"))
    return points.select(slice(first, end))


def _deduplicate_steps(windows: list[_StepWindow], restarts: Float64s | None = None) -> _StepWindow:
    nonempty = [window for window in windows if len(window.points)]
    if len(nonempty) <= 1:  # each window has one point per step already
        return nonempty[0] if nonempty else windows[0]
    points = concatenate([window.points for window in nonempty])
    orders = np.concatenate([window.orders for window in nonempty])
    periods = None if restarts is None else find_periods(points.wall_times, restarts)
    remaining = deduplicated_order(points.steps, points.wall_times, orders, periods)
    return _StepWindow(points.select(remaining), orders[remaining], None)
