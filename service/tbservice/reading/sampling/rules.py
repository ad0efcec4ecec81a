"""Samples of a series on the axis of its steps that look at all of its points, a piece at a time.

Each is a function from ascending steps, and their values, to the indices of those to keep. What it keeps of a series
is what it keeps of all that it kept of the series' pieces, one after the other, and so memory is bounded. The sample
that does without a look at all points, `uniform`, is in `sampling`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from tbservice.sample_order import choose_uniform_sample, compute_slots
from tbservice.store import sample_slots
from tbservice.types import Booleans, Float64s, Int64s, Ranks, Sampling, SamplingRule

BUCKET_POINTS_MAX: Final = 5
"""Points that `ExtremesSampler` keeps of a bucket: its first, least, greatest and last, and a NaN."""

_STEP_BITS: Final = 64
_NO_SLOTS: Final = np.empty(0, np.bool_)

Indices = npt.NDArray[np.intp]
Sampler = Callable[[Int64s, Float64s], Indices]


def draw_slots(db: Connection, sampling: Sampling) -> Booleans:
    """The slots of a Bernoulli sample, by a live TABLESAMPLE of them; none for any other."""
    if sampling.rule is not SamplingRule.BERNOULLI:
        return _NO_SLOTS
    return sample_slots.draw_slots(db, sampling.percent, sampling.seed)


def make_sampler(
    sampling: Sampling, ends: tuple[int, int], ranks: Ranks, is_drawn: Booleans
) -> Sampler:
    """How to choose among the points of a series whose first and last step, of those to sample from, are `ends`."""
    match sampling.rule:
        case SamplingRule.UNIFORM:
            return partial(_uniform, sampling.k, ranks)
        case SamplingRule.BERNOULLI:
            return partial(_bernoulli, is_drawn)
        case SamplingRule.LINEAR:
            return partial(_linear, _boundaries(*ends, sampling.k))
        case SamplingRule.EXTREMES:
            return ExtremesSampler(sampling.k)
        case SamplingRule.ALL:
            return _all


def _all(steps: Int64s, _values: Float64s) -> Indices:
    return np.arange(len(steps))


def _uniform(k: int, ranks: Ranks, steps: Int64s, _values: Float64s) -> Indices:
    chosen = choose_uniform_sample(steps, k, ranks)
    assert chosen is not None  # noqa: S101 - all ranks are candidates, so there are always enough
    return chosen


def _bernoulli(is_drawn: Booleans, steps: Int64s, _values: Float64s) -> Indices:
    """Those whose slot was drawn; the first and the last in any case."""
    kept = is_drawn[compute_slots(steps)]
    kept[:1] = kept[-1:] = True
    return np.flatnonzero(kept)


def _boundaries(first: int, last: int, k: int) -> Int64s:
    """The ends of k - 1 equal intervals from the first to the last step, rounded up to whole steps; of k = 1 the last.

    None twice, so that a huge `k` makes no more of them than there are steps between.
    """
    count = min(k, last - first + 1)
    if count <= 1:
        return np.array([last][:count], np.int64)
    whole, rest = divmod(last - first, count - 1)
    # Modulo 2^64, so that any span is right; the greatest is the last step, so that nothing passes it.
    ends = np.arange(count, dtype=np.uint64)
    offsets = ends * np.uint64(whole) + _spread_remainder(ends, rest, count - 1)
    return (offsets + np.array([first], np.int64).view(np.uint64)).view(np.int64)


def _spread_remainder(
    ends: npt.NDArray[np.uint64], rest: int, intervals: int
) -> npt.NDArray[np.uint64]:
    """The rest of the division, shared out over the intervals."""
    return (ends * np.uint64(rest) + np.uint64(intervals - 1)) // np.uint64(intervals)


def _linear(boundaries: Int64s, steps: Int64s, _values: Float64s) -> Indices:
    """The lowest step at or after each boundary, as far as there is one."""
    found = np.unique(np.searchsorted(steps, boundaries))
    return found[found < len(steps)]


class ExtremesSampler:
    """Keeps at most `k` points (0, or 5 and more) such that every extreme is among them; all, when they are no more.

    A bucket is a range of steps: a power of two long, and beginning at a multiple of its length. Each keeps its first
    and last point, its least and greatest value (the first such) and its first NaN, whatever there is outside it.
    Buckets are as short as `k` allows, and only grow while pieces come.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._shift = -1
        """The length of the buckets, as a power of two; negative while nothing was left out."""

    def __call__(self, steps: Int64s, values: Float64s) -> Indices:
        """Indices of the points to keep; among the steps are all that were kept before."""
        if not self._k or not len(steps):
            return np.arange(0)
        if self._shift < 0 and len(steps) <= self._k:
            return np.arange(len(steps))
        self._shift = _shortest_shift(steps, self._k // BUCKET_POINTS_MAX, max(self._shift, 0))
        return _bucket_extremes(values, _bucket_starts(steps, self._shift))


def _bucket_extremes(values: Float64s, starts: Indices) -> Indices:
    """What the buckets keep that begin at these indices."""
    ends = np.append(starts[1:], len(values)) - 1
    sizes = np.diff(np.append(starts, len(values)))
    is_nan = np.isnan(values)
    least = np.minimum.reduceat(np.where(is_nan, np.inf, values), starts)
    greatest = np.maximum.reduceat(np.where(is_nan, -np.inf, values), starts)
    kinds = (values == np.repeat(least, sizes), values == np.repeat(greatest, sizes), is_nan)
    return np.unique(
        np.concatenate([starts, ends, *(_first_of_each_bucket(chosen, starts) for chosen in kinds)])
    )


def _shortest_shift(steps: Int64s, count_max: int, low: int) -> int:
    """The length, as a power of two, of the shortest buckets of which at most `count_max` are not empty."""
    high = _STEP_BITS  # a single bucket
    while low < high:
        shift = (low + high) // 2
        if len(_bucket_starts(steps, shift)) <= count_max:
            high = shift
        else:
            low = shift + 1
    return low


def _bucket_starts(steps: Int64s, shift: int) -> Indices:
    """Where the buckets begin, none of them empty."""
    buckets = steps >> shift if shift < _STEP_BITS else np.zeros(len(steps), np.int64)
    return np.append(0, np.flatnonzero(buckets[1:] != buckets[:-1]) + 1)


def _first_of_each_bucket(chosen: Booleans, starts: Indices) -> Indices:
    """The first chosen point of each bucket that has one."""
    at = np.flatnonzero(chosen)
    _, first = np.unique(np.searchsorted(starts, at, side="right"), return_index=True)
    return at[first]
