"""Queries on `scalar_tail`, the write buffer: points not yet compacted, several per row.

The last few points of a series are in the series row instead (`time_series.tail_end`, the inline
buffer): a write buffer row for each flushed point would cost a third of the flush.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.pipeline import PendingResult, execute_binary
from tbservice.series.tables.scalar_format import concatenate, unpack, unpack_raw
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId
from tbwire.points import ScalarPoints

_INSERT_COLUMNS: Final = {
    "series_id": "bigint",
    "count": "integer",
    "is_packed": "boolean",
    "data": "bytea",
}


@dataclass(frozen=True, slots=True)
class BufferRow:
    """Points to be inserted as a row: raw records, or packed from `PACKED_POINTS_MIN` points on.

    In step order, at most one point per step.
    """

    count: int
    is_packed: bool
    data: bytes


def append(db: Connection, grant: ExperimentGrant, rows: Sequence[tuple[int, BufferRow]]) -> None:
    """Insert (series id, row) pairs; those of a series in order of arrival."""
    ids = citus.block_ids(db, "scalar_tail", len(rows))
    execute_binary(
        db,
        f"""
            INSERT INTO scalar_tail
                (experiment_id, workspace_id, series_id, count, is_packed, data{ids.column})
            SELECT e.experiment_id, e.workspace_id, u.series_id, count, is_packed, data{ids.value}
            FROM {citus.insert_source(db)} AS e
            CROSS JOIN {unnest_rows(_INSERT_COLUMNS | ids.types)} AS u
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_id": encode_array("bigint", [series_id for series_id, _ in rows]),
            "count": encode_array("integer", [row.count for _, row in rows]),
            "is_packed": encode_array("boolean", [row.is_packed for _, row in rows]),
            "data": encode_array("bytea", [row.data for _, row in rows]),
            **ids.parameters,
        },
    )


def query(db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]) -> PendingResult:
    """Select the points of both buffers of each series, for `unpack_rows`."""
    return execute_binary(
        db,
        f"""
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
                    WHERE experiment_id = {citus.ANY_EXPERIMENT.of(db)}
                        AND series_id = ANY (%(series_ids)s) AND tail_end <> ''
                ) AS rows
            ) AS t
            -- One group per run of raw rows without a packed row between: they are concatenated.
            GROUP BY series_id, is_packed, packed_before
            ORDER BY 1, 4
        """,  # noqa: S608 - a constant
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )


def delete_returning(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, ScalarPoints]:
    """Delete the write buffers of the series and return their points, in order of arrival.

    The inline buffers remain.
    """
    result = execute_binary(
        db,
        """
            WITH deleted AS (
                DELETE FROM scalar_tail
                WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
                RETURNING series_id, is_packed, data, block_id)
            SELECT * FROM deleted ORDER BY series_id, block_id
        """,
        {"experiment_id": experiment_id, "series_ids": list(series_ids)},
    )
    return unpack_rows(result)


def unpack_rows(result: PendingResult) -> dict[int, ScalarPoints]:
    """Return the points of each series that has any, in order of arrival."""
    chunks: defaultdict[int, list[ScalarPoints]] = defaultdict(list)
    for series_id, is_packed, data, _ in result.rows():
        chunks[series_id].append(unpack(data) if is_packed else unpack_raw(data))
    return {series_id: concatenate(points) for series_id, points in chunks.items()}
