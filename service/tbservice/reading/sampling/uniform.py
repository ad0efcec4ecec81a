"""Uniform samples of scalar series in time that does not grow with them: from the thinnest level that holds enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.sample_order import LEVEL_MAX, choose, coarsest_level, level_fractions, level_ranks_max
from tbservice.scalars.dedup import newest_of_each_step
from tbservice.store import sample_slots, scalar_blocks, scalar_tail
from tbservice.store.scalar_format import EMPTY, Points, concatenate
from tbservice.types import ALL_STEPS, ExperimentId, ScalarSample, Series, StepRange

_ENDS: Final = 2
_NO_LEVEL: Final = LEVEL_MAX + 1


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a series in the range without a look at most of its points.

    `total` is None when its points must be counted; of them `sealed_count` are sealed. `ends` hold the first and the
    last sealed point in the range, or of the series.
    """

    total: int | None
    sealed_count: int
    ends: Points


def sample_scalars(
    db: Connection, experiment_id: ExperimentId, found: Sequence[Series], k: int, steps: StepRange
) -> dict[int, ScalarSample]:
    """A uniform sample of `k` of the points of each series in the range, by series id."""
    ranks = sample_slots.get_ranks(db)
    fractions = level_fractions(ranks)
    covered = [series for series in found if steps.covers(series)]
    parted = [series for series in found if not steps.covers(series)]
    samples = _ends_alone(covered, k)
    known = {series.series_id: _known_of_all(series) for series in covered if series.series_id not in samples}
    known |= _known_of_range(db, experiment_id, parted, steps)
    # Of a series whose count is not exact, the points are counted, and so all of them are read.
    levels = {
        id_: 0 if one.total is None else coarsest_level(one.sealed_count, k, fractions) for id_, one in known.items()
    }
    while levels:
        candidates = read_levels(db, experiment_id, levels, dict.fromkeys(levels, steps))
        for id_, level in levels.items():
            ends = known[id_].ends if level else EMPTY
            points = newest_of_each_step(concatenate([candidates[id_], ends]))
            chosen = choose(points.steps, k, ranks, level_ranks_max(level))
            if chosen is not None:
                total = known[id_].total
                samples[id_] = _sample(points.take(chosen), len(points) if total is None else total)
        levels = {id_: level - 1 for id_, level in levels.items() if id_ not in samples}
    return samples


def read_levels(
    db: Connection, experiment_id: ExperimentId, levels: Mapping[int, int], ranges: Mapping[int, StepRange]
) -> dict[int, Points]:
    """What each series' level, open blocks and tail hold in its range: the newest of each step, in step order."""
    blocks = scalar_blocks.read(db, experiment_id, levels, ranges)
    tails = scalar_tail.read(db, experiment_id, list(levels))
    return {
        id_: within(
            newest_of_each_step(concatenate([*blocks.get(id_, []), *([tails[id_]] if id_ in tails else [])])),
            ranges.get(id_, ALL_STEPS),
        )
        for id_ in levels
    }


def within(points: Points, steps: StepRange) -> Points:
    """The points in the range, of points in step order."""
    if steps == ALL_STEPS:
        return points
    start = int(np.searchsorted(points.steps, steps.first, "left"))
    end = int(np.searchsorted(points.steps, steps.last, "right"))
    return points.take(slice(start, end))


def _known_of_all(series: Series) -> _Known:
    ends = Points(
        np.array([series.first_step, series.last_step]),
        np.array([series.first_wall_time, series.last_wall_time]),
        np.array([series.first_value, series.last_value], np.float64),
    )
    return _Known(series.count if series.count_is_exact else None, series.sealed_count, newest_of_each_step(ends))


def _known_of_range(
    db: Connection, experiment_id: ExperimentId, found: Sequence[Series], steps: StepRange
) -> dict[int, _Known]:
    """The same of series that the range parts, by a look at the sealed blocks at its ends, and at the unsealed."""
    known = {series.series_id: _Known(None, 0, EMPTY) for series in found if not series.count_is_exact}
    exact = [series.series_id for series in found if series.count_is_exact]
    if not exact:
        return known
    sealed = scalar_blocks.read_range_ends(db, experiment_id, exact, steps)
    unsealed = read_levels(db, experiment_id, dict.fromkeys(exact, _NO_LEVEL), dict.fromkeys(exact, steps))
    for id_ in exact:
        blocks = sealed.get(id_)
        ends = EMPTY if blocks is None else within(concatenate(blocks.ends), steps)
        sealed_count = len(ends) + (0 if blocks is None else blocks.others_count)
        known[id_] = _Known(sealed_count + len(unsealed[id_]), sealed_count, ends)
    return known


def _ends_alone(found: Iterable[Series], k: int) -> dict[int, ScalarSample]:
    """The samples of those series of which no more is wanted than their first and last point, which their rows keep."""
    known = [series for series in found if series.count_is_exact and min(k, series.count) <= _ENDS]
    steps = np.array([(one.first_step, one.last_step) for one in known], np.int64).reshape(-1, _ENDS)
    times = np.array([(one.first_wall_time, one.last_wall_time) for one in known], np.float64).reshape(-1, _ENDS)
    values = np.array([(one.first_value, one.last_value) for one in known], np.float64).reshape(-1, _ENDS)
    samples = {}
    for row, series in enumerate(known):
        kept = slice(_ENDS - min(k, series.count), None)
        samples[series.series_id] = ScalarSample(steps[row][kept], times[row][kept], values[row][kept], series.count)
    return samples


def _sample(points: Points, total: int) -> ScalarSample:
    return ScalarSample(points.steps, points.wall_times, points.values, total)
