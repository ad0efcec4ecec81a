"""Queries on `superseded_blocks`: scalar points that lost their step to a later attempt, packed.

Writers have locked the rows of the series.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.pipeline import execute_binary, fetch_binary
from tbservice.series.tables.scalar_format import compress, compresses, pack, unpack
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange
from tbwire.points import ScalarPoints


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Common properties of a block's points: series, period, and the attempt that superseded them.

    `period_start` is the restart that the period began with (seconds since the epoch), -inf for
    the first. `superseded_by` is the restart of the points that won their steps; None if another
    block may have points of the same steps between them.
    """

    series_id: int
    period_start: float
    superseded_by: float | None


_COLUMNS: Final = {
    "series_id": "bigint",
    "period_start": "float8",
    "superseded_by": "float8",
    "count": "integer",
    "first_step": "bigint",
    "last_step": "bigint",
    "data": "bytea",
}


@dataclass(frozen=True, slots=True)
class NewSupersededBlock:
    """Points in step order, one per step."""

    group: BlockGroup
    points: ScalarPoints


@dataclass(frozen=True, slots=True)
class SupersededBlock:
    """The metadata of a stored block."""

    group: BlockGroup
    block_id: int
    count: int
    first_step: int
    last_step: int


def insert(db: Connection, grant: ExperimentGrant, blocks: Sequence[NewSupersededBlock]) -> None:
    """Insert blocks."""
    columns = ", ".join(_COLUMNS)
    ids = citus.block_ids(db, "superseded_blocks", len(blocks))
    encode = compress if compresses(db) else pack
    execute_binary(
        db,
        f"""
            INSERT INTO superseded_blocks (experiment_id, workspace_id, {columns}{ids.column})
            SELECT e.experiment_id, e.workspace_id, {columns}{ids.value}
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(_COLUMNS | ids.types)} AS u
        """,  # noqa: S608 - constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": encode_array("bigint", [block.group.series_id for block in blocks]),
            "period_start": encode_array("float8", [block.group.period_start for block in blocks]),
            "superseded_by": encode_array(
                "float8", [block.group.superseded_by for block in blocks]
            ),
            "count": encode_array("integer", [len(block.points) for block in blocks]),
            "first_step": encode_array("bigint", [block.points.steps[0] for block in blocks]),
            "last_step": encode_array("bigint", [block.points.steps[-1] for block in blocks]),
            "data": encode_array("bytea", [encode(block.points) for block in blocks]),
            **ids.parameters,
        },
    )


def list_blocks(
    db: Connection, experiment_id: ExperimentId, series_ids: Collection[int]
) -> list[SupersededBlock]:
    """Return the blocks of these series, by series, then by step."""
    rows = fetch_binary(
        db,
        """
            SELECT series_id, period_start, superseded_by, block_id, count, first_step, last_step
            FROM superseded_blocks
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
            ORDER BY series_id, first_step, block_id
        """,
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )
    return [SupersededBlock(BlockGroup(*row[:3]), *row[3:]) for row in rows]


def delete_returning(
    db: Connection, experiment_id: ExperimentId, blocks: Sequence[SupersededBlock]
) -> dict[tuple[int, int], ScalarPoints]:
    """Delete blocks and return their points by series id and block id."""
    rows = fetch_binary(
        db,
        """
            DELETE FROM superseded_blocks AS b
            USING unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id)
            WHERE b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                AND b.block_id = w.block_id
            RETURNING b.series_id, b.block_id, b.data
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [block.group.series_id for block in blocks],
            "block_ids": [block.block_id for block in blocks],
        },
    )
    return {(series_id, block_id): unpack(data) for series_id, block_id, data in rows}


def list_in_range(
    db: Connection, experiment_id: ExperimentId, series_ids: Collection[int], steps: StepRange
) -> list[tuple[int, int, int, int, int]]:
    """Return (series id, block id, count, first step, last step) of blocks that overlap a range."""
    return fetch_binary(
        db,
        """
            SELECT series_id, block_id, count, first_step, last_step FROM superseded_blocks
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
                AND last_step >= %(first)s AND first_step <= %(last)s
            ORDER BY series_id, first_step, block_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": steps.first,
            "last": steps.last,
        },
    )


def read_data(
    db: Connection, experiment_id: ExperimentId, keys: Collection[tuple[int, int]]
) -> dict[tuple[int, int], bytes]:
    """Return the packed points of blocks by series id and block id."""
    rows = fetch_binary(
        db,
        """
            SELECT w.series_id, w.block_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id) CROSS JOIN LATERAL (
                SELECT data FROM superseded_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND block_id = w.block_id LIMIT 1) AS b
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": [series_id for series_id, _ in keys],
            "block_ids": [block_id for _, block_id in keys],
        },
    )
    return {(series_id, block_id): data for series_id, block_id, data in rows}
