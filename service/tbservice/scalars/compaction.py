"""Merging what came in since into sealed blocks, and thinning sealed blocks into levels.

A merge holds the rows of the series it works on, passes over those that an ingest holds, and re-inserts only what its
own DELETE … RETURNING gave it: it may run in the ingest process or beside it, several at once, and crash anywhere.

Small tail rows are packed with what came just before them. A block that came in large and overlaps nothing is sealed as
it stands, by its row's level alone: bulk uploads are written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.sample_order import LEVEL_MAX, level_ranks_max, splitmix64
from tbservice.scalars.dedup import newest_of_each_step
from tbservice.store import sample_slots, scalar_blocks, scalar_tail, series_rows
from tbservice.store.scalar_blocks import OPEN, SEALED, NewBlock, OpenBlock
from tbservice.store.scalar_format import Points, concatenate, unpack_raw
from tbservice.store.series_rows import SeriesState
from tbservice.types import ExperimentGrant, Ranks

SERIES_A_MERGE: Final = 256
"""Series taken in one transaction, which holds their rows for as long."""

_POINTS_A_MERGE: Final = 200_000
"""Tail points after which a transaction takes no further series: bounds what a merge holds in memory."""

_REWRITE_FACTOR: Final = 16
"""Sealed points that one gathered point may cause to be rewritten: keeps steps in any order from costing n squared."""

_OVERDUE_FACTOR: Final = 4
"""Times as many points as make a series due, after which nothing is waited for: bounds what a merge has to take."""

SETTLED_BELOW: Final = (4, 128)
"""Tail rows and points under which a series at rest is left as it is: merging so little gains nothing."""

_SMALL_POINTS: Final = limits.block_points // 2
"""Points up to which a thinned block is merged with what comes; a fuller one is left as it is for good."""


@dataclass(frozen=True, slots=True)
class MergeWork:
    """What a merge did: `blocks` are those it wrote, as (level, points); others it sealed as they stood.

    `last_tag_id` is the tag of its last series: the next merge goes on behind it.
    """

    series: int = 0
    last_tag_id: int = 0
    tail_points: int = 0
    sealed_in_place: int = 0
    blocks: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class _SeriesMerge:
    """One series' merge: its tail, those open blocks that are packed anew with it, and those sealed as they stand."""

    state: SeriesState
    tail: Points | None
    open_blocks: Sequence[OpenBlock]
    in_place: list[OpenBlock] = field(default_factory=list)
    rewritten: list[OpenBlock] = field(default_factory=list)
    is_disjoint: bool = True  # whether what was packed shares no step with a sealed block
    thinned: Points | None = None  # points of sealed blocks that are packed anew: their copies are there


def is_due(state: SeriesState) -> bool:
    """Whether enough has come into a series since it was merged."""
    return state.tail_rows >= limits.tail_rows_max or state.tail_points >= limits.tail_points_max


def is_overdue(state: SeriesState) -> bool:
    """Whether it is to be merged although more is coming in: after many rows, or so many points that they take long."""
    return state.tail_rows >= limits.tail_rows_max or state.tail_points >= _OVERDUE_FACTOR * limits.tail_points_max


def is_worth_settling(state: SeriesState) -> bool:
    """Whether a series has enough for a merge when its run has come to rest."""
    rows_min, points_min = SETTLED_BELOW
    return state.tail_rows >= rows_min or state.tail_points >= points_min


@dataclass(frozen=True, slots=True)
class PendingRuns:
    """Ids of the runs in which a batch has left series to compact, by when that is due.

    `urgent`: at once. `above_threshold`: when no more batches come for a moment. `pending`: when the run is idle.
    """

    urgent: frozenset[int] = frozenset()
    above_threshold: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()


def pending_runs(states: Sequence[SeriesState]) -> PendingRuns:
    """Return the runs of series that have been written to, by when they are to be compacted."""
    return PendingRuns(
        frozenset(state.run_id for state in states if is_overdue(state)),
        frozenset(state.run_id for state in states if is_due(state)),
        frozenset(state.run_id for state in states if is_worth_settling(state)),
    )


def merge_run(
    db: Connection, grant: ExperimentGrant, run_id: int, after_tag_id: int = 0, *, settle: bool = False
) -> MergeWork:
    """Merges some series of a run that are due, at most SERIES_A_MERGE, behind the given tag in the order of their ids.

    Of none when none is left: call it until then. A series is due with `tail_rows_max` rows or `tail_points_max`
    points that no merge has seen; with `settle`, with a few.
    """
    rows_min, points_min = SETTLED_BELOW if settle else (limits.tail_rows_max, limits.tail_points_max)
    locked = series_rows.lock_due(db, grant.experiment_id, run_id, after_tag_id, rows_min, points_min, SERIES_A_MERGE)
    points_before = accumulate((state.tail_points for state in locked), initial=0)
    states = [state for state, before in zip(locked, points_before, strict=False) if before < _POINTS_A_MERGE]
    if not states:
        return MergeWork()
    merges = _plan(db, grant, states)
    written = _merge(db, grant, merges)
    for state in states:
        state.tail_rows, state.tail_points, state.tail_end = 0, 0, b""
    series_rows.update(db, grant, states)
    return MergeWork(
        series=len(states),
        last_tag_id=states[-1].tag_id,
        tail_points=sum(len(merge.tail) for merge in merges if merge.tail is not None),
        sealed_in_place=sum(len(merge.in_place) for merge in merges),
        blocks=[(block.level, len(block.points)) for block in written],
    )


def _plan(db: Connection, grant: ExperimentGrant, states: Sequence[SeriesState]) -> list[_SeriesMerge]:
    """Takes the tails, and decides what becomes of each open block."""
    series_ids = [state.series_id for state in states]
    tails = scalar_tail.take(db, grant.experiment_id, series_ids)
    open_blocks = scalar_blocks.list_open(db, grant.experiment_id, series_ids)
    merges = []
    for state in states:
        tail = [tails[state.series_id]] if state.series_id in tails else []
        if state.tail_end:
            tail.append(unpack_raw(state.tail_end))
        merge = _SeriesMerge(state, concatenate(tail) if tail else None, open_blocks.get(state.series_id, []))
        merge.in_place = [block for block in merge.open_blocks if _may_seal(db, grant, merge, block)]
        merge.rewritten = _worth_rewriting(merge)
        merges.append(merge)
    return merges


def _may_seal(db: Connection, grant: ExperimentGrant, merge: _SeriesMerge, block: OpenBlock) -> bool:
    """Whether an open block is large, and no other point of the series lies among its steps."""
    if block.count < limits.sealed_points_min:
        return False
    if merge.state.count_is_exact:  # then everything came in step order
        return True
    others = [(other.first_step, other.last_step) for other in merge.open_blocks if other is not block]
    if merge.tail is not None:
        others.append((int(merge.tail.steps.min()), int(merge.tail.steps.max())))
    if any(first <= block.last_step and last >= block.first_step for first, last in others):
        return False
    ends = (block.first_step, block.last_step)
    return not scalar_blocks.count_sealed_between(db, grant.experiment_id, merge.state.series_id, *ends)


def _worth_rewriting(merge: _SeriesMerge) -> list[OpenBlock]:
    """The newest of the other open blocks, as long as each is no bigger than all that is newer: few points move often.

    The oldest first. Only neighbours in arrival are joined, so that of two points with one wall time the later stays
    the later.
    """
    rest = [block for block in merge.open_blocks if block not in merge.in_place]
    gathered = len(merge.tail) if merge.tail is not None else rest[-1].count if rest else 0
    joined: list[OpenBlock] = []
    while rest and rest[-1].count <= gathered:
        joined.insert(0, rest.pop())
        gathered += joined[0].count
    is_as_it_will_be = merge.tail is None and len(joined) == 1 and merge.state.count_is_exact
    return [] if is_as_it_will_be else joined


def _merge(db: Connection, grant: ExperimentGrant, merges: Sequence[_SeriesMerge]) -> list[NewBlock]:
    """Does what was planned, and gives the blocks it has written."""
    in_place = scalar_blocks.seal(
        db, grant.experiment_id, [block.place for merge in merges for block in merge.in_place]
    )
    old = scalar_blocks.take(db, grant.experiment_id, [block.place for merge in merges for block in merge.rewritten])
    blocks: list[NewBlock] = []
    sealed: dict[int, Points] = {}
    for merge in merges:
        gathered = [old[block.place] for block in merge.rewritten]
        if merge.tail is not None:
            gathered.append(merge.tail)
        packed = _pack(db, grant, merge, gathered) if gathered else []
        newly = [in_place[block.place] for block in merge.in_place]
        newly += [block.points for block in packed if block.level == SEALED]
        merge.state.sealed_count += sum(map(len, newly))
        if newly:
            fresh = concatenate(newly)
            sealed[merge.state.series_id] = fresh if merge.thinned is None else _unlike(fresh, merge.thinned)
        _settle_count(merge, packed)
        blocks += packed
    blocks += _thin(db, grant, sealed)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)
    return blocks


def _pack(db: Connection, grant: ExperimentGrant, merge: _SeriesMerge, parts: list[Points]) -> list[NewBlock]:
    """The blocks that take the place of these points and of the sealed blocks among whose steps they lie."""
    state = merge.state
    gathered = newest_of_each_step(concatenate(parts))
    if state.count_is_exact:
        return _pack_in_order(db, grant, merge, gathered)
    sealed = _overlapped_sealed(db, grant, state, gathered)
    if sealed is None:  # too much to rewrite for so few: they stay open, and reads count the steps
        merge.is_disjoint = False
        return [NewBlock(state.series_id, OPEN, gathered)]
    merged = newest_of_each_step(concatenate([*sealed, gathered]))
    if sealed:
        merge.thinned = newest_of_each_step(concatenate(sealed))
        state.sealed_count -= sum(map(len, sealed))
    return _pack_at_end(state, merged)


def _pack_in_order(db: Connection, grant: ExperimentGrant, merge: _SeriesMerge, gathered: Points) -> list[NewBlock]:
    """The blocks of points that came in step order: no block lies across those that were sealed between them."""
    state = merge.state
    starts: list[int] = []
    if merge.in_place or merge.rewritten:  # otherwise it is a tail, and all that is sealed lies before it
        ends = int(gathered.steps[0]), int(gathered.steps[-1])
        starts = scalar_blocks.list_sealed_starts(db, grant.experiment_id, state.series_id, *ends)
    cuts = [0, *np.unique(np.searchsorted(gathered.steps, np.array(starts, np.int64))).tolist()]
    between = (gathered.take(slice(start, end)) for start, end in pairwise(cuts))
    blocks = [block for points in between for block in _cut(state.series_id, SEALED, points)]
    return [*blocks, *_pack_at_end(state, gathered.take(slice(cuts[-1], None)))]


def _pack_at_end(state: SeriesState, points: Points) -> list[NewBlock]:
    """Full blocks, which are sealed, and an open one with what is left."""
    full = len(points) // limits.block_points * limits.block_points
    blocks = list(_cut(state.series_id, SEALED, points.take(slice(full))))
    if full < len(points):
        blocks.append(NewBlock(state.series_id, OPEN, points.take(slice(full, None))))
    return blocks


def _settle_count(merge: _SeriesMerge, packed: Sequence[NewBlock]) -> None:
    """Makes the count exact again when all of the series' points are in sealed blocks and the one open block."""
    is_whole = len(merge.open_blocks) == len(merge.in_place) + len(merge.rewritten)
    if is_whole and merge.is_disjoint:
        open_count = sum(len(block.points) for block in packed if block.level == OPEN)
        merge.state.count, merge.state.count_is_exact = merge.state.sealed_count + open_count, True


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


def _thin(db: Connection, grant: ExperimentGrant, sealed: Mapping[int, Points]) -> Iterator[NewBlock]:
    """The thinned copies of newly sealed points, by series, each merged with the small blocks of its level.

    A point may be copied again, as one that was in an open block meanwhile: copies are equal, or the older loses to the
    newer when they are read.
    """
    if not sealed:
        return
    ranks = sample_slots.get_ranks(db)
    thinned = {
        (series_id, level): points for series_id, whole in sealed.items() for level, points in _thinned(whole, ranks)
    }
    small = scalar_blocks.take_small(db, grant.experiment_id, list(thinned), _SMALL_POINTS) if thinned else {}
    for (series_id, level), points in thinned.items():
        yield from _cut(
            series_id, level, newest_of_each_step(concatenate([*small.get((series_id, level), []), points]))
        )


def _unlike(points: Points, others: Points) -> Points:
    """Those of the points that are not among the others, which stand in step order and are not none."""
    places = np.minimum(np.searchsorted(others.steps, points.steps), len(others) - 1)
    is_same = others.steps[places] == points.steps
    for column, other in ((points.wall_times, others.wall_times), (points.values, others.values)):
        is_same &= column.view(np.int64) == other.view(np.int64)[places]
    return points.take(~is_same)


def _thinned(points: Points, ranks: Ranks) -> Iterator[tuple[int, Points]]:
    """By level, those of the points that survive its draw; no level that none does."""
    step_ranks = ranks[splitmix64(points.steps) >> np.uint64(48)]
    for level in range(1, LEVEL_MAX + 1):
        chosen = step_ranks <= level_ranks_max(level)
        if not chosen.any():
            return
        yield level, points.take(chosen)


def _cut(series_id: int, level: int, points: Points) -> Iterator[NewBlock]:
    for start in range(0, len(points), limits.block_points):
        yield NewBlock(series_id, level, points.take(slice(start, start + limits.block_points)))
