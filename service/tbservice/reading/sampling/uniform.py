"""Uniform samples of scalar series in time independent of their length, from thinned levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from tbservice.db.pipeline import pipeline
from tbservice.sample_order import (
    LEVEL_MAX,
    choose_uniform_sample,
    compute_level_fractions,
    find_coarsest_level,
    get_level_rank_max,
)
from tbservice.samples import ScalarSample
from tbservice.series.dedup import deduplicate_steps
from tbservice.series.merge_iterator import slice_steps
from tbservice.series.tables import sample_slots, scalar_blocks, scalar_tail
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbservice.types.identifiers import ExperimentId, Int64s, Ranks
from tbservice.types.sampling import ALL_STEPS, StepRange
from tbservice.types.series import Series
from tbwire.points import ScalarPoints

_ENDS: Final = 2
_LEVEL_ABOVE_MAX: Final = LEVEL_MAX + 1


@dataclass(frozen=True, slots=True)
class _RangeSummary:
    """Bounds of a series in a range of steps, found without reading most of its points.

    `total` is the number of points, None when they must be counted; `sealed_count` of them are in
    sealed blocks. `ends` are the first and the last sealed point in the range (or of the series).
    """

    total: int | None
    sealed_count: int
    ends: ScalarPoints


class _Choice:
    """Choose the uniform sample of series one after the other.

    The tags of a run mostly have the same steps, of which the same ones are kept: comparing them
    takes a tenth of the time that choosing does.
    """

    def __init__(self, k: int, ranks: Ranks) -> None:
        self._k, self._ranks = k, ranks
        self._level = -1
        self._steps: Int64s = np.empty(0, np.int64)
        self._kept: npt.NDArray[np.int64] | None = None

    def choose(self, steps: Int64s, level: int) -> npt.NDArray[np.int64] | None:
        """Return the result of `choose_uniform_sample` for steps read from a level."""
        if level != self._level or not np.array_equal(steps, self._steps):
            self._level, self._steps = level, steps
            self._kept = choose_uniform_sample(
                steps, self._k, self._ranks, get_level_rank_max(level)
            )
        return self._kept


def sample_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    series_list: Sequence[Series],
    k: int,
    steps: StepRange,
) -> dict[int, ScalarSample]:
    """Return a uniform sample of `k` points of each series in a range of steps, by series id.

    Reads the coarsest level that probably contains enough points, and the next finer one for
    series where it does not. The definition of the sample is in `tbservice.sample_order`.
    """
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

    # Without an exact count, all points are read (level 0) and counted.
    levels = {
        id_: 0 if summary.total is None else find_coarsest_level(summary.sealed_count, k, fractions)
        for id_, summary in summaries.items()
    }
    # Ends: level 0 has all points, and always gives a sample.
    while levels:
        candidates = read_levels(db, experiment_id, levels, dict.fromkeys(levels, steps))
        choice = _Choice(k, ranks)
        for id_, level in levels.items():
            # Thinned levels need not have the first and the last point; level 0 has them.
            ends = summaries[id_].ends if level else EMPTY_POINTS
            points = _surround(candidates[id_], ends)
            kept = choice.choose(points.steps, level)
            if kept is not None:
                total = summaries[id_].total
                samples[id_] = _to_sample(
                    points.select(kept), len(points) if total is None else total
                )
        levels = {id_: level - 1 for id_, level in levels.items() if id_ not in samples}
    return samples


def read_levels(
    db: Connection,
    experiment_id: ExperimentId,
    levels: Mapping[int, int],
    ranges: Mapping[int, StepRange],
) -> dict[int, ScalarPoints]:
    """Return the points of each series from a level, its open blocks and its buffers, by series id.

    In step order, with one point per step (`deduplicate_steps`). Series that are missing in
    `ranges` are read completely.
    """
    with pipeline(db):
        block_rows = scalar_blocks.query(db, experiment_id, levels, ranges)
        buffer_rows = scalar_tail.query(db, experiment_id, list(levels))
    blocks = scalar_blocks.unpack_rows(block_rows)
    buffers = scalar_tail.unpack_rows(buffer_rows)
    return {
        id_: slice_steps(
            deduplicate_steps(
                concatenate([*blocks.get(id_, []), *([buffers[id_]] if id_ in buffers else [])])
            ),
            ranges.get(id_, ALL_STEPS),
        )
        for id_ in levels
    }


def _surround(points: ScalarPoints, ends: ScalarPoints) -> ScalarPoints:
    """Return the points and their ends. Nothing is copied if they have these, as mostly."""
    first, others = ends.select(slice(1)), ends.select(slice(1, None))
    if _is_same_point(points, first, 0):
        first = EMPTY_POINTS
    if _is_same_point(points, others, -1):
        others = others.select(slice(-1))
    around = [each for each in (first, points, others) if len(each)]
    return deduplicate_steps(concatenate(around))  # mostly in order: nothing to sort


def _is_same_point(some: ScalarPoints, others: ScalarPoints, index: int) -> bool:
    return (
        len(some) > 0
        and len(others) > 0
        and bool(some.steps[index] == others.steps[index])
        and bool(some.wall_times[index] == others.wall_times[index])
    )


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
    """Return bounds of series that lie only partly in the range.

    Reads their first and last two sealed blocks and all unsealed points.
    """
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
        # A level that no block has: the open blocks and the buffers remain.
        db,
        experiment_id,
        dict.fromkeys(exact, _LEVEL_ABOVE_MAX),
        dict.fromkeys(exact, steps),
    )
    for id_ in exact:
        blocks = sealed.get(id_)
        ends = EMPTY_POINTS if blocks is None else slice_steps(concatenate(blocks.ends), steps)
        sealed_count = len(ends) + (0 if blocks is None else blocks.others_count)
        summaries[id_] = _RangeSummary(sealed_count + len(unsealed[id_]), sealed_count, ends)
    return summaries


def _sample_ends(series_list: Iterable[Series], k: int) -> dict[int, ScalarSample]:
    """Return samples of series that consist of first and last point only.

    These are stored in the rows of the series, so that no points are read.
    """
    known = [
        series for series in series_list if series.count_is_exact and min(k, series.count) <= _ENDS
    ]
    shape = (-1, _ENDS)
    steps = np.array([(s.first_step, s.last_step) for s in known], np.int64).reshape(shape)
    times = np.array([(s.first_wall_time, s.last_wall_time) for s in known], np.float64)
    times = times.reshape(shape)
    values = np.array([(s.first_value, s.last_value) for s in known], np.float64).reshape(shape)

    samples = {}
    for row, series in enumerate(known):
        kept = slice(_ENDS - min(k, series.count), None)
        samples[series.series_id] = ScalarSample(
            steps[row][kept], times[row][kept], values[row][kept], series.count
        )
    return samples


def _to_sample(points: ScalarPoints, total: int) -> ScalarSample:
    return ScalarSample(points.steps, points.wall_times, points.values, total)
