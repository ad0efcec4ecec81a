"""Histograms of the classic API: as logged, or compressed to values at fixed basis points.

Old writers log a HistogramProto (`tensorboard/compat/proto/histogram.proto`): min, max, num, sum,
sum of squares, bucket limits and counts, which are stored and returned unchanged. Newer writers log
a tensor with rows of (left edge, right edge, count): `tensorboard/plugins/histogram/summary_v2.py`.
For these, sum and sum of squares are estimates, as if values were distributed evenly within each
bucket, and min and max are the outer edges of the outermost buckets that are not empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.samples import TensorValue
from tbservice.types.identifiers import Float64s
from tbwire import tensors
from tbwire.wire_pb2 import LegacyHistogram

BASIS_POINTS: Final = (0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000)
"""Quantiles of compressed histograms, in hundredths of a percent.

Minimum, maximum, median, and 0.5, 1 and 1.5 standard deviations of a normal distribution to each
side: `NORMAL_HISTOGRAM_BPS` of `tensorboard/plugins/distribution/compressor.py`.
"""

_ROW_LENGTH: Final = 3  # left edge, right edge, count


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram: `counts[i]` values are in the bucket (`limits[i - 1]`, `limits[i]`].

    All numbers are float64. The first bucket begins at minus infinity; `total` is the sum.
    """

    minimum: float
    maximum: float
    count: float
    total: float
    sum_of_squares: float
    limits: Float64s
    counts: Float64s


def from_tensor(value: TensorValue) -> Histogram:
    """Return the histogram of a point; an empty one if the tensor's shape is not [buckets, 3]."""
    if value.histogram is not None:
        return _from_message(LegacyHistogram.FromString(value.histogram))
    if value.shape[1:] != (_ROW_LENGTH,) or value.dtype == tensors.STRING:
        return _from_rows(np.empty((0, _ROW_LENGTH)))
    return _from_rows(tensors.to_numpy(value.dtype, value.shape, value.data).astype(np.float64))


def compress(histogram: Histogram) -> list[tuple[int, float]]:
    """Return (basis points, value) pairs: the quantiles, interpolated linearly within buckets.

    All values are 0 for an empty histogram.
    """
    filled = np.flatnonzero(histogram.counts > 0)
    if not len(filled):
        return [(point, 0.0) for point in BASIS_POINTS]

    lefts = np.maximum(np.append(-np.inf, histogram.limits[:-1])[filled], histogram.minimum)
    rights = np.minimum(histogram.limits[filled], histogram.maximum)
    cumulative = np.append(0.0, np.cumsum(histogram.counts[filled]))

    targets = np.array(BASIS_POINTS) / BASIS_POINTS[-1] * cumulative[-1]
    buckets = np.clip(np.searchsorted(cumulative, targets, "right") - 1, 0, len(filled) - 1)
    fractions = (targets - cumulative[buckets]) / (cumulative[buckets + 1] - cumulative[buckets])
    values = lefts[buckets] + fractions * (rights[buckets] - lefts[buckets])
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

    # The mean of x and of x² for values distributed evenly in [left, right].
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
