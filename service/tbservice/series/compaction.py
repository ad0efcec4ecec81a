"""Compact scalar series: pack buffered points into blocks, and thin sealed blocks into levels.

One transaction compacts a batch of series. It locks their rows, skips those that another one has
locked, and re-inserts only what its own DELETE … RETURNING returned: several processes may compact
an experiment at the same time, and each may crash at any statement.

Every read is one statement for all series; `compaction_plan` makes the decisions. A large block
that overlaps no other is sealed in place, by an update of its level: points that were uploaded in
bulk are written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.quotas.tables import usage_counters
from tbservice.series import compaction_plan, summary_scan, superseded, thinning
from tbservice.series.compaction_plan import PackedSeries, SeriesInput, SeriesMerge, SeriesPlan
from tbservice.series.compaction_thresholds import IDLE_THRESHOLD, limit_points
from tbservice.series.restarts import read_bounds
from tbservice.series.tables import (
    sample_slots,
    scalar_blocks,
    scalar_tail,
    series_rows,
)
from tbservice.series.tables.scalar_blocks import OPEN, SEALED, BlockKey, NewBlock
from tbservice.series.tables.scalar_format import concatenate, unpack_raw
from tbservice.series.tables.series_rows import SeriesRow
from tbservice.types.grants import ExperimentGrant
from tbservice.types.quotas import Usage
from tbwire.points import ScalarPoints

SERIES_PER_COMPACTION: Final = 256
"""Series compacted in one transaction, which locks their rows until it ends."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Result of one transaction of compaction.

    `last_tag_id` is the tag id of the last series: pass it to the next call. `blocks` are the
    written blocks as (level, points), without those that were sealed in place.
    """

    series: int = 0
    last_tag_id: int = 0
    tail_points: int = 0
    sealed_in_place: int = 0
    blocks: Sequence[tuple[int, int]] = ()


def compact_run(
    db: Connection,
    grant: ExperimentGrant,
    run_id: int,
    after_tag_id: int = 0,
    *,
    compact_idle: bool = False,
) -> CompactionResult:
    """Compact up to SERIES_PER_COMPACTION series of a run that are above the threshold.

    Call it again with `last_tag_id` of the result until a result has no series.

    Args:
        db: A transaction of the workspace; the rows of the series are locked until it ends.
        grant: Proof of a right to the experiment.
        run_id: The run.
        after_tag_id: Only series of tags with greater ids are compacted, in the order of these ids.
        compact_idle: Whether to use `IDLE_THRESHOLD` instead of the limits of the write buffer.
    """
    threshold = (limits.WRITE_BUFFER_ROWS_MAX, limits.WRITE_BUFFER_POINTS_MAX)
    if compact_idle:
        threshold = IDLE_THRESHOLD
    locked = series_rows.lock_above_threshold(
        db, grant.experiment_id, run_id, after_tag_id, *threshold, SERIES_PER_COMPACTION
    )
    rows = limit_points(locked)
    if not rows:
        return CompactionResult()

    plans = _plan(db, grant, _read_inputs(db, grant, rows))
    packed = _pack(db, grant, plans)
    blocks = [block for series in packed for block in series.blocks]
    blocks += _thin(db, grant, packed)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)
    kept = _keep_superseded(db, grant, run_id, packed)

    compacted = [_make_row(row, series) for row, series in zip(rows, packed, strict=True)]
    if series_rows.has_summaries(db):
        # Of all points in the tables; the inline buffers, still there too, have the same points.
        compacted = summary_scan.fill_rows(db, grant.experiment_id, compacted)
    series_rows.update(db, grant, zip(rows, compacted, strict=True))
    removed = sum(row.count for row in rows) - sum(row.count for row in compacted) - kept
    if removed and usage_counters.exist(db):
        usage_counters.adjust_locked(db, grant.experiment_id, Usage(scalars=-removed))

    return CompactionResult(
        series=len(rows),
        last_tag_id=rows[-1].tag_id,
        tail_points=sum(len(plan.series.buffered) for plan in plans),
        sealed_in_place=sum(len(plan.seal_in_place) for plan in plans),
        blocks=[(block.level, len(block.points)) for block in blocks],
    )


def _read_inputs(
    db: Connection, grant: ExperimentGrant, rows: Sequence[SeriesRow]
) -> list[SeriesInput]:
    """Delete the write buffers and return their points, with the metadata of the open blocks."""
    series_ids = [row.series_id for row in rows]
    buffers = scalar_tail.delete_returning(db, grant.experiment_id, series_ids)
    open_blocks = scalar_blocks.list_open_blocks(db, grant.experiment_id, series_ids)
    inputs = []
    for row in rows:
        buffered = [buffers[row.series_id]] if row.series_id in buffers else []
        # Behind the write buffer, since its points arrived later.
        if row.tail_end:
            buffered.append(unpack_raw(row.tail_end))
        inputs.append(
            SeriesInput(
                row.series_id,
                row.count_is_exact,
                row.sealed_count,
                concatenate(buffered),
                open_blocks.get(row.series_id, []),
            )
        )
    return inputs


def _plan(
    db: Connection, grant: ExperimentGrant, inputs: Sequence[SeriesInput]
) -> list[SeriesPlan]:
    ranges = {
        series.series_id: steps
        for series in inputs
        if (steps := compaction_plan.find_sealed_range(series)) is not None
    }
    sealed = scalar_blocks.list_sealed_in_ranges(db, grant.experiment_id, ranges) if ranges else {}
    return [
        compaction_plan.plan_series(series, sealed.get(series.series_id, [])) for series in inputs
    ]


def _pack(
    db: Connection, grant: ExperimentGrant, plans: Sequence[SeriesPlan]
) -> list[PackedSeries]:
    """Seal blocks in place, delete those that are repacked or rewritten, and build the new ones."""
    seal_keys = [block.key for plan in plans for block in plan.seal_in_place]
    sealed = scalar_blocks.seal_in_place(db, grant.experiment_id, seal_keys)
    repack_keys = [block.key for plan in plans for block in plan.repack]
    # DELETE … RETURNING and not SELECT: of two compactions, only the one that deleted a block may
    # pack its points.
    repacked = scalar_blocks.delete_returning(db, OPEN, grant.experiment_id, repack_keys)
    merges = [
        compaction_plan.plan_merge(plan, [repacked.pop(block.key) for block in plan.repack])
        for plan in plans
    ]

    rewrite_keys = [block.key for merge in merges for block in merge.rewrite]
    rewritten = scalar_blocks.delete_returning(db, SEALED, grant.experiment_id, rewrite_keys)
    return [_pack_series(merge, sealed, rewritten) for merge in merges]


def _pack_series(
    merge: SeriesMerge,
    sealed: dict[BlockKey, ScalarPoints],
    rewritten: dict[BlockKey, ScalarPoints],
) -> PackedSeries:
    """Build the new blocks of a series; its points are removed from the mappings to free memory."""
    return compaction_plan.pack_series(
        merge,
        [sealed.pop(block.key) for block in merge.plan.seal_in_place],
        [rewritten.pop(block.key) for block in merge.rewrite],
    )


def _thin(db: Connection, grant: ExperimentGrant, packed: Sequence[PackedSeries]) -> list[NewBlock]:
    """Return the blocks of the levels that get copies of newly sealed points."""
    if all(series.to_thin is None for series in packed):
        return []
    copies = thinning.select_levels(packed, sample_slots.get_ranks(db))
    if not copies:
        return []
    small = scalar_blocks.delete_small_returning(
        db, grant.experiment_id, list(copies), thinning.SMALL_BLOCK_POINTS_MAX
    )
    return list(thinning.merge_levels(copies, small))


def _keep_superseded(
    db: Connection, grant: ExperimentGrant, run_id: int, packed: Sequence[PackedSeries]
) -> int:
    """Store the points that lost their step to a later attempt of the run; drop other losers.

    Returns how many more are stored than before.
    """
    repeated = {
        series.series_id: series.repeated for series in packed if series.repeated is not None
    }
    if not repeated:
        return 0
    # After the points, which were read before: each is committed with its stream.
    restarts = read_bounds(db, grant.experiment_id, [run_id]).get(run_id)
    if restarts is None:
        return 0
    return superseded.keep(db, grant, repeated, dict.fromkeys(repeated, restarts))


def _make_row(row: SeriesRow, packed: PackedSeries) -> SeriesRow:
    """Return the row of a series that was compacted: its buffers are empty."""
    if packed.count is not None:
        row = row._replace(count=packed.count, count_is_exact=True)
    return row._replace(sealed_count=packed.sealed_count, tail_rows=0, tail_points=0, tail_end=b"")
