"""Queries of compaction on `scalar_blocks`: list, seal, count and delete blocks.

Functions named `..._returning` return exactly the points that they delete, so that the caller can
insert them again in another form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from tbservice.store.pg.pipeline import fetch_binary
from tbservice.store.scalar_format import ScalarPoints, unpack
from tbservice.types import ExperimentId

BlockKey = tuple[int, int]
"""Series id and block id."""


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """An open block without its points."""

    key: BlockKey
    count: int
    first_step: int
    last_step: int


def list_open_blocks(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, list[OpenBlock]]:
    """Return the open blocks of each series that has any, in order of arrival."""
    rows = db.execute(
        text("""
            -- AS points: SQLAlchemy's Row has a method `count`.
            SELECT series_id, block_id, count AS points, first_step, last_step
            FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND level = -1
            ORDER BY series_id, block_id
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )
    blocks: defaultdict[int, list[OpenBlock]] = defaultdict(list)
    for row in rows:
        key = (row.series_id, row.block_id)
        blocks[row.series_id].append(OpenBlock(key, row.points, row.first_step, row.last_step))
    return blocks


def seal_in_place(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Seal open blocks without rewriting them, and return their points."""
    return _change_open_blocks(db, "UPDATE scalar_blocks AS b SET level = 0", experiment_id, keys)


def delete_returning(
    db: Connection, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Delete open blocks and return their points."""
    return _change_open_blocks(db, "DELETE FROM scalar_blocks AS b", experiment_id, keys)


def _change_open_blocks(
    db: Connection, change: str, experiment_id: ExperimentId, keys: Sequence[BlockKey]
) -> dict[BlockKey, ScalarPoints]:
    """Execute `UPDATE … SET` or `DELETE FROM` for open blocks `b` and return their points."""
    if not keys:
        return {}
    source = "FROM" if change.startswith("UPDATE") else "USING"
    rows = fetch_binary(
        db,
        f"""
            {change}
            {source} unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id)
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


def list_sealed_starts(
    db: Connection, experiment_id: ExperimentId, series_id: int, first: int, last: int
) -> list[int]:
    """Return the first steps in [first, last] of a series' sealed blocks, ascending."""
    statement = text("""
        SELECT first_step FROM scalar_blocks
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND level = 0
            AND first_step BETWEEN :first AND :last
        ORDER BY first_step
    """)
    parameters = {
        "experiment_id": experiment_id,
        "series_id": series_id,
        "first": first,
        "last": last,
    }
    return list(db.execute(statement, parameters).scalars())


def count_sealed_between(
    db: Connection, experiment_id: ExperimentId, series_id: int, first: int, last: int
) -> int:
    """Return the number of points of the sealed blocks that overlap the steps [first, last]."""
    statement = text("""
        SELECT coalesce(sum(count), 0) FROM scalar_blocks
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND level = 0
            AND first_step <= :last AND last_step >= :first
    """)
    parameters = {
        "experiment_id": experiment_id,
        "series_id": series_id,
        "first": first,
        "last": last,
    }
    return int(db.execute(statement, parameters).scalar_one())


def delete_sealed_returning(
    db: Connection, experiment_id: ExperimentId, series_id: int, first: int, last: int
) -> list[ScalarPoints]:
    """Delete the sealed blocks that overlap the steps [first, last] and return their points."""
    rows = fetch_binary(
        db,
        """
            WITH deleted AS (
                DELETE FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = %(series_id)s AND level = 0
                    AND first_step <= %(last)s AND last_step >= %(first)s
                RETURNING block_id, data)
            SELECT data FROM deleted ORDER BY block_id
        """,
        {"experiment_id": experiment_id, "series_id": series_id, "first": first, "last": last},
    )
    return [unpack(data) for (data,) in rows]


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
