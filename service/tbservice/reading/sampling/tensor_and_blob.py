"""Which rows of tensor and blob sequence series make up a sample, and in what order to give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice.reading.sampling.rules import draw_slots, make_choose
from tbservice.sample_order import choose, rank_and_key
from tbservice.store import points, sample_slots
from tbservice.store.blob_points import BlobPoint
from tbservice.store.tensor_points import TensorPoint
from tbservice.types import DataClass, ExperimentId, Float64s, Int64s, Ranks, Sampling, SamplingRule, Series

Row = TypeVar("Row", TensorPoint, BlobPoint)

Place = tuple[int, int]
"""Rank and sample key: where a row stands in the order to sample by."""

_NO_VALUES = np.empty(0, np.float64)

_ENDS = 2


@dataclass(frozen=True, slots=True)
class WantedRows:
    """Of each series (by id) the rows at these places, and the first `k` of the order to sample by besides.

    `totals` tells how many points each has in the steps that are asked for.
    """

    k: int
    places: Mapping[int, Sequence[Place]]
    totals: Mapping[int, int]


def choose_places(
    db: Connection, experiment_id: ExperimentId, data_class: DataClass, found: Sequence[Series], sampling: Sampling
) -> WantedRows:
    """What to read for a sample: of a uniform one of whole series that takes no look at their steps."""
    ranks = sample_slots.get_ranks(db)
    is_whole = sampling.last is None and all(sampling.steps.covers(series) for series in found)
    if sampling.rule is SamplingRule.UNIFORM and is_whole:
        totals = {series.series_id: series.count for series in found}
        others = sampling.k if sampling.k > _ENDS else 0  # among which the ends may be
        return WantedRows(others, _ends(found, ranks, sampling.k), totals)
    steps = points.list_steps(db, experiment_id, data_class, [series.series_id for series in found], sampling)
    is_drawn = draw_slots(db, sampling)
    places = {}
    for id_, own in steps.items():
        ends = (int(own[0]), int(own[-1])) if len(own) else (0, -1)
        chosen = make_choose(sampling, ends, ranks, is_drawn)(own, _NO_VALUES)
        places[id_] = _places(own[chosen], ranks)
    counts = {series.series_id: series.count for series in found}
    totals = counts if sampling.last is not None else {id_: len(own) for id_, own in steps.items()}
    return WantedRows(0, places, totals)


def pick(db: Connection, wanted: WantedRows, read: Iterable[Row]) -> dict[int, list[Row]]:
    """The sample of each series, in step order, from what was read of it."""
    by_step: dict[int, dict[int, Row]] = {id_: {} for id_ in wanted.places}
    for row in read:
        by_step[row.series_id][row.step] = row
    ranks = sample_slots.get_ranks(db)
    return {id_: _choose(rows, wanted.k, ranks) for id_, rows in by_step.items()}


def steps_of(rows: Sequence[Row]) -> Int64s:
    """The rows' steps."""
    return np.array([row.step for row in rows], np.int64)


def wall_times_of(rows: Sequence[Row]) -> Float64s:
    """The rows' wall times."""
    return np.array([row.wall_time for row in rows], np.float64)


def _choose(rows: Mapping[int, Row], k: int, ranks: Ranks) -> list[Row]:
    """The rows by step; of those at the ends and the first `k` of the order, a uniform sample."""
    steps = np.array(sorted(rows), np.int64)
    if k:
        chosen = choose(steps, k, ranks)
        assert chosen is not None  # noqa: S101 - all ranks are candidates, so there are always enough
        steps = steps[chosen]
    return [rows[step] for step in steps.tolist()]


def _ends(found: Iterable[Series], ranks: Ranks, k: int) -> dict[int, list[Place]]:
    """Where the first and the last step of each series stand in the order to sample by; none for a sample of 0."""
    return {
        series.series_id: _places(
            np.array([series.last_step, series.first_step][: min(k, series.count, _ENDS)], np.int64), ranks
        )
        for series in found
    }


def _places(steps: Int64s, ranks: Ranks) -> list[Place]:
    rank, key = rank_and_key(steps, ranks)
    return list(zip(rank.tolist(), key.tolist(), strict=True))
