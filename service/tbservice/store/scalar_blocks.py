"""Queries on `scalar_blocks`: packed blocks by level.

Level 0 holds sealed blocks in step order, levels 1 to 5 thinned copies of them, level -1 (`OPEN`) blocks that are still
open: a read of level n wants the open ones, and the tail, besides. A series' open blocks are older than its tail, and
the older the lower their id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.store.pg.arrays import encode_array, unnest_rows
from tbservice.store.pg.pipeline import execute_binary, fetch_binary
from tbservice.store.scalar_format import ScalarPoints, pack, unpack
from tbservice.types import ALL_STEPS, ExperimentGrant, ExperimentId, StepRange

OPEN: Final = -1
SEALED: Final = 0


@dataclass(frozen=True, slots=True)
class NewBlock:
    """Points of one series, in step order, that become one block; `packed` where they are that already."""

    series_id: int
    level: int
    points: ScalarPoints
    packed: bytes | None = None


BlockKey = tuple[int, int]
"""Series id and block id."""


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """Where an open block is, and what is known of it without its points."""

    key: BlockKey
    count: int
    first_step: int
    last_step: int


_INSERT_COLUMNS: Final = {
    "series_id": "bigint",
    "level": "smallint",
    "count": "integer",
    "first_step": "bigint",
    "last_step": "bigint",
    "data": "bytea",
}


def insert(db: Connection, grant: ExperimentGrant, blocks: Sequence[NewBlock]) -> None:
    """Packs and inserts the blocks."""
    execute_binary(
        db,
        f"""
            INSERT INTO scalar_blocks
                (experiment_id, workspace_id, series_id, level, count, first_step, last_step, data)
            SELECT %(experiment_id)s, %(workspace_id)s, series_id, level, count, first_step, last_step, data
            FROM {unnest_rows(_INSERT_COLUMNS)} AS u
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": encode_array("bigint", [block.series_id for block in blocks]),
            "level": encode_array("smallint", [block.level for block in blocks]),
            "count": encode_array("integer", [len(block.points) for block in blocks]),
            "first_step": encode_array("bigint", [block.points.steps[0] for block in blocks]),
            "last_step": encode_array("bigint", [block.points.steps[-1] for block in blocks]),
            "data": encode_array("bytea", [block.packed or pack(block.points) for block in blocks]),
        },
    )


def read(
    db: Connection,
    experiment_id: ExperimentId,
    levels: Mapping[int, int],
    ranges: Mapping[int, StepRange],
) -> dict[int, list[ScalarPoints]]:
    """For each series (id to level) the blocks of its level, then those that are open, each the oldest first.

    Only blocks that may hold a step of the series' range, where it has one.
    """
    steps = [ranges.get(series_id, ALL_STEPS) for series_id in levels]
    rows = fetch_binary(
        db,
        """
            SELECT w.series_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[], %(firsts)s::bigint[], %(lasts)s::bigint[])
                AS w (series_id, level, first, last)
            CROSS JOIN LATERAL (
                SELECT level, block_id, data FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id AND level IN (w.level, -1)
                    AND last_step >= w.first AND first_step <= w.last
            ) AS b
            ORDER BY w.series_id, b.level = -1, b.block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(levels),
            "levels": list(levels.values()),
            "firsts": [one.first for one in steps],
            "lasts": [one.last for one in steps],
        },
    )
    blocks: defaultdict[int, list[ScalarPoints]] = defaultdict(list)
    for series_id, data in rows:
        blocks[series_id].append(unpack(data))
    return blocks


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Of the sealed blocks that may hold steps of a range: their points at its two ends, and the others' number."""

    ends: list[ScalarPoints]
    others_count: int


def read_range_ends(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> dict[int, RangeEnds]:
    """The two first and the two last such blocks of each series; one without any is left out.

    Sealed blocks share no steps, so that every step of the other blocks lies in the range.
    """
    rows = fetch_binary(
        db,
        """
            SELECT series_id, points, count, data FROM (
                SELECT w.series_id, b.count, b.data, b.first_step, sum(b.count) OVER whole AS points,
                    row_number() OVER (PARTITION BY w.series_id ORDER BY b.first_step) AS place,
                    count(*) OVER whole AS blocks
                FROM unnest(%(series_ids)s::bigint[]) AS w (series_id)
                JOIN scalar_blocks AS b ON b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                    AND b.level = 0 AND b.last_step >= %(first)s AND b.first_step <= %(last)s
                WINDOW whole AS (PARTITION BY w.series_id)
            ) AS found
            WHERE place <= 2 OR place > blocks - 2
            ORDER BY series_id, place
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": steps.first,
            "last": steps.last,
        },
    )
    found: dict[int, RangeEnds] = {}
    for series_id, points, count, data in rows:
        so_far = found.get(series_id, RangeEnds([], int(points)))
        found[series_id] = RangeEnds([*so_far.ends, unpack(data)], so_far.others_count - count)
    return found


def list_last_ranges(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], k: int
) -> dict[int, StepRange]:
    """For each series, from which step on its sealed blocks hold the last `k` of their points; all, when fewer."""
    rows = db.execute(
        text("""
            SELECT series_id, min(first_step) AS first FROM (
                SELECT w.series_id, b.first_step, b.count,
                    sum(b.count) OVER (PARTITION BY w.series_id ORDER BY b.first_step DESC) AS from_here
                FROM unnest(CAST(:series_ids AS bigint[])) AS w (series_id)
                JOIN scalar_blocks AS b
                    ON b.experiment_id = :experiment_id AND b.series_id = w.series_id AND b.level = 0
            ) AS found
            WHERE from_here - count < :k
            GROUP BY series_id
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids), "k": k},
    )
    return {row.series_id: StepRange(row.first) for row in rows}


def list_open_blocks(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, list[OpenBlock]]:
    """The open blocks of each series, the oldest first; a series without any is left out."""
    rows = db.execute(
        text("""
            SELECT series_id, block_id, count AS points, first_step, last_step FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[])) AND level = -1
            ORDER BY series_id, block_id
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )
    found: defaultdict[int, list[OpenBlock]] = defaultdict(list)
    for row in rows:  # a row has a method `count`
        key = (row.series_id, row.block_id)
        found[row.series_id].append(OpenBlock(key, row.points, row.first_step, row.last_step))
    return found


def seal_in_place(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Makes open blocks sealed ones as they stand, without writing their points again, which it gives."""
    return _change_open_blocks(db, "UPDATE scalar_blocks AS b SET level = 0", experiment_id, keys)


def delete_returning(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Deletes open blocks, and gives exactly what was deleted."""
    return _change_open_blocks(db, "DELETE FROM scalar_blocks AS b", experiment_id, keys)


def _change_open_blocks(
    db: Connection, change: str, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    if not keys:
        return {}
    source = "FROM" if change.startswith("UPDATE") else "USING"
    rows = fetch_binary(
        db,
        f"""
            {change} {source} unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[]) AS w (series_id, block_id)
            WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id AND b.level = -1
                AND b.block_id = w.block_id
            RETURNING b.series_id, b.block_id, b.data
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in keys],
            "block_ids": [block_id for _, block_id in keys],
        },
    )
    return {(series_id, block_id): unpack(data) for series_id, block_id, data in rows}


def delete_small_returning(
    db: Connection,
    experiment_id: ExperimentId,
    series_levels: Sequence[tuple[int, int]],
    count_max: int,
) -> dict[tuple[int, int], list[ScalarPoints]]:
    """Deletes the blocks of at most `count_max` points of each (series id, level); gives what was deleted, by these."""
    rows = fetch_binary(
        db,
        """
            WITH gone AS (
                DELETE FROM scalar_blocks AS b
                USING unnest(%(series_ids)s::bigint[], %(levels)s::smallint[]) AS w (series_id, level)
                WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id AND b.level = w.level
                    AND b.count <= %(count_max)s
                RETURNING b.series_id, b.level, b.block_id, b.data)
            SELECT series_id, level, data FROM gone ORDER BY block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in series_levels],
            "levels": [level for _, level in series_levels],
            "count_max": count_max,
        },
    )
    taken: defaultdict[tuple[int, int], list[ScalarPoints]] = defaultdict(list)
    for series_id, level, data in rows:
        taken[series_id, level].append(unpack(data))
    return taken
