"""Queries on `scalar_blocks`: insert packed blocks, and read them by level.

`OFFSET 0` in a query makes PostgreSQL look up each series by its key. Else it may compare all
blocks of the experiment with each series (decision 7).

Level 0 contains sealed blocks, in step order; levels 1 to 5 thinned copies of them; level -1
(`OPEN`) open blocks. Readers of any level also need the open blocks and both buffers. Open blocks
of a series arrived before the points in its buffers, in the order of their ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.pipeline import PendingResult, execute_binary, fetch_binary
from tbservice.series.tables import cluster_writes
from tbservice.series.tables.scalar_format import (
    compress,
    compresses,
    is_compressed,
    pack,
    unpack,
    unpack_all,
)
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import ALL_STEPS, StepRange
from tbwire.points import ScalarPoints

OPEN: Final = -1
"""Level of open blocks."""

SEALED: Final = 0
"""Level of sealed blocks."""


@dataclass(frozen=True, slots=True)
class NewBlock:
    """Points of one series, in step order, to be inserted as one block.

    `packed` has the same points packed already, as received; None if they were not.
    """

    series_id: int
    level: int
    points: ScalarPoints
    packed: bytes | None = None


BlockKey = tuple[int, int]
"""Series id and block id."""


@dataclass(frozen=True, slots=True)
class BlockMetadata:
    """An open or sealed block without its points: key, their number, and first and last step."""

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
}


_NUMBERED_LEVELS: Final = ("u.level", "CASE WHEN u.level > 0 THEN u.level ELSE -1 - u.level END")
"""Levels to search for the greatest id: open blocks are sealed in place, and keep theirs."""


def insert(db: Connection, grant: ExperimentGrant, blocks: Sequence[NewBlock]) -> None:
    """Insert blocks: compressed where that is allowed, else packed, unless they are already."""
    ids = citus.block_ids(db, "scalar_blocks", len(blocks), _NUMBERED_LEVELS)
    if compresses(db):
        stored = [compress(block.points) for block in blocks]
    else:
        stored = [block.packed or pack(block.points) for block in blocks]
    data = cluster_writes.make_bytes_column("data", stored)
    execute_binary(
        db,
        f"""
            INSERT INTO scalar_blocks
                (experiment_id, workspace_id, series_id, level, count, first_step, last_step,
                data{ids.column})
            SELECT e.experiment_id, e.workspace_id, u.series_id, u.level, count, first_step,
                last_step, {data.value}{ids.value}
            FROM {citus.insert_source(db)} AS e
            CROSS JOIN {unnest_rows(_INSERT_COLUMNS | data.types | ids.types)} AS u
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": encode_array("bigint", [block.series_id for block in blocks]),
            "level": encode_array("smallint", [block.level for block in blocks]),
            "count": encode_array("integer", [len(block.points) for block in blocks]),
            "first_step": encode_array("bigint", [block.points.steps[0] for block in blocks]),
            "last_step": encode_array("bigint", [block.points.steps[-1] for block in blocks]),
            **data.parameters,
            **ids.parameters,
        },
    )


def query(
    db: Connection,
    experiment_id: ExperimentId,
    levels: Mapping[int, int],
    ranges: Mapping[int, StepRange],
) -> PendingResult:
    """Select the blocks of a level of each series, and its open blocks, for `unpack_rows`.

    Args:
        db: A transaction.
        experiment_id: The experiment of all series.
        levels: The level to read by series id.
        ranges: Ranges of steps by series id. Blocks outside are not read; those that overlap the
            range are returned complete. All blocks of a series without a range.
    """
    steps = [ranges.get(series_id, ALL_STEPS) for series_id in levels]
    return execute_binary(
        db,
        """
            SELECT w.series_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[], %(firsts)s::bigint[],
                %(lasts)s::bigint[]) AS w (series_id, level, first, last)
            CROSS JOIN LATERAL (
                SELECT level, block_id, data FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND level IN (w.level, -1)
                    AND last_step >= w.first AND first_step <= w.last
                OFFSET 0) AS b
            ORDER BY w.series_id, b.level = -1, b.block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(levels),
            "levels": list(levels.values()),
            "firsts": [bounds.first for bounds in steps],
            "lasts": [bounds.last for bounds in steps],
        },
    )


def unpack_rows(result: PendingResult) -> dict[int, list[ScalarPoints]]:
    """Return the blocks of each series, open ones last, each in order of arrival."""
    blocks: defaultdict[int, list[ScalarPoints]] = defaultdict(list)
    rows = result.rows()
    for (series_id, _), points in zip(rows, unpack_all([data for _, data in rows]), strict=True):
        blocks[series_id].append(points)
    return blocks


@dataclass(frozen=True, slots=True)
class RangeEnds:
    """Sealed blocks of a series that overlap a range of steps, without the inner blocks' points."""

    ends: list[ScalarPoints]  # of the first two and the last two blocks
    others_count: int  # points of the blocks between, all of them in the range


def read_range_ends(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> dict[int, RangeEnds]:
    """Return the first two and the last two sealed blocks of each series that overlap a range.

    Sealed blocks share no steps, so that all points of the blocks between are in the range. Series
    without such a block are missing in the result.
    """
    rows = fetch_binary(
        db,
        """
            SELECT series_id, points, count, data FROM (
                SELECT w.series_id, b.count, b.data, b.first_step,
                    sum(b.count) OVER series AS points,
                    row_number() OVER (PARTITION BY w.series_id ORDER BY b.first_step) AS ordinal,
                    count(*) OVER series AS blocks
                FROM unnest(%(series_ids)s::bigint[]) AS w (series_id) CROSS JOIN LATERAL (
                    SELECT count, data, first_step FROM scalar_blocks
                    WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                        AND level = 0 AND last_step >= %(first)s AND first_step <= %(last)s
                    OFFSET 0) AS b
                WINDOW series AS (PARTITION BY w.series_id)
            ) AS block
            WHERE ordinal <= 2 OR ordinal > blocks - 2
            ORDER BY series_id, ordinal
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": steps.first,
            "last": steps.last,
        },
    )

    ranges: dict[int, RangeEnds] = {}
    for series_id, points, count, data in rows:
        so_far = ranges.get(series_id, RangeEnds([], int(points)))
        ranges[series_id] = RangeEnds([*so_far.ends, unpack(data)], so_far.others_count - count)
    return ranges


def list_last_ranges(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], k: int
) -> dict[int, StepRange]:
    """Return the step range of each series' sealed blocks that contain its last `k` points.

    The range begins with the first step of a block, so it may contain more than `k` points. A
    series with fewer points gets the range of all; one without sealed blocks is missing.
    """
    rows = db.execute(
        text("""
            SELECT series_id, min(first_step) AS first FROM (
                SELECT w.series_id, b.first_step, b.count,
                    sum(b.count) OVER (
                        PARTITION BY w.series_id ORDER BY b.first_step DESC) AS from_here
                FROM unnest(CAST(:series_ids AS bigint[])) AS w (series_id) CROSS JOIN LATERAL (
                    SELECT first_step, count FROM scalar_blocks
                    WHERE experiment_id = :experiment_id AND series_id = w.series_id AND level = 0
                    OFFSET 0) AS b
            ) AS block
            WHERE from_here - count < :k
            GROUP BY series_id
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids), "k": k},
    )
    return {row.series_id: StepRange(row.first) for row in rows}


def list_open_blocks(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, list[BlockMetadata]]:
    """Return the open blocks of each series that has any, in order of arrival."""
    rows = db.execute(
        text("""
            SELECT series_id, block_id, count AS points, first_step, last_step
            FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND level = -1
            ORDER BY series_id, block_id
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )

    blocks: defaultdict[int, list[BlockMetadata]] = defaultdict(list)
    # https://docs.sqlalchemy.org/en/20/core/connections.html#sqlalchemy.engine.Row.count
    for row in rows:  # `points`, as a row of SQLAlchemy has a method `count`
        key = (row.series_id, row.block_id)
        blocks[row.series_id].append(BlockMetadata(key, row.points, row.first_step, row.last_step))
    return blocks


def list_sealed_in_ranges(
    db: Connection, experiment_id: ExperimentId, ranges: Mapping[int, StepRange]
) -> dict[int, list[BlockMetadata]]:
    """Return, by series id, sealed blocks that overlap the range of their series, in step order.

    One statement for all series; a series without such blocks is left out. The sealed blocks of a
    series share no steps. The caller has locked the rows of the series.
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
                OFFSET 0) AS b
            ORDER BY b.series_id, b.first_step
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(ranges),
            "firsts": [steps.first for steps in ranges.values()],
            "lasts": [steps.last for steps in ranges.values()],
        },
    )
    blocks: defaultdict[int, list[BlockMetadata]] = defaultdict(list)
    for series_id, block_id, count, first_step, last_step in rows:
        key = (series_id, block_id)
        blocks[series_id].append(BlockMetadata(key, count, first_step, last_step))
    return blocks


def seal_in_place(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Seal open blocks, and return their points.

    Their bytes stay as they are, except those that were stored before blocks were compressed.
    """
    change = "UPDATE scalar_blocks AS b SET level = 0"
    sealed = _change_blocks(db, change, OPEN, experiment_id, keys)
    if compresses(db):
        _compress_sealed(
            db,
            experiment_id,
            {key: points for key, (points, data) in sealed.items() if not is_compressed(data)},
        )
    return {key: points for key, (points, _) in sealed.items()}


def _compress_sealed(
    db: Connection, experiment_id: ExperimentId, blocks: Mapping[BlockKey, ScalarPoints]
) -> None:
    if not blocks:
        return
    execute_binary(
        db,
        """
            UPDATE scalar_blocks AS b SET data = w.data
            FROM unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[], %(data)s::bytea[])
                AS w (series_id, block_id, data)
            WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id AND b.level = 0
                AND b.block_id = w.block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in blocks],
            "block_ids": [block_id for _, block_id in blocks],
            "data": encode_array("bytea", [compress(points) for points in blocks.values()]),
        },
    )


def delete_returning(
    db: Connection, level: int, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Delete blocks of a level in one statement; return the points of those that were deleted."""
    deleted = _change_blocks(db, "DELETE FROM scalar_blocks AS b", level, experiment_id, keys)
    return {key: points for key, (points, _) in deleted.items()}


def _change_blocks(
    db: Connection, change: str, level: int, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, tuple[ScalarPoints, bytes]]:
    """Execute `UPDATE … SET` or `DELETE FROM` for blocks `b`; return their points and bytes."""
    if not keys:
        return {}

    source = "FROM" if change.startswith("UPDATE") else "USING"
    rows = fetch_binary(
        db,
        f"""
            {change}
            {source} unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id)
            WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                AND b.level = {level} AND b.block_id = w.block_id
            RETURNING b.series_id, b.block_id, b.data
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in keys],
            "block_ids": [block_id for _, block_id in keys],
        },
    )
    return {(series_id, block_id): (unpack(data), data) for series_id, block_id, data in rows}


def delete_small_returning(
    db: Connection,
    experiment_id: ExperimentId,
    series_levels: Sequence[tuple[int, int]],
    count_max: int,
) -> dict[tuple[int, int], list[ScalarPoints]]:
    """Delete the blocks of at most `count_max` points of each (series id, level).

    Returns their points by (series id, level), in order of the blocks' ids.
    """
    rows = fetch_binary(
        db,
        """
            WITH deleted AS (
                DELETE FROM scalar_blocks AS b
                USING unnest(%(series_ids)s::bigint[], %(levels)s::smallint[]) AS w (series_id,
                    level)
                WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                    AND b.level = w.level
                    AND b.count <= %(count_max)s
                RETURNING b.series_id, b.level, b.block_id, b.data)
            SELECT series_id, level, data FROM deleted ORDER BY block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in series_levels],
            "levels": [level for _, level in series_levels],
            "count_max": count_max,
        },
    )

    deleted: defaultdict[tuple[int, int], list[ScalarPoints]] = defaultdict(list)
    for series_id, level, data in rows:
        deleted[series_id, level].append(unpack(data))
    return deleted
