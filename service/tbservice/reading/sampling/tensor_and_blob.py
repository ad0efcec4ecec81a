"""Which rows of tensor and blob sequence series make up a sample, and in what order to give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice.reading.sampling.rules import draw_slots, make_sampler
from tbservice.sample_order import choose_uniform_sample, compute_rank_and_key
from tbservice.store import points, sample_slots
from tbservice.store.blob_points import BlobPoint
from tbservice.store.tensor_points import TensorPoint
from tbservice.types import (
    DataClass,
    ExperimentId,
    Int64s,
    Ranks,
    Sampling,
    SamplingRule,
    Series,
)

Row = TypeVar("Row", TensorPoint, BlobPoint)

RankAndKey = tuple[int, int]
"""Rank and sample key: where a row stands in the order to sample by."""

_NO_VALUES = np.empty(0, np.float64)

_ENDS = 2


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """Of each series (by id) the rows at these places, and the first `k` of the order to sample by besides.

    `totals` tells how many points each has in the steps that are asked for.
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
    """What to read for a sample: of a uniform one of whole series that takes no look at their steps."""
    ranks = sample_slots.get_ranks(db)
    is_complete = sampling.last is None and all(
        sampling.steps.covers(series) for series in series_list
    )
    if sampling.rule is SamplingRule.UNIFORM and is_complete:
        totals = {series.series_id: series.count for series in series_list}
        others = sampling.k if sampling.k > _ENDS else 0  # among which the ends may be
        return SamplePlan(others, _find_ends(series_list, ranks, sampling.k), totals)
    steps = points.list_steps(
        db, experiment_id, data_class, [series.series_id for series in series_list], sampling
    )
    is_drawn = draw_slots(db, sampling)
    ranks_and_keys = {}
    for id_, own in steps.items():
        ends = (int(own[0]), int(own[-1])) if len(own) else (0, -1)
        chosen = make_sampler(sampling, ends, ranks, is_drawn)(own, _NO_VALUES)
        ranks_and_keys[id_] = _ranks_and_keys(own[chosen], ranks)
    counts = {series.series_id: series.count for series in series_list}
    totals = counts if sampling.last is not None else {id_: len(own) for id_, own in steps.items()}
    return SamplePlan(0, ranks_and_keys, totals)


def select_rows(db: Connection, plan: SamplePlan, read: Iterable[Row]) -> dict[int, list[Row]]:
    """The sample of each series, in step order, from what was read of it."""
    by_step: dict[int, dict[int, Row]] = {id_: {} for id_ in plan.ranks_and_keys}
    for row in read:
        by_step[row.series_id][row.step] = row
    ranks = sample_slots.get_ranks(db)
    return {id_: _choose_rows(rows, plan.k, ranks) for id_, rows in by_step.items()}


def _choose_rows(rows: Mapping[int, Row], k: int, ranks: Ranks) -> list[Row]:
    """The rows by step; of those at the ends and the first `k` of the order, a uniform sample."""
    steps = np.array(sorted(rows), np.int64)
    if k:
        chosen = choose_uniform_sample(steps, k, ranks)
        assert chosen is not None  # noqa: S101 - all ranks are candidates, so there are always enough
        steps = steps[chosen]
    return [rows[step] for step in steps.tolist()]


def _find_ends(series_list: Iterable[Series], ranks: Ranks, k: int) -> dict[int, list[RankAndKey]]:
    """Where the first and the last step of each series stand in the order to sample by; none for a sample of 0."""
    return {
        series.series_id: _ranks_and_keys(
            np.array(
                [series.last_step, series.first_step][: min(k, series.count, _ENDS)], np.int64
            ),
            ranks,
        )
        for series in series_list
    }


def _ranks_and_keys(steps: Int64s, ranks: Ranks) -> list[RankAndKey]:
    rank, key = compute_rank_and_key(steps, ranks)
    return list(zip(rank.tolist(), key.tolist(), strict=True))
