"""Statistics over several runs of one metric, at each step: the rule, in numpy, without I/O.

A run has a value at a step from its first step to its last one: that of its point there, or else
the linear interpolation of the points before and after it. It is never extrapolated. A value that
is not finite, or is interpolated from such a point, is not counted: `not_finite` has how many there
are. The statistics are those of the finite values. docs/runs.md has the rule with its reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.types.identifiers import Float64s, Int64s

_MATRIX_VALUES_MAX: Final = 2**20
"""Values that are sorted at once, 8 MiB: steps of all runs, at least one step."""

_HALF: Final = 0.5


@dataclass(frozen=True, slots=True)
class RunCurve:
    """The points of a run: ascending steps without repetitions, and a value of each.

    Runs with equal steps should share the array: what follows from steps is computed once for it.
    `wall_times` are those of the points, if they were asked for.
    """

    steps: Int64s
    values: Float64s
    wall_times: Float64s | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics at each of some steps; NaN where there are none.

    `counts` has the runs whose values are counted, `not_finite` those whose values are not finite.
    `std` is the sample standard deviation (divided by N - 1), `stderr` is it divided by √N: NaN of
    a single run. `quantiles` has one array for each quantile, interpolated linearly as numpy's.
    """

    steps: Int64s
    counts: Int64s
    not_finite: Int64s
    mean: Float64s
    std: Float64s
    stderr: Float64s
    median: Float64s
    min: Float64s
    max: Float64s
    quantiles: Sequence[Float64s]


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """Number of finite values of each group, their mean and sample standard deviation, or NaN."""

    counts: Int64s
    mean: Float64s
    std: Float64s


@dataclass(frozen=True, slots=True)
class _Places:
    """Places of the values at some steps among the points of a run.

    Those of the steps `start:end` are between the points `left` and `left + 1`, at the fraction
    `weights` of the way; None if all are at `left`.
    """

    start: int
    end: int
    left: Int64s
    weights: Float64s | None


def compute_means(values: Float64s, groups: Int64s, count: int) -> GroupMeans:
    """Return the statistics of single values, each of the group with its number below `count`."""
    is_finite = np.isfinite(values)
    order = np.lexsort((values[is_finite], groups[is_finite]))  # sums as in any order of the runs
    numbers, owners = values[is_finite][order], groups[is_finite][order]
    counts = np.bincount(owners, minlength=count)
    least, greatest = np.full((2, count), np.nan)
    ends = np.cumsum(counts)[counts > 0]
    greatest[counts > 0] = numbers[ends - 1]
    least[counts > 0] = numbers[ends - counts[counts > 0]]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.clip(np.bincount(owners, numbers, count) / counts, least, greatest)
        squares = np.bincount(owners, np.square(numbers - mean[owners]), count)
        std = np.where(counts > 1, np.sqrt(squares / (counts - 1)), np.nan)
    return GroupMeans(counts, mean, std)


def unite_steps(runs: Sequence[RunCurve]) -> Int64s:
    """Return all steps of the runs, ascending."""
    distinct = {id(run.steps): run.steps for run in runs}
    arrays = list(distinct.values())
    if len(arrays) == 1:
        return arrays[0]
    return np.unique(np.concatenate([np.empty(0, np.int64), *arrays]))


def thin_steps(steps: Int64s, items_max: int) -> Int64s:
    """Return at most this number of the steps, at equal distances in their order.

    The first and the last one remain, of one step the last. Which ones remain depends on the steps
    alone.
    """
    return steps[_list_places(len(steps), items_max)] if len(steps) > items_max else steps


def list_grid(first: int, last: int, every: int, items_max: int) -> tuple[Int64s, int]:
    """Return the multiples of `every` from `first` to `last`, thinned, and how many there are."""
    begin = -(-first // every)
    count = max(0, last // every - begin + 1)
    places = _list_places(count, items_max) if count > items_max else range(count)
    return np.array([(begin + place) * every for place in places], np.int64), count


def _list_places(count: int, items_max: int) -> list[int]:
    """Return `items_max` of the numbers below `count`, at equal distances, as integers: exact."""
    if items_max == 1:
        return [count - 1]
    gaps = items_max - 1
    return [(index * (count - 1) + gaps // 2) // gaps for index in range(items_max)]


def compute_spread(
    runs: Sequence[RunCurve], steps: Int64s, quantiles: Sequence[float] = ()
) -> Spread:
    """Return the statistics of the runs at some steps, in any order of the runs the same.

    Args:
        runs: At least one.
        steps: Ascending.
        quantiles: From 0 to 1.
    """
    length = max(1, _MATRIX_VALUES_MAX // len(runs))
    slices = [steps[start : start + length] for start in range(0, len(steps), length)]
    blocks = [_compute_block(read_matrix(runs, part), quantiles) for part in slices or [steps]]
    counts, not_finite = (np.concatenate([block[0][i] for block in blocks]) for i in range(2))
    mean, std, median, least, greatest, *others = (
        np.concatenate(columns) for columns in zip(*(block[1] for block in blocks), strict=True)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        stderr = std / np.sqrt(counts)
    return Spread(
        steps, counts, not_finite, mean, std, stderr, median, least, greatest, tuple(others)
    )


def read_matrix(runs: Sequence[RunCurve], steps: Int64s) -> tuple[Float64s, Int64s]:
    """Return the values of each run (columns) at each step (rows), NaN for none or not finite.

    Also return how many runs have a value at each step, finite or not.
    """
    values = np.full((len(runs), len(steps)), np.nan)
    present = np.zeros(len(steps), np.int64)
    known: dict[int, _Places] = {}
    for row, run in zip(values, runs, strict=True):
        key = id(run.steps)
        if key not in known:
            known[key] = _find_places(run.steps, steps)
        places = known[key]
        row[places.start : places.end] = _interpolate(run.values, places)
        present[places.start : places.end] += 1
    values[~np.isfinite(values)] = np.nan
    return np.ascontiguousarray(values.T), present


def _find_places(own: Int64s, steps: Int64s) -> _Places:
    if not len(own):
        return _Places(0, 0, np.empty(0, np.int64), None)
    start = int(np.searchsorted(steps, own[0]))
    end = int(np.searchsorted(steps, own[-1], "right"))
    wanted = steps[start:end]
    left = np.searchsorted(own, wanted, "right") - 1
    if np.array_equal(own[left], wanted):
        return _Places(start, end, left, None)
    right = np.minimum(left + 1, len(own) - 1)
    # Differences of steps may exceed int64; modulo 2^64 they are exact.
    lengths = own[right].view(np.uint64) - own[left].view(np.uint64)
    distances = np.ascontiguousarray(wanted).view(np.uint64) - own[left].view(np.uint64)
    weights = np.divide(distances, lengths, out=np.zeros(len(wanted)), where=lengths > 0)
    return _Places(start, end, left, weights)


def _interpolate(values: Float64s, places: _Places) -> Float64s:
    before = values[places.left]
    if places.weights is None:
        return before
    after = values[np.minimum(places.left + 1, len(values) - 1)]
    # A point of its own at the step: its neighbour does not matter, even if it is not finite.
    return np.where(places.weights == 0, before, _mix(before, after, places.weights))


def _mix(low: Float64s, high: Float64s, weights: Float64s) -> Float64s:
    """Return the values at a fraction of the way from `low` to `high`: exact if these are equal."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = high - low
        near_low, near_high = low + difference * weights, high - difference * (1 - weights)
        mixed = np.where(weights < _HALF, near_low, near_high)
        # The difference of two finite values may not be finite.
        return np.where(np.isfinite(difference), mixed, low * (1 - weights) + high * weights)


def _compute_block(
    matrix: tuple[Float64s, Int64s], quantiles: Sequence[float]
) -> tuple[tuple[Int64s, Int64s], list[Float64s]]:
    """Return (counts, not finite) and [mean, std, median, min, max, *quantiles] of each row."""
    values, present = matrix
    values.sort(axis=1)  # NaN last; sums are then the same for any order of the runs
    is_missing = np.isnan(values)
    counts = values.shape[1] - is_missing.sum(axis=1)
    least, median, greatest, *others = list(
        _list_quantiles(values, counts, (0.0, 0.5, 1.0, *quantiles))
    )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Rounding may lead out of the range: then equal values would have a spread.
        values[is_missing] = 0.0
        mean = np.clip(values.sum(axis=1) / counts, least, greatest)
        values -= mean[:, np.newaxis]
        values[is_missing] = 0.0
        variance = np.square(values, out=values).sum(axis=1) / (counts - 1)
        std = np.where(counts > 1, np.sqrt(variance), np.nan)
    return (counts, present - counts), [mean, std, median, least, greatest, *others]


def _list_quantiles(
    values: Float64s, counts: Int64s, quantiles: Sequence[float]
) -> Iterator[Float64s]:
    """Yield each quantile of the first `counts` values of each row, which are sorted."""
    rows = np.arange(len(values))
    last = np.maximum(counts - 1, 0)
    for quantile in quantiles:
        places = quantile * last
        below = np.floor(places).astype(np.int64)
        above = np.minimum(below + 1, last)
        yield _mix(values[rows, below], values[rows, above], places - below)
