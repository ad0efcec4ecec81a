"""The distribution of a metric over runs of an experiment, where they are too many to draw.

Quantiles at each step by the rule of the curves (`spread`), a density of all points in a small grid
of steps and values, and the run that is nearest to a place.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import NotFound, TooLarge
from tbservice.experiments import lifecycle
from tbservice.reading import catalog
from tbservice.reading.version_cache import VersionCache
from tbservice.runs.curves import (
    CURVE_POINTS_MAX,
    CURVE_RUNS_ITEMS_MAX,
    make_curve,
    scan_scalars,
)
from tbservice.runs.selected_runs import select_in_experiment
from tbservice.runs.spread import (
    RunCurve,
    Spread,
    compute_spread,
    read_matrix,
    thin_steps,
    unite_steps,
)
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Float64s, Int64s
from tbservice.types.sampling import ALL_STEPS, Selection, StepRange
from tbwire.points import DataClass

QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)

STEPS_MAX: Final = 200
"""Steps (items) of the quantiles, and at which the nearest run is found."""

COLUMNS_MAX: Final = 100
"""Columns (items) of the density, each of equally many steps of the runs."""

ROWS: Final = 60
"""Rows of the density, each of an equal range of values."""

_ALL: Final = (-np.inf, np.inf)

CACHE_BYTES: Final = 64 * 2**20
"""Bytes of the values that a worker keeps to find the nearest runs in."""


@dataclass(frozen=True, slots=True)
class DistributionQuery:
    """A scalar tag, the runs that a filter selects ("" for all), and a range of steps.

    In the range, runs count as they do in all of it.
    """

    tag: str
    where: str = ""
    steps: StepRange = ALL_STEPS


@dataclass(frozen=True, slots=True)
class Density:
    """Numbers of points by column and row; `edges` has the steps that columns begin at.

    The last of `edges` is the last step, which the last column includes. Rows are equal parts of
    the range from `low` to `high`: the least and the greatest finite value, maybe without outliers,
    of which there are `outside`.
    """

    edges: Int64s
    low: float
    high: float
    counts: Int64s
    outside: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Quantiles and density of `runs` runs with `points` points in the range of steps."""

    runs: int
    points: int
    spread: Spread
    density: Density


@dataclass(frozen=True, slots=True)
class NearestRun:
    """A run, and its value at one of the steps of the quantiles."""

    run: str
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class _RunValues:
    """Values at some steps (rows) of each run (columns): NaN where it has none."""

    steps: Int64s
    runs: list[str]
    values: np.ndarray[tuple[int, int], np.dtype[np.float32]]


_CACHE: Final = VersionCache[tuple[ReadGrant, DistributionQuery, int], _RunValues](
    CACHE_BYTES, lambda kept: kept.values.nbytes
)
"""Values by grant, query and the version of the experiment."""


def read_distribution(
    db: Connection, grant: ReadGrant, query: DistributionQuery, *, skips_outliers: bool = False
) -> Distribution:
    """Return the distribution of a scalar tag over runs, of every point in a range of steps.

    Args:
        db: A snapshot.
        grant: Grant on the experiment: runs that it hides do not count.
        query: Tag, runs and steps.
        skips_outliers: Whether the density leaves out values that are further from the quantiles
            than the least and the greatest of these are apart.

    Raises:
        NotFound: No selected run has the tag.
        FilterError: The filter cannot be parsed.
        UnknownColumn: No run has a column of the filter.
        TooLarge: There are too many runs or points.
    """
    names, runs = _read_runs(db, grant, query)
    chosen = unite_steps(runs)
    chosen = chosen[
        np.searchsorted(chosen, query.steps.first) : np.searchsorted(
            chosen, query.steps.last, "right"
        )
    ]
    thinned = thin_steps(chosen, STEPS_MAX)
    version = lifecycle.get_experiment(db, grant).version
    _CACHE.put((grant, query, version), _make_values(names, runs, thinned))
    spread = compute_spread(runs, thinned, QUANTILES)
    density = compute_density(runs, chosen, _find_ends(spread) if skips_outliers else _ALL)
    points = int(density.counts.sum()) + density.outside
    return Distribution(len(runs), points, spread, density)


def find_nearest(
    db: Connection, grant: ReadGrant, query: DistributionQuery, place: tuple[int, float]
) -> NearestRun:
    """Return the run whose value is nearest to a place: a step and a value.

    At the step of the quantiles that is nearest to the step; of equal runs the first. Arguments and
    errors else are those of `read_distribution`; NotFound too if no run has a finite value there.
    """
    key = (grant, query, lifecycle.get_experiment(db, grant).version)
    values = _CACHE.find(key)
    if values is None:
        read_distribution(db, grant, query)
        values = _CACHE.find(key)
    step, value = place
    if values is None or not len(values.steps):
        raise NotFound("no run has points of this tag in these steps")
    row = int(np.argmin(np.abs(values.steps.astype(np.float64) - step)))
    distances = np.abs(values.values[row].astype(np.float64) - value)
    if np.isnan(distances).all():
        raise NotFound("no run has a finite value at this step")
    column = int(np.nanargmin(distances))
    return NearestRun(
        values.runs[column], int(values.steps[row]), float(values.values[row, column])
    )


def compute_density(
    runs: Sequence[RunCurve], steps: Int64s, ends: tuple[float, float] = _ALL
) -> Density:
    """Return how many points of the runs are at which of the steps (all that count) and values.

    Values beyond `ends` are outside.
    """
    if not len(steps):
        return Density(steps, 0.0, 0.0, np.zeros((0, ROWS), np.int64), 0)
    columns = min(COLUMNS_MAX, len(steps))
    edges = steps[np.arange(columns) * len(steps) // columns]
    within = [_select(run, steps) for run in runs]
    extremes = [_find_extremes(values, ends) for _, values in within]
    low = min((low for low, _ in extremes), default=np.inf)
    high = max((high for _, high in extremes), default=-np.inf)
    counts = np.zeros(columns * ROWS, np.int64)
    outside = 0
    if low <= high:
        factor = ROWS / (high - low) if 0 < high - low < np.inf else 0.0
        known: dict[int, Int64s] = {}
        for run, (own, values) in zip(runs, within, strict=True):
            if id(run.steps) not in known:
                known[id(run.steps)] = (np.searchsorted(edges, own, "right") - 1) * ROWS
            is_shown = (values >= low) & (values <= high)
            outside += int(np.isfinite(values).sum() - is_shown.sum())
            rows = ((values[is_shown] - low) * factor).astype(np.int64)
            cells = known[id(run.steps)][is_shown] + np.minimum(rows, ROWS - 1)
            counts += np.bincount(cells, minlength=len(counts))
    else:
        low = high = 0.0
    return Density(
        np.append(edges, steps[-1]), float(low), float(high), counts.reshape(columns, ROWS), outside
    )


def _select(run: RunCurve, steps: Int64s) -> tuple[Int64s, Float64s]:
    start = int(np.searchsorted(run.steps, steps[0]))
    end = int(np.searchsorted(run.steps, steps[-1], "right"))
    return run.steps[start:end], run.values[start:end]


def _find_ends(spread: Spread) -> tuple[float, float]:
    low, high = _find_extremes(np.concatenate(spread.quantiles))
    return low - (high - low), high + (high - low)


def _find_extremes(values: Float64s, ends: tuple[float, float] = _ALL) -> tuple[float, float]:
    finite = values[np.isfinite(values) & (values >= ends[0]) & (values <= ends[1])]
    return (float(finite.min()), float(finite.max())) if len(finite) else (np.inf, -np.inf)


def _make_values(names: list[str], runs: Sequence[RunCurve], steps: Int64s) -> _RunValues:
    with np.errstate(over="ignore"):
        values = read_matrix(runs, steps)[0].astype(np.float32)
    return _RunValues(steps, names, values)


def _read_runs(
    db: Connection, grant: ReadGrant, query: DistributionQuery
) -> tuple[list[str], list[RunCurve]]:
    selection = Selection(tags=frozenset([query.tag]), data_class=DataClass.SCALAR)
    listed = catalog.list_series(db, grant, selection)
    if query.where:
        chosen = select_in_experiment(db, grant, query.where)
        (part,) = chosen.runs.parts
        selected = {part.names[row] for row in np.flatnonzero(chosen.selected).tolist()}
        listed = [series for series in listed if series.run in selected]
    if not listed:
        raise NotFound("no selected run has scalars with this tag")
    points = sum(series.count for series in listed)
    if len(listed) > CURVE_RUNS_ITEMS_MAX or points > CURVE_POINTS_MAX:
        limit = f"{CURVE_RUNS_ITEMS_MAX} runs and {CURVE_POINTS_MAX} points"
        raise TooLarge(
            f"{len(listed)} runs with {points} points are over the limit of {limit} "
            "(curve_runs_items_max, curve_points_max)"
        )
    names = {series.series_id: series.run for series in listed}
    shared: defaultdict[tuple[int, int, int], list[Int64s]] = defaultdict(list)
    runs = {}
    chunks = scan_scalars(db, grant.experiment_id, list(names))
    for series_id, of_series in itertools.groupby(chunks, lambda chunk: chunk[0]):
        runs[series_id] = make_curve([points for _, points in of_series], shared)
    return [names[id_] for id_ in runs], list(runs.values())
