"""Geometry of curves as SVG, for small curves in pages and for charts of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tbservice.types.identifiers import Float64s

_DIGITS_MIN: Final = 4
_DIGITS_MAX: Final = 16


def find_range(columns: Sequence[Float64s]) -> tuple[float, float] | None:
    """Return the least and the greatest finite number; None without any."""
    finite = [column[np.isfinite(column)] for column in columns]
    present = [column for column in finite if len(column)]
    if not present:
        return None
    return float(min(map(np.min, present))), float(max(map(np.max, present)))


def place(numbers: Float64s, low: float, high: float, start: float, end: float) -> Float64s:
    """Return numbers from [low, high] as positions from `start` to `end`.

    Without a difference of `low` and `high`, finite ones are in the middle.
    """
    if not high > low:
        return np.where(np.isfinite(numbers), (start + end) / 2, np.nan)
    # Halves: the difference of two large numbers may be infinite.
    fraction = (numbers / 2 - low / 2) / (high / 2 - low / 2)
    return start + np.asarray(fraction, np.float64) * (end - start)


def split_at_gaps(xs: Float64s, ys: Float64s) -> Iterator[list[str]]:
    """Yield the positions of points between gaps, each as SVG writes it; a gap is not finite."""
    is_drawn = np.isfinite(xs) & np.isfinite(ys)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_drawn, [False]]).astype(np.int8)))
    for start, end in edges.reshape(-1, 2).tolist():
        pairs = zip(xs[start:end].tolist(), ys[start:end].tolist(), strict=True)
        yield [f"{x:.1f},{y:.1f}" for x, y in pairs]


def outline(xs: Float64s, lower: Float64s, upper: Float64s) -> Iterator[list[str]]:
    """Yield the outline of the area between two bounds, for each part without a gap of either."""
    is_gap = ~(np.isfinite(lower) & np.isfinite(upper))
    bounds = (np.where(is_gap, np.nan, bound) for bound in (lower, upper))
    for below, above in zip(*(split_at_gaps(xs, bound) for bound in bounds), strict=True):
        yield [*above, *reversed(below)]


def format_ticks(ticks: Sequence[float]) -> list[str]:
    """Return the numbers of an axis with four significant digits, or more to tell them apart."""
    texts: list[str] = []
    for digits in range(_DIGITS_MIN, _DIGITS_MAX):
        texts = [f"{tick:.{digits}g}" for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    return texts
