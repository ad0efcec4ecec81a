"""Histograms as TensorBoard's first HTTP API gave them: as they were logged, or as values at fixed shares of the whole.

Writers of its time logged min, max, num, sum, sum of squares, limits and counts, which are kept and come back as they
were. Later ones log rows of (left edge, right edge, count): sum and sum of squares are then estimates, as if the values
were spread evenly within each bucket, and min and max are the edges of the outermost buckets with something in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.types import Float64s, TensorValue
from tbwire import tensors
from tbwire.wire_pb2 import LegacyHistogram

BASIS_POINTS: Final = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)
"""Where a compressed histogram is read: the median, and 0.5, 1 and 1.5 standard deviations to each side of a normal
distribution's, in hundredths of a percent, between minimum and maximum: what TensorBoard's distributions show."""

_ROW_LENGTH: Final = 3  # left edge, right edge, count


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` values lie at or below `limits[i]` and above the limit before it; all float64."""

    minimum: float
    maximum: float
    count: float
    total: float
    sum_of_squares: float
    limits: Float64s
    counts: Float64s


def from_tensor(value: TensorValue) -> Histogram:
    """The histogram that a point of a histogram series holds; an empty one when it is of no shape that is known."""
    if value.histogram is not None:
        return _from_message(LegacyHistogram.FromString(value.histogram))
    if value.shape[1:] != (_ROW_LENGTH,) or value.dtype == tensors.STRING:
        return _from_rows(np.empty((0, _ROW_LENGTH)))
    return _from_rows(tensors.to_numpy(value.dtype, value.shape, value.data).astype(np.float64))


def compress(histogram: Histogram) -> list[tuple[int, float]]:
    """(basis points, value) pairs: the value below which such a share of all lies, interpolated within its bucket."""
    filled = np.flatnonzero(histogram.counts > 0)
    if not len(filled):
        return [(point, 0.0) for point in BASIS_POINTS]
    lefts = np.maximum(np.append(-np.inf, histogram.limits[:-1])[filled], histogram.minimum)
    rights = np.minimum(histogram.limits[filled], histogram.maximum)
    shares = np.append(0.0, np.cumsum(histogram.counts[filled]))
    wanted = np.array(BASIS_POINTS) / BASIS_POINTS[-1] * shares[-1]
    at = np.clip(np.searchsorted(shares, wanted, "right") - 1, 0, len(filled) - 1)
    within = (wanted - shares[at]) / (shares[at + 1] - shares[at])
    values = lefts[at] + within * (rights[at] - lefts[at])
    return list(zip(BASIS_POINTS, values.tolist(), strict=True))


def _from_message(message: LegacyHistogram) -> Histogram:
    limits, counts = np.array(message.bucket_limit), np.array(message.bucket)
    return Histogram(
        message.min, message.max, message.num, message.sum, message.sum_squares, limits, counts
    )


def _from_rows(rows: Float64s) -> Histogram:
    lefts, rights, counts = rows.T
    filled = np.flatnonzero(counts > 0)
    if not len(filled):
        return Histogram(0.0, 0.0, 0.0, 0.0, 0.0, rights, counts)
    means = (lefts + rights) / 2
    squares = (lefts**2 + lefts * rights + rights**2) / 3
    return Histogram(
        float(lefts[filled[0]]),
        float(rights[filled[-1]]),
        float(counts.sum()),
        float((counts * means).sum()),
        float((counts * squares).sum()),
        rights,
        counts,
    )
