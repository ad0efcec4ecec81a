"""Parameters of a read of series: a selection, a range of steps, and a sampling rule."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from tbservice.types.series import Series
from tbwire.points import DataClass


@dataclass(frozen=True, slots=True)
class Selection:
    """The series to list or read: every pair of these runs and tags, of one plugin and data class.

    None selects all, an empty set selects none. Scalar series must also have their last value in
    [last_value_min, last_value_max], if one is set; NaN is outside of every range.
    """

    plugin: str | None = None
    runs: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    data_class: DataClass | None = None
    last_value_min: float | None = None
    last_value_max: float | None = None


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps from `first` to `last`, inclusive; empty if `first` is greater."""

    first: int = -(2**63)
    last: int = 2**63 - 1

    def covers(self, series: Series) -> bool:
        """Return whether every point of the series is in the range."""
        return self.first <= series.first_step and series.last_step <= self.last


ALL_STEPS: Final = StepRange()


class SamplingRule(enum.StrEnum):
    """How the points of a sample are chosen along the step axis."""

    UNIFORM = "uniform"
    BERNOULLI = "bernoulli"
    LINEAR = "linear"
    EXTREMES = "extremes"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Sampling:
    """The points to return of each series: of the `last` points in `steps`, some, by a rule.

    At most `k` points; for a Bernoulli sample about `percent` of them instead, drawn with `seed`.
    If `last` is None, all points in `steps` are eligible.
    """

    rule: SamplingRule = SamplingRule.UNIFORM
    k: int = 0
    percent: float = 100.0
    seed: int = 0
    steps: StepRange = ALL_STEPS
    last: int | None = None

    def points_max(self, count: int) -> int:
        """Return the maximum size of a sample of `count` points; an estimate if Bernoulli."""
        count = count if self.last is None else min(count, self.last)
        if self.rule is SamplingRule.ALL:
            return count
        if self.rule is SamplingRule.BERNOULLI:
            return min(count, 2 + int(count * self.percent / 100))
        return min(count, self.k)
