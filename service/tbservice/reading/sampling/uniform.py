"""Uniform samples of scalar series in time that does not grow with them: from the thinnest level that holds enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.sample_order import (
    LEVEL_MAX,
    choose_uniform_sample,
    compute_level_fractions,
    find_coarsest_level,
    get_level_rank_max,
)
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.store import sample_slots, scalar_blocks, scalar_tail
from tbservice.store.scalar_format import EMPTY_POINTS, ScalarPoints, concatenate
from tbservice.types import ALL_STEPS, ExperimentId, ScalarSample, Series, StepRange

_ENDS: Final = 2
_LEVEL_ABOVE_MAX: Final = LEVEL_MAX + 1


@dataclass(frozen=True, slots=True)
class _RangeSummary:
    """What is known of a series in the range without a look at most of its points.

    `total` is None when its points must be counted; of them `sealed_count` are sealed. `ends` hold the first and the
    last sealed point in the range, or of the series.
    """

    total: int | None
    sealed_count: int
    ends: ScalarPoints


def sample_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    series_list: Sequence[Series],
    k: int,
    steps: StepRange,
) -> dict[int, ScalarSample]:
    """A uniform sample of `k` of the points of each series in the range, by series id."""
    ranks = sample_slots.get_ranks(db)
    fractions = compute_level_fractions(ranks)
    covered = [series for series in series_list if steps.covers(series)]
    partial = [series for series in series_list if not steps.covers(series)]
    samples = _sample_ends(covered, k)
    summaries = {
        series.series_id: _summarize_series(series)
        for series in covered
        if series.series_id not in samples
    }
    summaries |= _summarize_range(db, experiment_id, partial, steps)
    # Of a series whose count is not exact, the points are counted, and so all of them are read.
    levels = {
        id_: 0 if one.total is None else find_coarsest_level(one.sealed_count, k, fractions)
        for id_, one in summaries.items()
    }
    while levels:
        candidates = read_levels(db, experiment_id, levels, dict.fromkeys(levels, steps))
        for id_, level in levels.items():
            ends = summaries[id_].ends if level else EMPTY_POINTS
            points = deduplicate_steps(concatenate([candidates[id_], ends]))
            chosen = choose_uniform_sample(points.steps, k, ranks, get_level_rank_max(level))
            if chosen is not None:
                total = summaries[id_].total
                samples[id_] = _to_sample(
                    points.select(chosen), len(points) if total is None else total
                )
        levels = {id_: level - 1 for id_, level in levels.items() if id_ not in samples}
    return samples


def read_levels(
    db: Connection,
    experiment_id: ExperimentId,
    levels: Mapping[int, int],
    ranges: Mapping[int, StepRange],
) -> dict[int, ScalarPoints]:
    """What each series' level, open blocks and tail hold in its range: the newest of each step, in step order."""
    blocks = scalar_blocks.read(db, experiment_id, levels, ranges)
    tails = scalar_tail.read(db, experiment_id, list(levels))
    return {
        id_: clip_to_range(
            deduplicate_steps(
                concatenate([*blocks.get(id_, []), *([tails[id_]] if id_ in tails else [])])
            ),
            ranges.get(id_, ALL_STEPS),
        )
        for id_ in levels
    }


def clip_to_range(points: ScalarPoints, steps: StepRange) -> ScalarPoints:
    """The points in the range, of points in step order."""
    if steps == ALL_STEPS:
        return points
    start = int(np.searchsorted(points.steps, steps.first, "left"))
    end = int(np.searchsorted(points.steps, steps.last, "right"))
    return points.select(slice(start, end))


def _summarize_series(series: Series) -> _RangeSummary:
    ends = ScalarPoints(
        np.array([series.first_step, series.last_step]),
        np.array([series.first_wall_time, series.last_wall_time]),
        np.array([series.first_value, series.last_value], np.float64),
    )
    return _RangeSummary(
        series.count if series.count_is_exact else None,
        series.sealed_count,
        deduplicate_steps(ends),
    )


def _summarize_range(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], steps: StepRange
) -> dict[int, _RangeSummary]:
    """The same of series that the range parts, by a look at the sealed blocks at its ends, and at the unsealed."""
    summaries = {
        series.series_id: _RangeSummary(None, 0, EMPTY_POINTS)
        for series in series_list
        if not series.count_is_exact
    }
    exact = [series.series_id for series in series_list if series.count_is_exact]
    if not exact:
        return summaries
    sealed = scalar_blocks.read_range_ends(db, experiment_id, exact, steps)
    unsealed = read_levels(
        db, experiment_id, dict.fromkeys(exact, _LEVEL_ABOVE_MAX), dict.fromkeys(exact, steps)
    )
    for id_ in exact:
        blocks = sealed.get(id_)
        ends = EMPTY_POINTS if blocks is None else clip_to_range(concatenate(blocks.ends), steps)
        sealed_count = len(ends) + (0 if blocks is None else blocks.others_count)
        summaries[id_] = _RangeSummary(sealed_count + len(unsealed[id_]), sealed_count, ends)
    return summaries


def _sample_ends(series_list: Iterable[Series], k: int) -> dict[int, ScalarSample]:
    """The samples of those series of which no more is wanted than their first and last point, which their rows keep."""
    known = [
        series for series in series_list if series.count_is_exact and min(k, series.count) <= _ENDS
    ]
    steps = np.array([(one.first_step, one.last_step) for one in known], np.int64).reshape(
        -1, _ENDS
    )
    times = np.array(
        [(one.first_wall_time, one.last_wall_time) for one in known], np.float64
    ).reshape(-1, _ENDS)
    values = np.array([(one.first_value, one.last_value) for one in known], np.float64).reshape(
        -1, _ENDS
    )
    samples = {}
    for row, series in enumerate(known):
        kept = slice(_ENDS - min(k, series.count), None)
        samples[series.series_id] = ScalarSample(
            steps[row][kept], times[row][kept], values[row][kept], series.count
        )
    return samples


def _to_sample(points: ScalarPoints, total: int) -> ScalarSample:
    return ScalarSample(points.steps, points.wall_times, points.values, total)
