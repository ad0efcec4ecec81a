"""Sampling rules that read all points of a series, chunk by chunk.

A sampler maps ascending steps and their values to the indices of the points to keep. It is
incremental: applied to the points kept so far followed by the next chunk, it keeps the same points
as if applied to the complete series, so that memory is bounded. Uniform samples of scalar series do
not need all points: see `uniform`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from tbservice.sample_order import choose_uniform_sample, compute_slots
from tbservice.series.tables import sample_slots
from tbservice.types.identifiers import Booleans, Float64s, Int64s, Ranks
from tbservice.types.sampling import Sampling, SamplingRule

BUCKET_POINTS_MAX: Final = 5
"""Points that `ExtremesSampler` keeps of a bucket: first, least, greatest and last, and a NaN."""

_STEP_BITS: Final = 64
_NO_SLOTS: Final = np.empty(0, np.bool_)

Indices = npt.NDArray[np.intp]
Sampler = Callable[[Int64s, Float64s], Indices]


Ends = tuple[int, int]
"""First and last step of a range; (0, -1) if it is empty."""


def find_ends(steps: Int64s) -> Ends:
    """Return the ends of ascending steps."""
    return (int(steps[0]), int(steps[-1])) if len(steps) else (0, -1)


def prepare_samplers(db: Connection, sampling: Sampling) -> Callable[[Ends], Sampler]:
    """Return a function that makes the sampler of a series from the ends of the range to sample."""
    ranks = sample_slots.get_ranks(db)
    is_drawn = _NO_SLOTS
    if sampling.rule is SamplingRule.BERNOULLI:
        is_drawn = sample_slots.draw_slots(db, sampling.percent, sampling.seed)
    return lambda ends: make_sampler(sampling, ends, ranks, is_drawn)


def make_sampler(sampling: Sampling, ends: Ends, ranks: Ranks, is_drawn: Booleans) -> Sampler:
    """Return the sampler of a series.

    Args:
        sampling: Rule and its parameters.
        ends: Ends of the range to sample. Used by `linear`.
        ranks: Rank of each sample slot. Used by `uniform`.
        is_drawn: Whether each sample slot was drawn, by TABLESAMPLE. Used by `bernoulli`.
    """
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
    kept = choose_uniform_sample(steps, k, ranks)
    assert kept is not None  # noqa: S101 - with all ranks as candidates, there are always enough
    return kept


def _bernoulli(is_drawn: Booleans, steps: Int64s, _values: Float64s) -> Indices:
    """Return the points in drawn slots, and always the first and the last."""
    is_kept = is_drawn[compute_slots(steps)]
    is_kept[:1] = is_kept[-1:] = True
    return np.flatnonzero(is_kept)


def _boundaries(first: int, last: int, k: int) -> Int64s:
    """Return the ends of k - 1 equal intervals from `first` to `last`, rounded up to integers.

    For k = 1, `last` only. The ends are distinct, so that a huge `k` gives at most
    `last - first + 1` of them.
    """
    count = min(k, last - first + 1)
    if count <= 1:
        return np.array([last][:count], np.int64)

    quotient, remainder = divmod(last - first, count - 1)
    # Modulo 2^64: a span may exceed int64. No result overflows, as the greatest is `last`.
    ends = np.arange(count, dtype=np.uint64)
    offsets = ends * np.uint64(quotient) + _spread_remainder(ends, remainder, count - 1)
    return (offsets + np.array([first], np.int64).view(np.uint64)).view(np.int64)


def _spread_remainder(
    ends: npt.NDArray[np.uint64], remainder: int, intervals: int
) -> npt.NDArray[np.uint64]:
    """Return the share of the remainder before each end: its index * remainder / intervals, up."""
    return (ends * np.uint64(remainder) + np.uint64(intervals - 1)) // np.uint64(intervals)


def _linear(boundaries: Int64s, steps: Int64s, _values: Float64s) -> Indices:
    """Return the lowest step at or after each boundary, if any."""
    # Several boundaries may have the same next step.
    indices = np.unique(np.searchsorted(steps, boundaries))
    return indices[indices < len(steps)]


class ExtremesSampler:
    """Sampler of at most `k` points (0, or at least 5) that keeps the extremes of buckets of steps.

    A bucket is an aligned range of steps with a power of two as its length. It keeps its first and
    last point, its first least and first greatest value and its first NaN, independently of other
    buckets. Buckets are as short as `k` allows, and only grow from chunk to chunk. Series of at
    most `k` points are kept completely.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._shift = -1
        """Binary logarithm of the bucket length; negative while all points were kept."""

    def __call__(self, steps: Int64s, values: Float64s) -> Indices:
        """Return the indices of the points to keep. `steps` includes all points kept before."""
        if not self._k or not len(steps):
            return np.arange(0)
        if self._shift < 0 and len(steps) <= self._k:
            return np.arange(len(steps))
        self._shift = _shortest_shift(steps, self._k // BUCKET_POINTS_MAX, max(self._shift, 0))
        return _bucket_extremes(values, _bucket_starts(steps, self._shift))


def _bucket_extremes(values: Float64s, starts: Indices) -> Indices:
    """Return the indices kept by the buckets that begin at these indices."""
    ends = np.append(starts[1:], len(values)) - 1
    sizes = np.diff(np.append(starts, len(values)))
    # NaN is neither least nor greatest, and numpy's minimum of anything with NaN is NaN.
    is_nan = np.isnan(values)
    least = np.minimum.reduceat(np.where(is_nan, np.inf, values), starts)
    greatest = np.maximum.reduceat(np.where(is_nan, -np.inf, values), starts)
    kinds = (values == np.repeat(least, sizes), values == np.repeat(greatest, sizes), is_nan)
    return np.unique(
        np.concatenate([starts, ends, *(_first_of_each_bucket(kind, starts) for kind in kinds)])
    )


def _shortest_shift(steps: Int64s, count_max: int, low: int) -> int:
    """Return the least bucket length (as log2) with at most `count_max` nonempty buckets."""
    high = _STEP_BITS  # a single bucket
    while low < high:
        shift = (low + high) // 2
        if len(_bucket_starts(steps, shift)) <= count_max:
            high = shift
        else:
            low = shift + 1
    return low


def _bucket_starts(steps: Int64s, shift: int) -> Indices:
    """Return the index of the first step of each nonempty bucket."""
    buckets = steps >> shift if shift < _STEP_BITS else np.zeros(len(steps), np.int64)
    return np.append(0, np.flatnonzero(buckets[1:] != buckets[:-1]) + 1)


def _first_of_each_bucket(is_match: Booleans, starts: Indices) -> Indices:
    """Return the index of the first match in each bucket that has one."""
    matches = np.flatnonzero(is_match)
    _, first = np.unique(np.searchsorted(starts, matches, side="right"), return_index=True)
    return matches[first]
