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

from tbservice.store.pg.arrays import array, rows_of
from tbservice.store.pg.database import binary_rows, send
from tbservice.store.scalar_format import Points, concatenate, unpack, unpack_raw
from tbservice.types import ExperimentGrant, ExperimentId

_APPENDED: Final = {"series_id": "bigint", "count": "integer", "is_packed": "boolean", "data": "bytea"}


@dataclass(frozen=True, slots=True)
class TailRow:
    """Points that become a row: raw records when they are few, so that rows concatenate; packed when they are many.

    They are in step order, one a step.
    """

    count: int
    is_packed: bool
    data: bytes


def append(db: Connection, grant: ExperimentGrant, rows: Sequence[tuple[int, TailRow]]) -> None:
    """Adds the rows, each with its series' id; those of a series in order of arrival."""
    send(
        db,
        f"""
            INSERT INTO scalar_tail (experiment_id, workspace_id, series_id, count, is_packed, data)
            SELECT %(experiment_id)s, %(workspace_id)s, series_id, count, is_packed, data FROM {rows_of(_APPENDED)} AS u
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": array("bigint", [series_id for series_id, _ in rows]),
            "count": array("integer", [row.count for _, row in rows]),
            "is_packed": array("boolean", [row.is_packed for _, row in rows]),
            "data": array("bytea", [row.data for _, row in rows]),
        },
    )


def read(db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]) -> dict[int, Points]:
    """Each series' tail points in order of arrival, the end of its tail included; one without a tail is left out."""
    return _gather(
        db,
        """
            SELECT series_id, is_packed, string_agg(data, ''::bytea ORDER BY block_id), min(block_id)
            FROM (
                SELECT series_id, is_packed, data, block_id,
                    count(*) FILTER (WHERE is_packed) OVER (PARTITION BY series_id ORDER BY block_id) AS packed_before
                FROM (
                    SELECT series_id, is_packed, data, block_id FROM scalar_tail
                    WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
                    UNION ALL
                    SELECT series_id, false, tail_end, 9223372036854775807 FROM time_series
                    WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s) AND tail_end <> ''
                ) AS rows
            ) AS t
            GROUP BY series_id, is_packed, packed_before  -- raw rows that no packed row parts are one
            ORDER BY 1, 4
        """,
        experiment_id,
        series_ids,
    )


def take(db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]) -> dict[int, Points]:
    """Deletes the series' tail rows and gives exactly what was deleted, in order of arrival: not the tails' ends."""
    return _gather(
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


def _gather(
    db: Connection, statement: str, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, Points]:
    rows = binary_rows(db, statement, {"experiment_id": experiment_id, "series_ids": list(series_ids)})
    parts: defaultdict[int, list[Points]] = defaultdict(list)
    for series_id, is_packed, data, _ in rows:
        parts[series_id].append(unpack(data) if is_packed else unpack_raw(data))
    return {series_id: concatenate(points) for series_id, points in parts.items()}
