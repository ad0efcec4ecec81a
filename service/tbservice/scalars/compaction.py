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
from tbservice.sample_order import LEVEL_MAX, get_level_rank_max, splitmix64
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.store import sample_slots, scalar_blocks, scalar_tail, series_rows
from tbservice.store.scalar_blocks import OPEN, SEALED, NewBlock, OpenBlock
from tbservice.store.scalar_format import ScalarPoints, concatenate, unpack_raw
from tbservice.store.series_rows import SeriesState
from tbservice.types import ExperimentGrant, Ranks

SERIES_PER_COMPACTION: Final = 256
"""Series taken in one transaction, which holds their rows for as long."""

_POINTS_PER_COMPACTION: Final = 200_000
"""Tail points after which a transaction takes no further series: bounds what a merge holds in memory."""

_REWRITE_FACTOR: Final = 16
"""Sealed points that one gathered point may cause to be rewritten: keeps steps in any order from costing n squared."""

_URGENT_FACTOR: Final = 4
"""Times as many points as make a series due, after which nothing is waited for: bounds what a merge has to take."""

IDLE_THRESHOLD: Final = (4, 128)
"""Tail rows and points under which a series at rest is left as it is: merging so little gains nothing."""

_SMALL_BLOCK_POINTS_MAX: Final = limits.BLOCK_POINTS_MAX // 2
"""Points up to which a thinned block is merged with what comes; a fuller one is left as it is for good."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a merge did: `blocks` are those it wrote, as (level, points); others it sealed as they stood.

    `last_tag_id` is the tag of its last series: the next merge goes on behind it.
    """

    series: int = 0
    last_tag_id: int = 0
    tail_points: int = 0
    sealed_in_place: int = 0
    blocks: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
class _SeriesCompaction:
    """One series' merge: its tail, those open blocks that are packed anew with it, and those sealed as they stand."""

    state: SeriesState
    buffered: ScalarPoints | None
    open_blocks: Sequence[OpenBlock]
    seal_in_place: list[OpenBlock] = field(default_factory=list)
    repack: list[OpenBlock] = field(default_factory=list)
    is_disjoint: bool = True  # whether what was packed shares no step with a sealed block
    already_thinned: ScalarPoints | None = (
        None  # points of sealed blocks that are packed anew: their copies are there
    )


def is_above_threshold(state: SeriesState) -> bool:
    """Whether enough has come into a series since it was merged."""
    return (
        state.tail_rows >= limits.WRITE_BUFFER_ROWS_MAX
        or state.tail_points >= limits.WRITE_BUFFER_POINTS_MAX
    )


def is_urgent(state: SeriesState) -> bool:
    """Whether it is to be merged although more is coming in: after many rows, or so many points that they take long."""
    return (
        state.tail_rows >= limits.WRITE_BUFFER_ROWS_MAX
        or state.tail_points >= _URGENT_FACTOR * limits.WRITE_BUFFER_POINTS_MAX
    )


def is_worth_compacting(state: SeriesState) -> bool:
    """Whether a series has enough for a merge when its run has come to rest."""
    rows_min, points_min = IDLE_THRESHOLD
    return state.tail_rows >= rows_min or state.tail_points >= points_min


@dataclass(frozen=True, slots=True)
class PendingRuns:
    """Ids of the runs in which a batch has left series to compact, by when that is due.

    `urgent`: at once. `above_threshold`: when no more batches come for a moment. `pending`: when the run is idle.
    """

    urgent: frozenset[int] = frozenset()
    above_threshold: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()


def group_pending_runs(states: Sequence[SeriesState]) -> PendingRuns:
    """Return the runs of series that have been written to, by when they are to be compacted."""
    return PendingRuns(
        frozenset(state.run_id for state in states if is_urgent(state)),
        frozenset(state.run_id for state in states if is_above_threshold(state)),
        frozenset(state.run_id for state in states if is_worth_compacting(state)),
    )


def compact_run(
    db: Connection,
    grant: ExperimentGrant,
    run_id: int,
    after_tag_id: int = 0,
    *,
    compact_idle: bool = False,
) -> CompactionResult:
    """Merges some series of a run that are due, at most SERIES_PER_COMPACTION, behind the given tag in the order of their ids.

    Of none when none is left: call it until then. A series is due with `WRITE_BUFFER_ROWS_MAX` rows or `WRITE_BUFFER_POINTS_MAX`
    points that no merge has seen; with `compact_idle`, with a few.
    """
    rows_min, points_min = (
        IDLE_THRESHOLD
        if compact_idle
        else (limits.WRITE_BUFFER_ROWS_MAX, limits.WRITE_BUFFER_POINTS_MAX)
    )
    locked = series_rows.lock_above_threshold(
        db, grant.experiment_id, run_id, after_tag_id, rows_min, points_min, SERIES_PER_COMPACTION
    )
    points_before = accumulate((state.tail_points for state in locked), initial=0)
    states = [
        state
        for state, before in zip(locked, points_before, strict=False)
        if before < _POINTS_PER_COMPACTION
    ]
    if not states:
        return CompactionResult()
    compactions = _plan(db, grant, states)
    written = _apply(db, grant, compactions)
    for state in states:
        state.tail_rows, state.tail_points, state.tail_end = 0, 0, b""
    series_rows.update(db, grant, states)
    return CompactionResult(
        series=len(states),
        last_tag_id=states[-1].tag_id,
        tail_points=sum(
            len(compaction.buffered)
            for compaction in compactions
            if compaction.buffered is not None
        ),
        sealed_in_place=sum(len(compaction.seal_in_place) for compaction in compactions),
        blocks=[(block.level, len(block.points)) for block in written],
    )


def _plan(
    db: Connection, grant: ExperimentGrant, states: Sequence[SeriesState]
) -> list[_SeriesCompaction]:
    """Takes the tails, and decides what becomes of each open block."""
    series_ids = [state.series_id for state in states]
    tails = scalar_tail.delete_returning(db, grant.experiment_id, series_ids)
    open_blocks = scalar_blocks.list_open_blocks(db, grant.experiment_id, series_ids)
    compactions = []
    for state in states:
        tail = [tails[state.series_id]] if state.series_id in tails else []
        if state.tail_end:
            tail.append(unpack_raw(state.tail_end))
        compaction = _SeriesCompaction(
            state, concatenate(tail) if tail else None, open_blocks.get(state.series_id, [])
        )
        compaction.seal_in_place = [
            block
            for block in compaction.open_blocks
            if _can_seal_in_place(db, grant, compaction, block)
        ]
        compaction.repack = _select_repack(compaction)
        compactions.append(compaction)
    return compactions


def _can_seal_in_place(
    db: Connection, grant: ExperimentGrant, compaction: _SeriesCompaction, block: OpenBlock
) -> bool:
    """Whether an open block is large, and no other point of the series lies among its steps."""
    if block.count < limits.SEALED_POINTS_MIN:
        return False
    if compaction.state.count_is_exact:  # then everything came in step order
        return True
    others = [
        (other.first_step, other.last_step)
        for other in compaction.open_blocks
        if other is not block
    ]
    if compaction.buffered is not None:
        others.append((int(compaction.buffered.steps.min()), int(compaction.buffered.steps.max())))
    if any(first <= block.last_step and last >= block.first_step for first, last in others):
        return False
    ends = (block.first_step, block.last_step)
    return not scalar_blocks.count_sealed_between(
        db, grant.experiment_id, compaction.state.series_id, *ends
    )


def _select_repack(compaction: _SeriesCompaction) -> list[OpenBlock]:
    """The newest of the other open blocks, as long as each is no bigger than all that is newer: few points move often.

    The oldest first. Only neighbours in arrival are joined, so that of two points with one wall time the later stays
    the later.
    """
    rest = [block for block in compaction.open_blocks if block not in compaction.seal_in_place]
    newer_count = (
        len(compaction.buffered)
        if compaction.buffered is not None
        else rest[-1].count
        if rest
        else 0
    )
    joined: list[OpenBlock] = []
    while rest and rest[-1].count <= newer_count:
        joined.insert(0, rest.pop())
        newer_count += joined[0].count
    is_as_it_will_be = (
        compaction.buffered is None and len(joined) == 1 and compaction.state.count_is_exact
    )
    return [] if is_as_it_will_be else joined


def _apply(
    db: Connection, grant: ExperimentGrant, compactions: Sequence[_SeriesCompaction]
) -> list[NewBlock]:
    """Does what was planned, and gives the blocks it has written."""
    sealed_in_place = scalar_blocks.seal_in_place(
        db,
        grant.experiment_id,
        [block.key for compaction in compactions for block in compaction.seal_in_place],
    )
    old = scalar_blocks.delete_returning(
        db,
        grant.experiment_id,
        [block.key for compaction in compactions for block in compaction.repack],
    )
    blocks: list[NewBlock] = []
    sealed: dict[int, ScalarPoints] = {}
    for compaction in compactions:
        input_points = [old[block.key] for block in compaction.repack]
        if compaction.buffered is not None:
            input_points.append(compaction.buffered)
        packed = _pack(db, grant, compaction, input_points) if input_points else []
        newly = [sealed_in_place[block.key] for block in compaction.seal_in_place]
        newly += [block.points for block in packed if block.level == SEALED]
        compaction.state.sealed_count += sum(map(len, newly))
        if newly:
            fresh = concatenate(newly)
            sealed[compaction.state.series_id] = (
                fresh
                if compaction.already_thinned is None
                else _subtract(fresh, compaction.already_thinned)
            )
        _update_exact_count(compaction, packed)
        blocks += packed
    blocks += _thin(db, grant, sealed)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)
    return blocks


def _pack(
    db: Connection, grant: ExperimentGrant, compaction: _SeriesCompaction, parts: list[ScalarPoints]
) -> list[NewBlock]:
    """The blocks that take the place of these points and of the sealed blocks among whose steps they lie."""
    state = compaction.state
    input_points = deduplicate_steps(concatenate(parts))
    if state.count_is_exact:
        return _pack_in_order(db, grant, compaction, input_points)
    sealed = _delete_overlapped_sealed(db, grant, state, input_points)
    if sealed is None:  # too much to rewrite for so few: they stay open, and reads count the steps
        compaction.is_disjoint = False
        return [NewBlock(state.series_id, OPEN, input_points)]
    merged = deduplicate_steps(concatenate([*sealed, input_points]))
    if sealed:
        compaction.already_thinned = deduplicate_steps(concatenate(sealed))
        state.sealed_count -= sum(map(len, sealed))
    return _pack_at_end(state, merged)


def _pack_in_order(
    db: Connection,
    grant: ExperimentGrant,
    compaction: _SeriesCompaction,
    input_points: ScalarPoints,
) -> list[NewBlock]:
    """The blocks of points that came in step order: no block lies across those that were sealed between them."""
    state = compaction.state
    starts: list[int] = []
    if (
        compaction.seal_in_place or compaction.repack
    ):  # otherwise it is a tail, and all that is sealed lies before it
        ends = int(input_points.steps[0]), int(input_points.steps[-1])
        starts = scalar_blocks.list_sealed_starts(db, grant.experiment_id, state.series_id, *ends)
    cuts = [0, *np.unique(np.searchsorted(input_points.steps, np.array(starts, np.int64))).tolist()]
    between = (input_points.select(slice(start, end)) for start, end in pairwise(cuts))
    blocks = [
        block for points in between for block in _split_into_blocks(state.series_id, SEALED, points)
    ]
    return [*blocks, *_pack_at_end(state, input_points.select(slice(cuts[-1], None)))]


def _pack_at_end(state: SeriesState, points: ScalarPoints) -> list[NewBlock]:
    """Full blocks, which are sealed, and an open one with what is left."""
    full = len(points) // limits.BLOCK_POINTS_MAX * limits.BLOCK_POINTS_MAX
    blocks = list(_split_into_blocks(state.series_id, SEALED, points.select(slice(full))))
    if full < len(points):
        blocks.append(NewBlock(state.series_id, OPEN, points.select(slice(full, None))))
    return blocks


def _update_exact_count(compaction: _SeriesCompaction, packed: Sequence[NewBlock]) -> None:
    """Makes the count exact again when all of the series' points are in sealed blocks and the one open block."""
    is_whole = len(compaction.open_blocks) == len(compaction.seal_in_place) + len(compaction.repack)
    if is_whole and compaction.is_disjoint:
        open_count = sum(len(block.points) for block in packed if block.level == OPEN)
        compaction.state.count, compaction.state.count_is_exact = (
            compaction.state.sealed_count + open_count,
            True,
        )


def _delete_overlapped_sealed(
    db: Connection, grant: ExperimentGrant, state: SeriesState, input_points: ScalarPoints
) -> list[ScalarPoints] | None:
    """The sealed blocks among whose steps the gathered ones lie, taken; None when they are too many to take."""
    first, last = int(input_points.steps[0]), int(input_points.steps[-1])
    count = scalar_blocks.count_sealed_between(
        db, grant.experiment_id, state.series_id, first, last
    )
    if count > _REWRITE_FACTOR * max(len(input_points), limits.BLOCK_POINTS_MAX):
        return None
    if not count:
        return []
    return scalar_blocks.delete_sealed_returning(
        db, grant.experiment_id, state.series_id, first, last
    )


def _thin(
    db: Connection, grant: ExperimentGrant, sealed: Mapping[int, ScalarPoints]
) -> Iterator[NewBlock]:
    """The thinned copies of newly sealed points, by series, each merged with the small blocks of its level.

    A point may be copied again, as one that was in an open block meanwhile: copies are equal, or the older loses to the
    newer when they are read.
    """
    if not sealed:
        return
    ranks = sample_slots.get_ranks(db)
    thinned = {
        (series_id, level): points
        for series_id, whole in sealed.items()
        for level, points in _select_levels(whole, ranks)
    }
    small = (
        scalar_blocks.delete_small_returning(
            db, grant.experiment_id, list(thinned), _SMALL_BLOCK_POINTS_MAX
        )
        if thinned
        else {}
    )
    for (series_id, level), points in thinned.items():
        yield from _split_into_blocks(
            series_id,
            level,
            deduplicate_steps(concatenate([*small.get((series_id, level), []), points])),
        )


def _subtract(points: ScalarPoints, others: ScalarPoints) -> ScalarPoints:
    """Those of the points that are not among the others, which stand in step order and are not none."""
    places = np.minimum(np.searchsorted(others.steps, points.steps), len(others) - 1)
    is_same = others.steps[places] == points.steps
    for column, other in ((points.wall_times, others.wall_times), (points.values, others.values)):
        is_same &= column.view(np.int64) == other.view(np.int64)[places]
    return points.select(~is_same)


def _select_levels(points: ScalarPoints, ranks: Ranks) -> Iterator[tuple[int, ScalarPoints]]:
    """By level, those of the points that survive its draw; no level that none does."""
    step_ranks = ranks[splitmix64(points.steps) >> np.uint64(48)]
    for level in range(1, LEVEL_MAX + 1):
        chosen = step_ranks <= get_level_rank_max(level)
        if not chosen.any():
            return
        yield level, points.select(chosen)


def _split_into_blocks(series_id: int, level: int, points: ScalarPoints) -> Iterator[NewBlock]:
    for start in range(0, len(points), limits.BLOCK_POINTS_MAX):
        yield NewBlock(
            series_id, level, points.select(slice(start, start + limits.BLOCK_POINTS_MAX))
        )
