"""Queries on `scalar_blocks`: packed blocks by level.

Level 0 holds sealed blocks in step order, levels 1 to 5 thinned copies of them, level -1 (`OPEN`) blocks that are still
open: a read of level n wants the open ones, and the tail, besides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.store.database import binary_rows
from tbservice.store.packing import Points, pack, unpack
from tbservice.types import ExperimentGrant, ExperimentId

OPEN: Final = -1
SEALED: Final = 0


@dataclass(frozen=True, slots=True)
class NewBlock:
    """Points of one series, in step order, that become one block."""

    series_id: int
    level: int
    points: Points


def insert(db: Connection, grant: ExperimentGrant, blocks: Sequence[NewBlock]) -> None:
    """Packs and inserts the blocks."""
    db.execute(
        text("""
            INSERT INTO scalar_blocks
                (experiment_id, workspace_id, series_id, level, count, first_step, last_step, data)
            SELECT :experiment_id, :workspace_id, series_id, level, count, first_step, last_step, data
            FROM unnest(CAST(:series_ids AS bigint[]), CAST(:levels AS smallint[]), CAST(:counts AS integer[]),
                CAST(:first_steps AS bigint[]), CAST(:last_steps AS bigint[]), CAST(:data AS bytea[]))
                AS u (series_id, level, count, first_step, last_step, data)
        """),
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_ids": [block.series_id for block in blocks],
            "levels": [block.level for block in blocks],
            "counts": [len(block.points) for block in blocks],
            "first_steps": [int(block.points.steps[0]) for block in blocks],
            "last_steps": [int(block.points.steps[-1]) for block in blocks],
            "data": [pack(block.points) for block in blocks],
        },
    )


def read(db: Connection, experiment_id: ExperimentId, levels: Mapping[int, int]) -> dict[int, list[Points]]:
    """For each series (id to level) the blocks of its level and those that are open, the oldest first."""
    rows = binary_rows(
        db,
        """
            SELECT w.series_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[]) AS w (series_id, level)
            CROSS JOIN LATERAL (
                SELECT block_id, data FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id AND level IN (w.level, -1)
            ) AS b
            ORDER BY w.series_id, b.block_id
        """,
        {"experiment_id": experiment_id, "series_ids": list(levels), "levels": list(levels.values())},
    )
    blocks: defaultdict[int, list[Points]] = defaultdict(list)
    for series_id, data in rows:
        blocks[series_id].append(unpack(data))
    return blocks


def count_sealed_between(db: Connection, experiment_id: ExperimentId, series_id: int, first: int, last: int) -> int:
    """How many points the sealed blocks hold whose steps may lie in [first, last]."""
    statement = text("""
        SELECT coalesce(sum(count), 0) FROM scalar_blocks
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND level = 0
            AND first_step <= :last AND last_step >= :first
    """)
    parameters = {"experiment_id": experiment_id, "series_id": series_id, "first": first, "last": last}
    return int(db.execute(statement, parameters).scalar_one())


def has_open(db: Connection, experiment_id: ExperimentId, series_id: int) -> bool:
    """Whether the series has an open block."""
    statement = text("""
        SELECT EXISTS (SELECT FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = :series_id AND level = -1)
    """)
    return bool(db.execute(statement, {"experiment_id": experiment_id, "series_id": series_id}).scalar_one())


def take_sealed_between(
    db: Connection, experiment_id: ExperimentId, series_id: int, first: int, last: int
) -> list[Points]:
    """Deletes the sealed blocks whose steps may lie in [first, last], and gives exactly what was deleted."""
    return _take(
        db,
        "level = 0 AND first_step <= %(last)s AND last_step >= %(first)s",
        {"experiment_id": experiment_id, "series_id": series_id, "first": first, "last": last},
    )


def take_small(db: Connection, experiment_id: ExperimentId, series_id: int, level: int, count_max: int) -> list[Points]:
    """Deletes a series' blocks of a level that hold at most `count_max` points, and gives exactly what was deleted."""
    return _take(
        db,
        "level = %(level)s AND count <= %(count_max)s",
        {"experiment_id": experiment_id, "series_id": series_id, "level": level, "count_max": count_max},
    )


def _take(db: Connection, condition: str, parameters: Mapping[str, object]) -> list[Points]:
    rows = binary_rows(
        db,
        f"""
            WITH gone AS (
                DELETE FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = %(series_id)s AND {condition}
                RETURNING block_id, data)
            SELECT data FROM gone ORDER BY block_id
        """,  # noqa: S608 - called with the constants above
        parameters,
    )
    return [unpack(data) for (data,) in rows]
