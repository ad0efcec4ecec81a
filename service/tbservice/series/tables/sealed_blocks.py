"""Queries on the sealed blocks (level 0) of `scalar_blocks` that a compaction may rewrite.

The sealed blocks of a series share no steps. Callers lock the rows of the series first
(`series_rows.lock_above_threshold`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables.scalar_blocks import BlockKey
from tbservice.series.tables.scalar_format import unpack
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange
from tbwire.points import ScalarPoints


@dataclass(frozen=True, slots=True)
class SealedBlock:
    """The metadata of a sealed block: its key, number of points, and first and last step."""

    key: BlockKey
    count: int
    first_step: int
    last_step: int


def list_in_ranges(
    db: Connection, experiment_id: ExperimentId, ranges: Mapping[int, StepRange]
) -> dict[int, list[SealedBlock]]:
    """Return, by series id, the blocks that overlap the step range of their series, in step order.

    One statement for all series; a series without such blocks is left out.
    """
    rows = fetch_binary(
        db,
        """
            SELECT b.series_id, b.block_id, b.count, b.first_step, b.last_step
            FROM unnest(%(series_ids)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
                AS w (series_id, first, last)
            CROSS JOIN LATERAL (
                SELECT series_id, block_id, count, first_step, last_step FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id AND level = 0
                    AND last_step >= w.first AND first_step <= w.last
            ) AS b
            ORDER BY b.series_id, b.first_step
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(ranges),
            "firsts": [steps.first for steps in ranges.values()],
            "lasts": [steps.last for steps in ranges.values()],
        },
    )
    blocks: defaultdict[int, list[SealedBlock]] = defaultdict(list)
    for series_id, block_id, count, first_step, last_step in rows:
        key = (series_id, block_id)
        blocks[series_id].append(SealedBlock(key, count, first_step, last_step))
    return blocks


def delete_returning(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Delete sealed blocks in one statement and return the points of those that were deleted."""
    if not keys:
        return {}
    rows = fetch_binary(
        db,
        """
            DELETE FROM scalar_blocks AS b
            USING unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id)
            WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                AND b.level = 0 AND b.block_id = w.block_id
            RETURNING b.series_id, b.block_id, b.data
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in keys],
            "block_ids": [block_id for _, block_id in keys],
        },
    )
    return {(series_id, block_id): unpack(data) for series_id, block_id, data in rows}
