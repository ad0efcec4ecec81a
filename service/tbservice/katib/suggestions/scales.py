"""How values of a numeric parameter spread over the unit interval, by Katib's `Distribution`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from tbservice.katib import katib_pb2 as pb

LOGARITHMIC: Final = frozenset({pb.LOG_UNIFORM, pb.LOG_NORMAL})
BELL_SHAPED: Final = frozenset({pb.NORMAL, pb.LOG_NORMAL})

_NEXT_TO_ZERO: Final = 1e-10
"""Begin of a logarithmic scale when the least value is 0, as in Katib."""

_SHARE_MIN: Final = 2.0**-53

_RANGE_SIGMAS: Final = 6.0
"""Standard deviations between the least and the greatest value, as in Katib."""


@dataclass(frozen=True)
class Scale:
    """A strictly monotonic map from [0, 1] to the values of a parameter.

    A uniform position gives a value with the parameter's distribution. Normal distributions are
    cut off at the bounds, so that no position lies outside them.

    Attributes:
        low: The value (or its logarithm) at position 0.
        high: The same at position 1.
        is_log: Whether positions are those of logarithms.
        bell: The normal distribution that is cut off at `low` and `high`; None if uniform.
    """

    low: float
    high: float
    is_log: bool
    bell: NormalDist | None

    def value(self, position: float) -> float:
        """Return the value at a position in [0, 1]."""
        if self.bell is None:
            point = self.low * (1 - position) + self.high * position  # never overflows
        else:
            first, last = self.bell.cdf(self.low), self.bell.cdf(self.high)
            share = first + position * (last - first)
            # 0 and 1 have no inverse; steps may reach that far beyond the bounds.
            point = self.bell.inv_cdf(min(max(share, _SHARE_MIN), 1 - _SHARE_MIN))
        return math.exp(point) if self.is_log else point

    def position(self, value: float) -> float:
        """Return the position of a value; 0 or 1 for values outside the bounds."""
        if self.is_log:
            value = math.log(value) if value > 0 else -math.inf
        if not self.low < value < self.high:
            return 0.0 if value <= self.low else 1.0
        if self.bell is None:
            return value / (self.high - self.low) - self.low / (self.high - self.low)
        first, last = self.bell.cdf(self.low), self.bell.cdf(self.high)
        return (self.bell.cdf(value) - first) / (last - first)


def make_scale(low: float, high: float, step: float | None, distribution: int) -> Scale:
    """Return the scale of [low, high], where low < high and the difference is finite.

    With a step, the scale reaches half a step beyond both bounds: rounding to the next step then
    gives the bounds as much room as values between them.

    Args:
        low: The least value, not below 0 on a logarithmic scale.
        high: The greatest value; with a step, the greatest one on a step.
        step: The distance of values, or None if all values are allowed.
        distribution: A number of Katib's `Distribution`; unknown ones are uniform.
    """
    is_log = distribution in LOGARITHMIC
    first, last = low, high
    if step is not None:
        first, last = low - step / 2, high + step / 2
    if is_log and first <= 0:
        first = min(_NEXT_TO_ZERO, high / 2) if step is None else (low or step / 2) / 2
        first = first or last  # half of the least float is 0
    if is_log:
        first, last, low, high = (
            math.log(first),
            math.log(last),
            math.log(max(low, first)),
            math.log(high),
        )

    bell = None
    sigma = high / _RANGE_SIGMAS - low / _RANGE_SIGMAS
    if distribution in BELL_SHAPED and sigma > 0:
        bell = NormalDist(low / 2 + high / 2, sigma)
    return Scale(first, last, is_log, bell)
