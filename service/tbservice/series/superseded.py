"""Keep scalar points that lost their step to a later attempt of the run.

Ingest passes the repeated points of one batch, compaction those that it merges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.series.dedup import deduplicate_steps
from tbservice.series.restarts import get_starts, select_superseded
from tbservice.series.tables import superseded_blocks
from tbservice.series.tables.scalar_format import concatenate
from tbservice.series.tables.superseded_blocks import (
    BlockGroup,
    NewSupersededBlock,
    SupersededBlock,
)
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import Float64s
from tbwire.points import ScalarPoints

_REWRITE_FACTOR: Final = 16
"""Stored points rewritten per added one, at most: steps in any order would cost O(n²) else."""

_SMALL_BLOCK_POINTS_MAX: Final = limits.BLOCK_POINTS_MAX // 2
"""Points up to which a block is merged with later ones of its period."""


def keep(
    db: Connection,
    grant: ExperimentGrant,
    repeated: Mapping[int, ScalarPoints],
    restarts: Mapping[int, Float64s],
) -> int:
    """Store the repeated points that are superseded, but no points repeated in one period.

    Returns how many more are stored than before.

    Args:
        db: A transaction that has locked the rows of the series.
        grant: Grant on the experiment.
        repeated: By series id, points of steps that occur more than once, in order of arrival,
            those that remain included.
        restarts: By series id, the restarts of its run; none of a series that is missing.
    """
    added = {
        group: points
        for series_id, candidates in repeated.items()
        if series_id in restarts
        for group, points in _group(series_id, candidates, restarts[series_id])
    }
    if not added:
        return 0
    series_ids = {group.series_id for group in added}
    stored: defaultdict[int, list[SupersededBlock]] = defaultdict(list)
    # Metadata only: the bytes of a block are read by the statement that deletes it.
    for block in superseded_blocks.list_blocks(db, grant.experiment_id, series_ids):
        stored[block.group.series_id].append(block)

    merged = {
        group: _choose_merged(group, points, stored[group.series_id])
        for group, points in added.items()
    }
    to_delete = [block for blocks in merged.values() for block in blocks]
    deleted = (
        superseded_blocks.delete_returning(db, grant.experiment_id, to_delete) if to_delete else {}
    )
    new: list[NewSupersededBlock] = []
    for group, points in added.items():
        parts = [deleted.pop((group.series_id, block.block_id)) for block in merged[group]]
        # Blocks that stay may hold newer points of the same steps: then readers must compare all.
        others = [block for block in stored[group.series_id] if block not in merged[group]]
        if any(_is_between(group, points, block) for block in others):
            group = replace(group, superseded_by=None)  # noqa: PLW2901 - the same points
        new += _make_blocks(group, deduplicate_steps(concatenate([*parts, points])))
    superseded_blocks.insert(db, grant, new)
    return sum(len(block.points) for block in new) - sum(block.count for block in to_delete)


def _group(
    series_id: int, repeated: ScalarPoints, restarts: Float64s
) -> Iterator[tuple[BlockGroup, ScalarPoints]]:
    """Yield the superseded points by period, and by the restart that superseded them."""
    kept, periods, by = select_superseded(repeated.steps, repeated.wall_times, restarts)
    starts, restarts_by = get_starts(periods, restarts), get_starts(by, restarts)
    for start, restart in sorted(set(zip(starts.tolist(), restarts_by.tolist(), strict=True))):
        chosen = kept[(starts == start) & (restarts_by == restart)]
        yield BlockGroup(series_id, start, restart), repeated.select(chosen)


def _choose_merged(
    group: BlockGroup, points: ScalarPoints, stored: Iterable[SupersededBlock]
) -> list[SupersededBlock]:
    """Return the blocks of the same group that are merged with the points.

    Small blocks and overlapping ones are merged; none if that would rewrite too much.
    """
    same = [block for block in stored if block.group == group]
    merged = [
        block
        for block in same
        if block.count <= _SMALL_BLOCK_POINTS_MAX or _overlaps(points, block)
    ]
    rewritten_max = _REWRITE_FACTOR * max(len(points), limits.BLOCK_POINTS_MAX)
    return merged if sum(block.count for block in merged) <= rewritten_max else []


def _is_between(group: BlockGroup, points: ScalarPoints, block: SupersededBlock) -> bool:
    """Return whether a stored block may have a point of the same step and time.

    That is: one of the same period, or between a point and what superseded it.
    """
    other = block.group
    if not _overlaps(points, block):
        return False
    if group.superseded_by is None or other.superseded_by is None or group == other:
        return True
    return other.period_start < group.superseded_by and group.period_start < other.superseded_by


def _overlaps(points: ScalarPoints, block: SupersededBlock) -> bool:
    return block.first_step <= int(points.steps[-1]) and block.last_step >= int(points.steps[0])


def _make_blocks(group: BlockGroup, points: ScalarPoints) -> Iterator[NewSupersededBlock]:
    for start in range(0, len(points), limits.BLOCK_POINTS_MAX):
        end = start + limits.BLOCK_POINTS_MAX
        yield NewSupersededBlock(group, points.select(slice(start, end)))
