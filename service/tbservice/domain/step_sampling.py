"""Samples of a series on the axis of its steps that need all of its points: at equal distances, with all extremes.

The sample that does without them, `uniform`, is in `sampling`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tbservice.types import Float64s, Int64s

BUCKET_POINTS_MAX: Final = 5
"""Points that `extremes` keeps of a bucket: its first, least, greatest and last, and a NaN."""

_STEP_BITS: Final = 64

Indices = npt.NDArray[np.intp]


def linear(steps: Int64s, k: int) -> Indices:
    """Indices, ascending, of at most `k` of these ascending steps: k - 1 equal intervals from the first to the last.

    At each of their ends the lowest step at or after it; of k = 1 the last step.
    """
    n = len(steps)
    if k <= 1 or n <= 1:
        return np.arange(n)[n - k :] if k else np.arange(0)
    offsets = steps.view(np.uint64) - steps.view(np.uint64)[0]  # modulo 2^64, so that any span is right
    whole, rest = divmod(int(offsets[-1]), k - 1)
    # The greatest of the ends is the last step, so that nothing here passes 2^64; a span of n has at most n + 1 ends.
    ends = np.arange(k, dtype=np.uint64)
    boundaries = ends * np.uint64(whole) + (ends * np.uint64(rest) + np.uint64(k - 2)) // np.uint64(k - 1)
    return np.unique(np.searchsorted(offsets, boundaries))


def extremes(steps: Int64s, values: Float64s, k: int) -> Indices:
    """Indices, ascending, of at most `k` of these ascending steps (k is 0, or 5 and more): every extreme is among them.

    A bucket is a range of steps: a power of two long, and beginning at a multiple of its length. Each keeps its first
    and last point, its least and greatest value (the first such) and its first NaN, whatever there is outside it.
    """
    if not k or not len(steps):
        return np.arange(0)
    if len(steps) <= k:
        return np.arange(len(steps))
    starts = _bucket_starts(steps, k // BUCKET_POINTS_MAX)
    ends = np.append(starts[1:], len(steps)) - 1
    sizes = np.diff(np.append(starts, len(steps)))
    is_nan = np.isnan(values)
    least = np.minimum.reduceat(np.where(is_nan, np.inf, values), starts)
    greatest = np.maximum.reduceat(np.where(is_nan, -np.inf, values), starts)
    kinds = (values == np.repeat(least, sizes), values == np.repeat(greatest, sizes), is_nan)
    return np.unique(np.concatenate([starts, ends, *(_firsts(chosen, starts) for chosen in kinds)]))


def _bucket_starts(steps: Int64s, count_max: int) -> Indices:
    """Where the buckets begin, none of them empty: the shortest of which there are at most `count_max`."""
    low, high = 0, _STEP_BITS
    starts = np.zeros(1, np.intp)
    while low < high:
        shift = (low + high) // 2
        found = _starts(steps, shift)
        if len(found) <= count_max:
            high, starts = shift, found
        else:
            low = shift + 1
    return starts


def _starts(steps: Int64s, shift: int) -> Indices:
    buckets = steps >> shift
    return np.append(0, np.flatnonzero(buckets[1:] != buckets[:-1]) + 1)


def _firsts(chosen: npt.NDArray[np.bool_], starts: Indices) -> Indices:
    """The first chosen point of each bucket that has one."""
    at = np.flatnonzero(chosen)
    _, first = np.unique(np.searchsorted(starts, at, side="right"), return_index=True)
    return at[first]
