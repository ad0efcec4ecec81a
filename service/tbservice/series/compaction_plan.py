"""Plan the compaction of a scalar series, without I/O: what is sealed, repacked and rewritten.

`compaction` calls these stages in this order, and reads and writes between them, for all series of
a transaction at once:

1. `plan_series` decides from buffered points and the metadata of blocks which open blocks are
   sealed in place and which are repacked.
2. `plan_merge` decides, with the points of the repacked blocks, which sealed blocks are rewritten.
3. `pack_series` builds, with the points of those, the new blocks. `thinning` makes the thinned
   copies of the newly sealed points.

The stages are separate because the points of a block are read only by the statement that deletes
it: a plan in one step would read them twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from tbservice import limits
from tbservice.series.dedup import deduplicate_steps, find_repeated
from tbservice.series.tables.scalar_blocks import OPEN, SEALED, BlockMetadata, NewBlock
from tbservice.series.tables.scalar_format import concatenate
from tbservice.types.sampling import StepRange
from tbwire.points import ScalarPoints

_REWRITE_FACTOR: Final = 16
"""Sealed points rewritten per packed point, at most: steps in any order would cost O(n²) else."""


@dataclass(frozen=True, slots=True)
class SeriesInput:
    """A locked series as a compaction reads it: buffered points and metadata of its open blocks.

    `buffered` is in order of arrival and may repeat steps: the write buffer, then the inline
    buffer. `open_blocks` arrived before, and are in order of arrival too.
    """

    series_id: int
    count_is_exact: bool
    sealed_count: int
    buffered: ScalarPoints
    open_blocks: Sequence[BlockMetadata]


@dataclass(frozen=True, slots=True)
class SeriesPlan:
    """Decisions about the open blocks of a series; those in neither list remain open as they are.

    `repack` lists neighbours in order of arrival: their points are packed with the buffered ones.
    `overlapped` are the sealed blocks between the first and the last step of all these points, in
    step order, blocks sealed in place included.
    """

    series: SeriesInput
    seal_in_place: Sequence[BlockMetadata]
    repack: Sequence[BlockMetadata]
    overlapped: Sequence[BlockMetadata]


@dataclass(frozen=True, slots=True)
class SeriesMerge:
    """The points to pack, in step order and one per step, and the sealed blocks to merge them with.

    `is_disjoint` is False when the points remain open although they may share steps with sealed
    blocks. `repeated` are all points of steps that occurred several times; None without any.
    """

    plan: SeriesPlan
    points: ScalarPoints
    rewrite: Sequence[BlockMetadata] = ()
    is_disjoint: bool = True
    repeated: ScalarPoints | None = None


@dataclass(frozen=True, slots=True)
class PackedSeries:
    """The new blocks of a series, and the values of its row.

    `to_thin` are the newly sealed points that have no copies in the levels, None if nothing was
    sealed. `count` is the exact number of distinct steps, None if it is unchanged or unknown.
    `repeated` are all points of steps of which one point remains of several; None without any.
    """

    series_id: int
    blocks: Sequence[NewBlock]
    to_thin: ScalarPoints | None
    sealed_count: int
    count: int | None
    repeated: ScalarPoints | None = None


def find_sealed_range(series: SeriesInput) -> StepRange | None:
    """Return the steps for which `plan_series` needs the sealed blocks; None if it needs none.

    It needs none where all points arrived in step order and only buffered ones are packed: these
    follow every sealed block.
    """
    if not series.count_is_exact:
        return _compute_step_range(series.open_blocks, series.buffered)
    seal_in_place = _select_seal_in_place(series, ())
    repack = _select_repack(series, seal_in_place)
    if not seal_in_place and not repack:
        return None
    return _compute_step_range(repack, series.buffered)


def plan_series(series: SeriesInput, sealed: Sequence[BlockMetadata]) -> SeriesPlan:
    """Decide about each open block of a series.

    Args:
        series: The series with its buffered points and open blocks.
        sealed: Its sealed blocks that overlap `find_sealed_range(series)`, in step order.
    """
    seal_in_place = _select_seal_in_place(series, sealed)
    repack = _select_repack(series, seal_in_place)
    steps = _compute_step_range(repack, series.buffered)
    overlapped = [
        block
        for block in sorted([*sealed, *seal_in_place], key=lambda block: block.first_step)
        if steps is not None and _overlaps(block, steps)
    ]
    return SeriesPlan(series, seal_in_place, repack, overlapped)


def _select_seal_in_place(
    series: SeriesInput, sealed: Sequence[BlockMetadata]
) -> Sequence[BlockMetadata]:
    """Return the large open blocks that overlap no other block and no buffered point."""
    large = [block for block in series.open_blocks if block.count >= limits.SEALED_POINTS_MIN]
    if series.count_is_exact:  # all points arrived in step order: no blocks overlap
        return large

    blocks = [*series.open_blocks, *sealed]
    buffered = _compute_step_range((), series.buffered)
    return [
        block
        for block in large
        if not any(
            _overlaps(other, StepRange(block.first_step, block.last_step))
            for other in blocks
            if other is not block
        )
        and (buffered is None or not _overlaps(block, buffered))
    ]


def _select_repack(
    series: SeriesInput, seal_in_place: Sequence[BlockMetadata]
) -> Sequence[BlockMetadata]:
    """Return the last of the other open blocks, in order of arrival, that are repacked.

    A block is included while it has no more points than all that arrived after it, so that a point
    is rewritten O(log n) times. No block is passed over: of two points with one step and one wall
    time the later arrival must remain the later one.
    """
    others = [block for block in series.open_blocks if block not in seal_in_place]
    later_count = len(series.buffered) or (others[-1].count if others else 0)
    repack: list[BlockMetadata] = []
    while others and others[-1].count <= later_count:
        repack.insert(0, others.pop())
        later_count += repack[0].count
    is_unchanged = not len(series.buffered) and len(repack) == 1 and series.count_is_exact
    return [] if is_unchanged else repack


def plan_merge(plan: SeriesPlan, repacked: Sequence[ScalarPoints]) -> SeriesMerge:
    """Decide whether the overlapped sealed blocks are rewritten.

    Not if they contain too many points for the few that are added: these remain in an open block.

    Args:
        plan: The plan of the series.
        repacked: The points of `plan.repack`, in that order.
    """
    arrived = concatenate([*repacked, plan.series.buffered])
    points = deduplicate_steps(arrived)
    repeated = find_repeated(arrived, points)
    if plan.series.count_is_exact:
        return SeriesMerge(plan, points, repeated=repeated)
    sealed_count = sum(block.count for block in plan.overlapped)
    if sealed_count > _REWRITE_FACTOR * max(len(points), limits.BLOCK_POINTS_MAX):
        return SeriesMerge(plan, points, is_disjoint=False, repeated=repeated)
    return SeriesMerge(plan, points, rewrite=plan.overlapped, repeated=repeated)


def pack_series(
    merge: SeriesMerge,
    sealed_in_place: Sequence[ScalarPoints],
    rewritten: Sequence[ScalarPoints],
) -> PackedSeries:
    """Build the blocks that replace the repacked and the rewritten ones.

    Args:
        merge: The points to pack.
        sealed_in_place: The points of the blocks sealed in place.
        rewritten: The points of `merge.rewrite`.
    """
    series, plan = merge.plan.series, merge.plan
    blocks, repeated = _pack(merge, rewritten)

    # A block may be sealed in place and rewritten at once: then it counts as neither.
    both = {block.key for block in plan.seal_in_place} & {block.key for block in merge.rewrite}
    newly_sealed = [
        points
        for block, points in zip(plan.seal_in_place, sealed_in_place, strict=True)
        if block.key not in both
    ]
    newly_sealed += [block.points for block in blocks if block.level == SEALED]
    previously_sealed = [
        points
        for block, points in zip(merge.rewrite, rewritten, strict=True)
        if block.key not in both
    ]
    to_thin = concatenate(newly_sealed) if newly_sealed else None
    if to_thin is not None and previously_sealed:  # the levels contain their copies
        to_thin = _subtract(to_thin, deduplicate_steps(concatenate(previously_sealed)))

    sealed_count = (
        series.sealed_count + sum(map(len, newly_sealed)) - sum(map(len, previously_sealed))
    )
    open_count = sum(len(block.points) for block in blocks if block.level == OPEN)
    has_all_points = len(series.open_blocks) == len(plan.seal_in_place) + len(plan.repack)
    count = sealed_count + open_count if has_all_points and merge.is_disjoint else None
    return PackedSeries(series.series_id, blocks, to_thin, sealed_count, count, repeated)


def _pack(
    merge: SeriesMerge, rewritten: Sequence[ScalarPoints]
) -> tuple[list[NewBlock], ScalarPoints | None]:
    """Build the blocks; also return all points of steps that occurred several times."""
    series_id = merge.plan.series.series_id
    if not len(merge.points):
        return [], None
    if merge.plan.series.count_is_exact:
        return _pack_in_order(merge), merge.repeated
    if not merge.is_disjoint:
        return [NewBlock(series_id, OPEN, merge.points)], merge.repeated
    # Of equal wall times the later arrival wins, and sealed points arrived first.
    arrived = concatenate([*rewritten, merge.points])
    points = deduplicate_steps(arrived)
    # Not one call over all points: `merge.points` has lost its repeated steps before.
    both = find_repeated(arrived, points), merge.repeated
    repeated = [part for part in both if part is not None]
    return _pack_at_end(series_id, points), concatenate(repeated) if repeated else None


def _pack_in_order(merge: SeriesMerge) -> list[NewBlock]:
    """Build blocks of points that arrived in step order.

    Points before a sealed block and points after it never share a block: it would overlap that one.
    """
    series_id, points = merge.plan.series.series_id, merge.points
    starts = np.array([block.first_step for block in merge.plan.overlapped], np.int64)
    cuts = [0, *np.unique(np.searchsorted(points.steps, starts)).tolist()]
    blocks = [
        block
        for start, end in pairwise(cuts)
        for block in split_into_blocks(series_id, SEALED, points.select(slice(start, end)))
    ]
    return [*blocks, *_pack_at_end(series_id, points.select(slice(cuts[-1], None)))]


def _pack_at_end(series_id: int, points: ScalarPoints) -> list[NewBlock]:
    """Build full sealed blocks, and an open block of the remaining points."""
    full = len(points) // limits.BLOCK_POINTS_MAX * limits.BLOCK_POINTS_MAX
    blocks = list(split_into_blocks(series_id, SEALED, points.select(slice(full))))
    if full < len(points):
        blocks.append(NewBlock(series_id, OPEN, points.select(slice(full, None))))
    return blocks


def _compute_step_range(blocks: Sequence[BlockMetadata], points: ScalarPoints) -> StepRange | None:
    """Return the least and the greatest step of blocks and points; None if there are neither."""
    firsts = [block.first_step for block in blocks]
    lasts = [block.last_step for block in blocks]
    if len(points):
        firsts.append(int(points.steps.min()))
        lasts.append(int(points.steps.max()))
    return StepRange(min(firsts), max(lasts)) if firsts else None


def _overlaps(block: BlockMetadata, steps: StepRange) -> bool:
    return block.first_step <= steps.last and block.last_step >= steps.first


def _subtract(points: ScalarPoints, others: ScalarPoints) -> ScalarPoints:
    """Return the points that are not equal to one of `others`.

    `others` are in step order and not empty. Floats are compared by their bits: NaN equals itself.
    """
    indices = np.minimum(np.searchsorted(others.steps, points.steps), len(others) - 1)
    is_equal = others.steps[indices] == points.steps
    for column, other in ((points.wall_times, others.wall_times), (points.values, others.values)):
        is_equal &= column.view(np.int64) == other.view(np.int64)[indices]
    return points.select(~is_equal)


def split_into_blocks(series_id: int, level: int, points: ScalarPoints) -> Iterator[NewBlock]:
    """Yield blocks of BLOCK_POINTS_MAX points; the last contains the remaining ones."""
    for start in range(0, len(points), limits.BLOCK_POINTS_MAX):
        end = start + limits.BLOCK_POINTS_MAX
        yield NewBlock(series_id, level, points.select(slice(start, end)))
