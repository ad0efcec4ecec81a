"""Selection of the rows of tensor and blob sequence series for a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice.reading.sampling.rules import find_ends, prepare_samplers
from tbservice.reading.tables import attempt_scan
from tbservice.reading.tables.attempt_scan import Before
from tbservice.sample_order import choose_uniform_sample, compute_rank_and_key
from tbservice.series.tables import points, sample_slots
from tbservice.series.tables.value_scan import BlobRow, TensorRow
from tbservice.types.identifiers import ExperimentId, Int64s, Ranks
from tbservice.types.sampling import Sampling, SamplingRule
from tbservice.types.series import Series
from tbwire.points import DataClass

Row = TypeVar("Row", TensorRow, BlobRow)

RankAndKey = tuple[int, int]
"""Rank and sample key: the position of a row in sample order."""

_NO_VALUES = np.empty(0, np.float64)

_ENDS = 2


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """Rows to read for a sample: by series id those at `ranks_and_keys`, and the first `k` rows.

    "First" is in sample order, by rank and sample key. `totals` are the numbers of points of each
    series in the range of steps.
    """

    k: int
    ranks_and_keys: Mapping[int, Sequence[RankAndKey]]
    totals: Mapping[int, int]


def plan_sample(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    series_list: Sequence[Series],
    sampling: Sampling,
) -> SamplePlan:
    """Return which rows to read for a sample.

    Uniform samples of complete series are planned without reading steps: the primary key orders
    rows by rank and sample key. All others read the steps and select among them.
    """
    is_complete = sampling.last is None and all(
        sampling.steps.covers(series) for series in series_list
    )
    totals = {series.series_id: series.count for series in series_list}
    if sampling.rule is SamplingRule.UNIFORM and is_complete:
        ranks = sample_slots.get_ranks(db)
        k = sampling.k if sampling.k > _ENDS else 0  # the first k rows may include the ends
        return SamplePlan(k, _find_ends(series_list, ranks, sampling.k), totals)

    steps = points.list_steps(db, experiment_id, data_class, list(totals), sampling)
    if sampling.last is None:
        totals = {id_: len(series_steps) for id_, series_steps in steps.items()}
    return SamplePlan(0, _choose_steps(db, sampling, steps), totals)


def plan_attempt(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    sampling: Sampling,
    before: Before,
) -> SamplePlan:
    """Return which rows to read for a sample of an earlier attempt: see `attempt_scan`."""
    steps = attempt_scan.list_steps(db, experiment_id, data_class, before, sampling.steps)
    totals = {id_: len(series_steps) for id_, series_steps in steps.items()}
    if sampling.last is not None:
        steps = {id_: each[max(0, len(each) - sampling.last) :] for id_, each in steps.items()}
    return SamplePlan(0, _choose_steps(db, sampling, steps), totals)


def _choose_steps(
    db: Connection, sampling: Sampling, steps: Mapping[int, Int64s]
) -> dict[int, list[RankAndKey]]:
    """Return the positions of the steps of a sample, from all steps of each series."""
    ranks = sample_slots.get_ranks(db)
    make_sampler = prepare_samplers(db, sampling)
    ranks_and_keys = {}
    for id_, series_steps in steps.items():
        kept = make_sampler(find_ends(series_steps))(series_steps, _NO_VALUES)
        ranks_and_keys[id_] = _make_ranks_and_keys(series_steps[kept], ranks)
    return ranks_and_keys


def select_rows(db: Connection, plan: SamplePlan, read: Iterable[Row]) -> dict[int, list[Row]]:
    """Return the sample of each series in step order, from the rows read by the plan."""
    by_step: dict[int, dict[int, Row]] = {id_: {} for id_ in plan.ranks_and_keys}
    for row in read:
        by_step[row.series_id][row.step] = row
    ranks = sample_slots.get_ranks(db)
    return {id_: _choose_rows(rows, plan.k, ranks) for id_, rows in by_step.items()}


def _choose_rows(rows: Mapping[int, Row], k: int, ranks: Ranks) -> list[Row]:
    """Return the rows in step order; with `k`, a uniform sample of them."""
    steps = np.array(sorted(rows), np.int64)
    if k:
        kept = choose_uniform_sample(steps, k, ranks)
        assert kept is not None  # noqa: S101 - with all ranks as candidates, there are always enough
        steps = steps[kept]
    return [rows[step] for step in steps.tolist()]


def _find_ends(series_list: Iterable[Series], ranks: Ranks, k: int) -> dict[int, list[RankAndKey]]:
    """Return rank and sample key of the last and the first step of each series; at most `k`."""
    return {
        series.series_id: _make_ranks_and_keys(
            np.array(
                [series.last_step, series.first_step][: min(k, series.count, _ENDS)], np.int64
            ),
            ranks,
        )
        for series in series_list
    }


def _make_ranks_and_keys(steps: Int64s, ranks: Ranks) -> list[RankAndKey]:
    """Return the position of each step in the sample order."""
    rank, key = compute_rank_and_key(steps, ranks)
    return list(zip(rank.tolist(), key.tolist(), strict=True))
