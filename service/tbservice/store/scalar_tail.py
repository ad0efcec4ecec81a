"""Queries on `scalar_tail`: what came in since a series was last merged, in rows of several points each.

The few points that came last stand in the row of their series (`tail_end`): a row of the tail for each flush of a point
would be a third of what the flush costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.store.pg.arrays import encode_array, unnest_rows
from tbservice.store.pg.pipeline import execute_binary, fetch_binary
from tbservice.store.scalar_format import ScalarPoints, concatenate, unpack, unpack_raw
from tbservice.types import ExperimentGrant, ExperimentId

_INSERT_COLUMNS: Final = {
    "series_id": "bigint",
    "count": "integer",
    "is_packed": "boolean",
    "data": "bytea",
}


@dataclass(frozen=True, slots=True)
class BufferRow:
    """Points that become a row: raw records when they are few, so that rows concatenate; packed when they are many.

    They are in step order, one a step.
    """

    count: int
    is_packed: bool
    data: bytes


def append(db: Connection, grant: ExperimentGrant, rows: Sequence[tuple[int, BufferRow]]) -> None:
    """Adds the rows, each with its series' id; those of a series in order of arrival."""
    execute_binary(
        db,
        f"""
            INSERT INTO scalar_tail (experiment_id, workspace_id, series_id, count, is_packed, data)
            SELECT %(experiment_id)s, %(workspace_id)s, series_id, count, is_packed, data
            FROM {unnest_rows(_INSERT_COLUMNS)} AS u
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": encode_array("bigint", [series_id for series_id, _ in rows]),
            "count": encode_array("integer", [row.count for _, row in rows]),
            "is_packed": encode_array("boolean", [row.is_packed for _, row in rows]),
            "data": encode_array("bytea", [row.data for _, row in rows]),
        },
    )


def read(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, ScalarPoints]:
    """Each series' tail points in order of arrival, the end of its tail included; one without a tail is left out."""
    return _fetch_points(
        db,
        """
            SELECT series_id, is_packed, string_agg(data, ''::bytea ORDER BY block_id),
                min(block_id)
            FROM (
                SELECT series_id, is_packed, data, block_id,
                    count(*) FILTER (WHERE is_packed)
                        OVER (PARTITION BY series_id ORDER BY block_id) AS packed_before
                FROM (
                    SELECT series_id, is_packed, data, block_id FROM scalar_tail
                    WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
                    UNION ALL
                    SELECT series_id, false, tail_end, 9223372036854775807 FROM time_series
                    WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
                        AND tail_end <> ''
                ) AS rows
            ) AS t
            GROUP BY series_id, is_packed,
                packed_before  -- raw rows that no packed row parts are one
            ORDER BY 1, 4
        """,
        experiment_id,
        series_ids,
    )


def delete_returning(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, ScalarPoints]:
    """Deletes the series' tail rows and gives exactly what was deleted, in order of arrival: not the tails' ends."""
    return _fetch_points(
        db,
        """
            WITH gone AS (
                DELETE FROM scalar_tail
                WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
                RETURNING series_id, is_packed, data, block_id)
            SELECT * FROM gone ORDER BY series_id, block_id
        """,
        experiment_id,
        series_ids,
    )


def _fetch_points(
    db: Connection, statement: str, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, ScalarPoints]:
    rows = fetch_binary(
        db, statement, {"experiment_id": experiment_id, "series_ids": list(series_ids)}
    )
    parts: defaultdict[int, list[ScalarPoints]] = defaultdict(list)
    for series_id, is_packed, data, _ in rows:
        parts[series_id].append(unpack(data) if is_packed else unpack_raw(data))
    return {series_id: concatenate(points) for series_id, points in parts.items()}
