"""Curves of groups of runs: the statistics of one metric at each step, of every committed point."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.runs.grouping import GroupBy, RunGroups, group_runs
from tbservice.runs.selected_runs import SelectedRuns, select_runs
from tbservice.runs.spread import (
    RunCurve,
    Spread,
    compute_spread,
    list_grid,
    thin_steps,
    unite_steps,
)
from tbservice.series.scan import read_scalar_chunks
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbservice.types.sampling import ALL_STEPS, StepRange
from tbwire.hparams import HparamValue
from tbwire.points import ScalarPoints

CURVE_RUNS_ITEMS_MAX: Final = 20_000
"""Runs (items) whose points an answer is computed from."""

CURVE_POINTS_MAX: Final = 20_000_000
"""Points that are read for an answer."""

CURVE_STEPS_MAX: Final = 200_000
"""Steps (items) of all groups of an answer."""

CURVE_QUANTILE_ITEMS_MAX: Final = 20
"""Quantiles (items) at each step."""

_READ_POINTS: Final = 5_000_000
"""Points of the groups that are read together, at least one group."""

SeriesPoints = tuple[int, ScalarPoints]
"""Points of the series with an id."""

Scan = Callable[[ExperimentId, list[int]], Iterable[SeriesPoints]]
"""Yields all points of some series of an experiment, in chunks."""


@dataclass(frozen=True, slots=True)
class CurvesQuery:
    """Runs, their groups, and the steps of the curves.

    `steps_max` is the number of steps of a group at most. With `every`, its steps are multiples of
    that number between its first and its last step, instead of all steps at which a run has a
    point.
    """

    metric: str
    where: str = ""
    group_by: GroupBy = field(default_factory=GroupBy)
    quantiles: Sequence[float] = ()
    steps_max: int = 1_000
    every: int | None = None
    steps: StepRange = ALL_STEPS


@dataclass(frozen=True, slots=True)
class GroupedSeries:
    """The series of the metric: arrays with an element of each.

    `sources` has the index of its experiment (id and version) in `experiments`, `groups` that of
    its group.
    """

    experiments: list[tuple[ExperimentId, int]]
    sources: Int64s
    ids: Int64s
    groups: Int64s
    points: Int64s


@dataclass(frozen=True, slots=True)
class CurvesPlan:
    """The series that an answer will be computed from, and their groups.

    `state` is a text that changes whenever the answer does. `left_out` and `pending` are as in
    `RunsPage`.
    """

    query: CurvesQuery
    names: list[str]
    keys: list[list[HparamValue | None]]
    state: str
    left_out: bool
    pending: int
    pending_grants: list[ReadGrant]
    series: GroupedSeries


@dataclass(frozen=True, slots=True)
class GroupCurve:
    """The curve of a group: its values of the plan's `names`, and its number of runs.

    `total` is the number of steps of which `spread.steps` are chosen. `wall_times`, if they were
    asked for, are those of the run with the last step, interpolated at each step.
    """

    key: list[HparamValue | None]
    runs: int
    total: int
    spread: Spread
    wall_times: Float64s | None = None


def plan_curves(db: Connection, grant: WorkspaceGrant, query: CurvesQuery) -> CurvesPlan:
    """Return what the curves will be computed from; reads no points.

    Runs without the metric are left out. Groups are in the order of their values.

    Args:
        db: A snapshot of the workspace, which `read_curves` needs too.
        grant: Grant to read all of the workspace.
        query: Which curves.

    Raises:
        FilterError: The filter cannot be parsed.
        UnknownColumn: No run has the metric, or a column of the filter or of the groups.
        Invalid: The pattern or a quantile is invalid, or there are too many of them.
        TooLarge: There are too many runs, groups, points or steps.
    """
    if len(query.quantiles) > CURVE_QUANTILE_ITEMS_MAX:
        raise Invalid(
            f"quantile: {len(query.quantiles)} are over the limit of {CURVE_QUANTILE_ITEMS_MAX} "
            "(curve_quantile_items_max)"
        )
    chosen = select_runs(db, grant, query.where)
    chosen.known.check_metric(query.metric, "metric")
    rows = select_rows(chosen, query.metric)
    groups = group_runs(chosen.runs, chosen.known, rows, query.group_by)
    return plan_groups(chosen, groups, query)


def plan_groups(chosen: SelectedRuns, groups: RunGroups, query: CurvesQuery) -> CurvesPlan:
    """Return what the curves of groups, whose runs have the metric, will be computed from.

    Raises TooLarge for too many runs, points or steps.
    """
    series = _list_series(chosen, groups, query.metric)
    _check_sizes(series, query)
    state = hashlib.sha256(
        json.dumps([groups.names, groups.keys, series.experiments, chosen.runs.pending]).encode(
            errors="replace"
        )
    )
    for array in (series.sources, series.ids, series.groups):
        state.update(array.tobytes())
    return CurvesPlan(
        query,
        groups.names,
        groups.keys,
        state.hexdigest()[:32],
        chosen.left_out,
        chosen.runs.pending,
        chosen.pending_grants,
        series,
    )


def read_curves(db: Connection, plan: CurvesPlan) -> Iterator[GroupCurve]:
    """Yield the curve of each group, in the order of the plan; reads all points of the series.

    `db` is the snapshot of the plan.
    """
    return compute_curves(make_scan(db), plan)


def make_scan(db: Connection) -> Scan:
    """Return what reads points in a snapshot of the workspace."""
    return functools.partial(scan_scalars, db)


def scan_scalars(
    db: Connection, experiment_id: ExperimentId, ids: list[int]
) -> Iterator[SeriesPoints]:
    """Yield all points of some series of an experiment, in chunks."""
    return read_scalar_chunks(db, experiment_id, ids, ALL_STEPS, limits.SCAN_CHUNK_POINTS)


def compute_curves(
    scan: Scan, plan: CurvesPlan, *, has_times: bool = False
) -> Iterator[GroupCurve]:
    """Yield the curve of each group, in the order of the plan, of what `scan` reads.

    Groups are read together up to _READ_POINTS, which bounds memory: of a larger group, all points
    are held.
    """
    sizes = np.bincount(plan.series.groups, plan.series.points, len(plan.keys))
    start = 0
    while start < len(plan.keys):
        end = start + max(1, int(np.searchsorted(np.cumsum(sizes[start:]), _READ_POINTS, "right")))
        runs = _read_runs(scan, plan.series, start, end, has_times)
        for group in range(start, end):
            steps, total = _choose_steps(runs[group], plan.query)
            spread = compute_spread(runs[group], steps, plan.query.quantiles)
            times = _interpolate_times(runs[group], steps) if has_times else None
            yield GroupCurve(plan.keys[group], len(runs.pop(group)), total, spread, times)
        start = end


def _interpolate_times(runs: Sequence[RunCurve], steps: Int64s) -> Float64s:
    """Return the wall time of each step in the run that has the last step."""
    last = next((run for run in runs if run.wall_times is not None and len(run.steps)), None)
    if last is None or last.wall_times is None:
        return np.full(len(steps), np.nan)
    times: Float64s = np.interp(steps, last.steps, last.wall_times)
    return times


def select_rows(chosen: SelectedRuns, tag: str) -> Int64s:
    """Return the rows of the selected runs that have points of a tag."""
    has_tag = [
        part.series[tag] >= 0 if tag in part.series else np.zeros(len(part), bool)
        for part in chosen.runs.parts
    ]
    return np.flatnonzero(chosen.selected & np.concatenate([np.empty(0, bool), *has_tag]))


def restrict_groups(
    chosen: SelectedRuns, groups: RunGroups, metric: str, wanted: Sequence[int]
) -> tuple[list[int], RunGroups]:
    """Return those of some groups of which a run has a metric, ascending, and only such runs."""
    is_kept = np.isin(groups.rows, select_rows(chosen, metric)) & np.isin(groups.codes, wanted)
    present = np.unique(groups.codes[is_kept])
    kept = replace(
        groups,
        keys=[groups.keys[group] for group in present.tolist()],
        rows=groups.rows[is_kept],
        codes=np.searchsorted(present, groups.codes[is_kept]),
    )
    return present.tolist(), kept


def _list_series(chosen: SelectedRuns, groups: RunGroups, tag: str) -> GroupedSeries:
    experiments: list[tuple[ExperimentId, int]] = []
    sources, ids, points = [], [], []
    for index, rows in chosen.runs.split(groups.rows):
        part, experiment = chosen.runs.parts[index], chosen.runs.experiments[index]
        places = part.series[tag][rows]
        sources.append(np.full(len(rows), len(experiments)))
        experiments.append((experiment.experiment_id, experiment.version))
        ids.append(part.series_ids[places])
        points.append(part.fields["count"][places].astype(np.int64))
    none = np.empty(0, np.int64)
    return GroupedSeries(
        experiments,
        np.concatenate([none, *sources]),
        np.concatenate([none, *ids]),
        groups.codes,
        np.concatenate([none, *points]),
    )


def _check_sizes(series: GroupedSeries, query: CurvesQuery) -> None:
    """Raise TooLarge before anything is read that would be too much."""
    advice = "select runs with a filter"
    if len(series.ids) > CURVE_RUNS_ITEMS_MAX:
        limit = f"the limit of {CURVE_RUNS_ITEMS_MAX} (curve_runs_items_max)"
        raise TooLarge(f"{len(series.ids)} runs are over {limit}: {advice}")
    points = int(series.points.sum())
    if points > CURVE_POINTS_MAX:
        limit = f"the limit of {CURVE_POINTS_MAX} (curve_points_max)"
        raise TooLarge(f"the runs have {points} points, over {limit}: {advice}")
    of_groups = np.bincount(series.groups, series.points)
    steps = np.minimum(of_groups, query.steps_max) if query.every is None else query.steps_max
    if np.sum(np.broadcast_to(steps, of_groups.shape)) > CURVE_STEPS_MAX:
        fitting = CURVE_STEPS_MAX // len(of_groups)
        raise TooLarge(
            f"{len(of_groups)} groups of up to {query.steps_max} steps are over the limit of "
            f"{CURVE_STEPS_MAX} steps (curve_steps_max): choose downsample={fitting}, or group by "
            "fewer columns"
        )


def _read_runs(
    scan: Scan,
    series: GroupedSeries,
    start: int,
    end: int,
    has_times: bool,
) -> dict[int, list[RunCurve]]:
    """Return the runs of each of the groups from `start` up to `end`; equal steps are shared."""
    runs: dict[int, list[RunCurve]] = {group: [] for group in range(start, end)}
    shared: defaultdict[tuple[int, int, int], list[Int64s]] = defaultdict(list)
    is_wanted = (series.groups >= start) & (series.groups < end)
    for source in np.unique(series.sources[is_wanted]).tolist():
        rows = np.flatnonzero(is_wanted & (series.sources == source))
        group_of = dict(zip(series.ids[rows].tolist(), series.groups[rows].tolist(), strict=True))
        experiment_id, _ = series.experiments[source]
        chunks = scan(experiment_id, list(group_of))
        for series_id, of_series in itertools.groupby(chunks, lambda chunk: chunk[0]):
            curve = make_curve([points for _, points in of_series], shared, has_times=has_times)
            _add_run(runs[group_of[series_id]], curve)
    return runs


def _add_run(runs: list[RunCurve], curve: RunCurve) -> None:
    """Append a run; of several with wall times, that with the last step keeps them."""
    if curve.wall_times is not None and len(curve.steps):
        for index, other in enumerate(runs):
            if other.wall_times is None:
                continue
            if len(other.steps) and other.steps[-1] >= curve.steps[-1]:
                curve = replace(curve, wall_times=None)
            else:
                runs[index] = replace(other, wall_times=None)
            break
    runs.append(curve)


def make_curve(
    chunks: list[ScalarPoints],
    shared: defaultdict[tuple[int, int, int], list[Int64s]],
    *,
    has_times: bool = False,
) -> RunCurve:
    """Return the curve of a run's chunks; `shared` has the steps of others, by length and ends."""
    # Without the wall times, of which a concatenation would copy as much again.
    times = np.concatenate([each.wall_times for each in chunks]) if has_times else None
    is_whole = len(chunks) == 1
    steps = chunks[0].steps if is_whole else np.concatenate([each.steps for each in chunks])
    values = chunks[0].values if is_whole else np.concatenate([each.values for each in chunks])
    if not len(steps):
        return RunCurve(steps, values, times)
    known = shared[len(steps), int(steps[0]), int(steps[-1])]
    for each in known:
        if np.array_equal(each, steps):
            return RunCurve(each, values, times)
    known.append(steps)
    return RunCurve(steps, values, times)


def _choose_steps(runs: Sequence[RunCurve], query: CurvesQuery) -> tuple[Int64s, int]:
    """Return the steps of a group's curve, and how many there are before they are thinned."""
    steps = unite_steps(runs)
    start = int(np.searchsorted(steps, query.steps.first))
    end = int(np.searchsorted(steps, query.steps.last, "right"))
    if query.every is None:
        return thin_steps(steps[start:end], query.steps_max), end - start
    if not len(steps):
        return steps, 0
    first = max(int(steps[0]), query.steps.first)
    last = min(int(steps[-1]), query.steps.last)
    return list_grid(first, last, query.every, query.steps_max)
