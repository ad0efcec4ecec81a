"""Curves of groups of runs with bands, of several metrics at once: what our own pages draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from tbservice.errors import TooLarge
from tbservice.reading.version_cache import VersionCache
from tbservice.runs.curves import (
    CURVE_POINTS_MAX,
    CurvesPlan,
    CurvesQuery,
    GroupCurve,
    Scan,
    compute_curves,
    plan_groups,
    restrict_groups,
)
from tbservice.runs.grouped_reader import format_key
from tbservice.runs.grouping import GroupBy, RunGroups, group_runs
from tbservice.runs.selected_runs import SelectedRuns
from tbservice.runs.spread import Spread
from tbservice.types.identifiers import Float64s, Int64s
from tbservice.types.sampling import ALL_STEPS, StepRange
from tbwire.hparams import HparamValue

DRAWN_GROUP_ITEMS_MAX: Final = 10
"""Groups (items) that a page draws: as many as have a colour. Bands of more hide each other."""

GROUP_STEPS: Final = 200
"""Steps of one group on a card: the page itself has the numbers."""

KEPT_BYTES_MAX: Final = 32 * 2**20
"""Bytes of the curves that a worker keeps: of those who look at the same groups, one computes."""

_NAME_CHARS_MAX: Final = 500
_QUARTILES: Final = (0.25, 0.75)


class BandKind(NamedTuple):
    """Statistics that a card shows of a group, in words: all of it, the line, and its bounds."""

    title: str
    center: str
    lower: str
    upper: str


BAND_KINDS: Final[Mapping[str, BandKind]] = MappingProxyType(
    {
        "std": BandKind("Mean ± standard deviation", "Mean", "Mean - std", "Mean + std"),
        "stderr": BandKind("Mean ± standard error", "Mean", "Mean - stderr", "Mean + stderr"),
        "range": BandKind("Mean, minimum to maximum", "Mean", "Minimum", "Maximum"),
        "quartiles": BandKind("Median, 25 to 75 %", "Median", "25 %", "75 %"),
    }
)
"""Kinds of bands, by their name in an address."""

DEFAULT_BAND: Final = next(iter(BAND_KINDS))


class BandCurve(NamedTuple):
    """The line and the band of a group, NaN where there is none.

    `group` is its position among the drawn ones; `counts` has the runs that count at each step, of
    `runs` with the metric. `total` is the number of steps of which `steps` are chosen. `walls` has
    the times of the run with the last step.
    """

    group: int
    runs: int
    total: int
    steps: Int64s
    counts: Int64s
    center: Float64s
    lower: Float64s
    upper: Float64s
    walls: Float64s


_KEPT: Final = VersionCache[tuple[str, str, StepRange], list[GroupCurve]](
    KEPT_BYTES_MAX, lambda curves: sum(6 * 8 * len(each.spread.steps) for each in curves)
)


@dataclass(frozen=True, slots=True)
class DrawnGroups:
    """Groups of selected runs, of which the first are drawn, each with a name and its runs.

    `columns` has the columns of the names, each with the value of every drawn group.
    """

    chosen: SelectedRuns
    groups: RunGroups
    names: list[str]
    columns: dict[str, list[HparamValue | None]]
    runs: list[int]

    @property
    def total(self) -> int:
        """Return the number of groups that there are."""
        return len(self.groups.keys)


def group_selected(chosen: SelectedRuns, group_by: GroupBy) -> DrawnGroups:
    """Return the groups of the selected runs, in the order of their values.

    Names of groups leave out columns with one value in all of them. Raises as `group_runs`.
    """
    rows = np.flatnonzero(chosen.selected)
    groups = group_runs(chosen.runs, chosen.known, rows, group_by)
    is_different = [len(np.unique(ranks)) > 1 or len(groups.keys) == 1 for ranks in groups.ranks]
    different = [index for index, differs in enumerate(is_different) if differs]
    names = [
        format_key([groups.names[i] for i in different], [key[i] for i in different])
        for key in groups.keys[:DRAWN_GROUP_ITEMS_MAX]
    ]
    counts = np.bincount(groups.codes, minlength=len(names))
    return DrawnGroups(
        chosen,
        groups,
        [name[:_NAME_CHARS_MAX] for name in names],
        {groups.names[i]: [key[i] for key in groups.keys[: len(names)]] for i in different},
        counts[: len(names)].tolist(),
    )


def read_bands(
    scan: Scan,
    drawn: DrawnGroups,
    metrics: Sequence[str],
    kind: str,
    steps: StepRange = ALL_STEPS,
) -> dict[str, list[BandCurve] | str]:
    """Return the curves of the drawn groups for each metric, or why they are not computed.

    All metrics together read up to CURVE_POINTS_MAX points, in their order.

    Args:
        scan: What reads points, as of the snapshot in which the runs were selected.
        drawn: The groups.
        metrics: Scalar tags.
        kind: One of BAND_KINDS.
        steps: The range of the curves' steps.
    """
    found: dict[str, list[BandCurve] | str] = {}
    points_left = CURVE_POINTS_MAX
    for metric in metrics:
        try:
            query = CurvesQuery(metric, quantiles=_QUARTILES, steps_max=GROUP_STEPS, steps=steps)
            found[metric], points = _read_metric(scan, drawn, query, kind, points_left)
            points_left -= points
        except TooLarge as error:
            found[metric] = error.detail
    return found


def _read_metric(
    scan: Scan, drawn: DrawnGroups, query: CurvesQuery, kind: str, points_left: int
) -> tuple[list[BandCurve], int]:
    """Return the curves of a metric, and how many points were read. Raises TooLarge."""
    wanted = range(len(drawn.names))
    present, groups = restrict_groups(drawn.chosen, drawn.groups, query.metric, wanted)
    if not present:
        return [], 0
    plan = plan_groups(drawn.chosen, groups, query)
    points = int(plan.series.points.sum())
    if points > points_left:
        raise TooLarge(
            f"the cards of a page read {CURVE_POINTS_MAX:,} points (curve_points_max), of which "
            f"{points_left:,} are left, and this tag has {points:,}: search for it, or select runs "
            "with a filter"
        )
    curves = [
        BandCurve(
            group,
            curve.runs,
            curve.total,
            curve.spread.steps,
            curve.spread.counts,
            *_choose_statistics(curve.spread, kind),
            curve.wall_times if curve.wall_times is not None else np.empty(0),
        )
        for group, curve in zip(present, _compute(scan, plan), strict=True)
        if curve.total
    ]
    return curves, points


def _compute(scan: Scan, plan: CurvesPlan) -> list[GroupCurve]:
    """Return the curves of a plan, which are kept for others with an equal one."""
    key = (plan.state, plan.query.metric, plan.query.steps)
    curves = _KEPT.find(key)
    if curves is None:
        curves = list(compute_curves(scan, plan, has_times=True))
        _KEPT.put(key, curves)
    return curves


def _choose_statistics(spread: Spread, kind: str) -> tuple[Float64s, Float64s, Float64s]:
    """Return the line, and the lower and the upper bound of the band."""
    if kind == "quartiles":
        lower, upper = spread.quantiles
        return spread.median, lower, upper
    if kind == "range":
        return spread.mean, spread.min, spread.max
    deviation = spread.std if kind == "std" else spread.stderr
    with np.errstate(over="ignore", invalid="ignore"):
        return spread.mean, spread.mean - deviation, spread.mean + deviation
