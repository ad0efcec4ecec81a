"""Merging scalar tails into packed blocks, and thinning sealed blocks into levels.

A merge holds the rows of the series it works on, passes over those that an ingest holds, and re-inserts only what its
own DELETE … RETURNING gave it: it may run in the ingest process or beside it, several at once, and crash anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.newest import newest_of_each_step
from tbservice.domain.sampling import LEVEL_MAX, level_ranks_max, splitmix64
from tbservice.store import sample_slots, scalar_blocks, scalar_tail, time_series
from tbservice.store.packing import Points, concatenate
from tbservice.store.scalar_blocks import OPEN, SEALED, NewBlock
from tbservice.store.time_series import SeriesState
from tbservice.types import ExperimentGrant, Ranks

SERIES_A_MERGE: Final = 32
"""Series taken in one transaction, which holds their rows for as long."""

_POINTS_A_MERGE: Final = 200_000
"""Tail points after which a transaction takes no further series: bounds what a merge holds in memory."""

_REWRITE_FACTOR: Final = 16
"""Sealed points that one gathered point may cause to be rewritten: keeps steps in any order from costing n squared."""

_SETTLED_BELOW: Final = (4, 128)
"""Tail rows and points under which a series at rest is left as it is: merging so little gains nothing."""

_SMALL_POINTS: Final = limits.block_points // 2
"""Points up to which a thinned block is merged with what comes; a fuller one is left as it is for good."""


def merge_run(db: Connection, grant: ExperimentGrant, run_id: int, *, settle: bool = False) -> int:
    """Merges some series of a run that are due, at most SERIES_A_MERGE; 0 when none is left, so call it until then.

    A series is due with `tail_rows_max` rows or `tail_points_max` points in its tail; with `settle`, with a few.
    """
    rows_min, points_min = _SETTLED_BELOW if settle else (limits.tail_rows_max, limits.tail_points_max)
    locked = time_series.lock_due(db, grant.experiment_id, run_id, rows_min, points_min, SERIES_A_MERGE)
    points_before = accumulate((state.tail_points for state in locked), initial=0)
    states = [state for state, before in zip(locked, points_before, strict=False) if before < _POINTS_A_MERGE]
    if not states:
        return 0
    tails = scalar_tail.take(db, grant.experiment_id, [state.series_id for state in states])
    ranks = sample_slots.get_ranks(db)
    blocks = [block for state in states for block in _merge_series(db, grant, state, tails.get(state.series_id), ranks)]
    if blocks:
        scalar_blocks.insert(db, grant, blocks)
    time_series.update_states(db, grant.experiment_id, states)
    return len(states)


def _merge_series(
    db: Connection, grant: ExperimentGrant, state: SeriesState, tail: Points | None, ranks: Ranks
) -> Iterator[NewBlock]:
    """The blocks that take the place of a series' tail and of what is merged with it; brings its state up to date."""
    state.tail_rows = state.tail_points = 0
    if tail is None:
        return
    gathered = _with_open_blocks(db, grant, state.series_id, tail)
    sealed = _overlapped_sealed(db, grant, state, gathered)
    if sealed is None:  # too much to rewrite for so few: they stay open, and reads count the steps
        yield NewBlock(state.series_id, OPEN, gathered)
        return
    merged = newest_of_each_step(concatenate([*sealed, gathered]))
    state.sealed_count -= sum(map(len, sealed))
    full = len(merged) // limits.block_points * limits.block_points
    if full:
        yield from _cut(state.series_id, SEALED, merged.take(slice(full)))
        yield from _thin(db, grant, state.series_id, merged.take(slice(full)), ranks)
        state.sealed_count += full
    if full < len(merged):
        yield NewBlock(state.series_id, OPEN, merged.take(slice(full, None)))
    _settle_count(db, grant, state, len(merged) - full)


def _with_open_blocks(db: Connection, grant: ExperimentGrant, series_id: int, tail: Points) -> Points:
    """The tail and the open blocks that are no bigger than what was gathered so far, so that few points move often."""
    gathered = newest_of_each_step(tail)
    while blocks := scalar_blocks.take_small(db, grant.experiment_id, series_id, OPEN, len(gathered)):
        gathered = newest_of_each_step(concatenate([*blocks, gathered]))
    return gathered


def _overlapped_sealed(
    db: Connection, grant: ExperimentGrant, state: SeriesState, gathered: Points
) -> list[Points] | None:
    """The sealed blocks among whose steps the gathered ones lie, taken; None when they are too many to take."""
    first, last = int(gathered.steps[0]), int(gathered.steps[-1])
    count = scalar_blocks.count_sealed_between(db, grant.experiment_id, state.series_id, first, last)
    if count > _REWRITE_FACTOR * max(len(gathered), limits.block_points):
        return None
    if not count:
        return []
    return scalar_blocks.take_sealed_between(db, grant.experiment_id, state.series_id, first, last)


def _settle_count(db: Connection, grant: ExperimentGrant, state: SeriesState, open_count: int) -> None:
    """Makes the count exact again when all of the series' points are in sealed blocks and the one open block."""
    if not state.count_is_exact and not scalar_blocks.has_open(db, grant.experiment_id, state.series_id):
        state.count = state.sealed_count + open_count
        state.count_is_exact = True


def _thin(db: Connection, grant: ExperimentGrant, series_id: int, sealed: Points, ranks: Ranks) -> Iterator[NewBlock]:
    """The thinned copies of newly sealed points, each merged with the small blocks of its level.

    A point that is sealed again is copied again: copies are equal, or the older loses to the newer when they are read.
    """
    step_ranks = ranks[splitmix64(sealed.steps) >> np.uint64(48)]
    for level in range(1, LEVEL_MAX + 1):
        thinned = sealed.take(step_ranks <= level_ranks_max(level))
        if not len(thinned):
            return
        small = scalar_blocks.take_small(db, grant.experiment_id, series_id, level, _SMALL_POINTS)
        yield from _cut(series_id, level, newest_of_each_step(concatenate([*small, thinned])))


def _cut(series_id: int, level: int, points: Points) -> Iterator[NewBlock]:
    for start in range(0, len(points), limits.block_points):
        yield NewBlock(series_id, level, points.take(slice(start, start + limits.block_points)))
