"""Queries on `time_series` for summaries: those of an experiment, those that are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from tbservice.db.arrays import encode_array
from tbservice.db.pipeline import execute_binary, fetch_binary, pipeline, set_locals
from tbservice.series.tables import series_rows, summary_format
from tbservice.series.tables.summary_format import Summary
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire.points import DataClass

_IS_SCALAR: Final = f"data_class = {int(DataClass.SCALAR)}"
_IS_UNKNOWN: Final = (
    "substring(summary FOR 16) IS DISTINCT FROM int8send(rewrites) || int8send(last_step)"
)


class UnknownSummary(NamedTuple):
    """A scalar series without a valid summary; `count` may include superseded points."""

    series_id: int
    count: int  # type: ignore[assignment] # hides a method of tuples
    rewrites: int
    last_step: int


@dataclass(frozen=True, slots=True)
class SummaryColumns:
    """All scalar series of an experiment: last points, and summaries in `records`.

    Their type is `summary_format.NATIVE_DTYPE`. An unknown summary has a `not_finite` of -1.
    Wall times are in seconds.
    """

    series_ids: Int64s
    run_ids: Int64s
    tag_ids: Int64s
    counts: Int64s
    last_steps: Int64s
    last_values: Float64s
    max_wall_times: Float64s
    records: npt.NDArray[np.void]


def list_unknown(
    db: Connection, experiment_id: ExperimentId, after: int, limit: int
) -> list[UnknownSummary]:
    """Return up to `limit` series without a valid summary, with ids after `after`, by id.

    None before migration 0014. Reads the experiment's rows of series from `after` on.
    """
    if not series_rows.has_summaries(db):
        return []
    rows = fetch_binary(
        db,
        f"""
            SELECT series_id, count, rewrites, last_step FROM time_series
            WHERE experiment_id = %(experiment_id)s AND series_id > %(after)s
                AND {_IS_SCALAR} AND {_IS_UNKNOWN}
            ORDER BY series_id LIMIT %(limit)s
        """,  # noqa: S608 - the constants above
        {"experiment_id": experiment_id, "after": after, "limit": limit},
    )
    return [UnknownSummary._make(row) for row in rows]


def store(
    db: Connection, experiment_id: ExperimentId, computed: Mapping[UnknownSummary, Summary]
) -> None:
    """Store summaries of rows that are as they were listed, and that nobody has locked."""
    execute_binary(
        db,
        """
            WITH free AS (
                -- In no order that batches keep to: so it waits for none of their locks.
                SELECT series_id, rewrites, last_step FROM time_series
                WHERE experiment_id = %(experiment_id)s
                    AND series_id = ANY (%(series_ids)s::bigint[])
                FOR UPDATE SKIP LOCKED)
            UPDATE time_series AS s SET summary = u.summary
            FROM unnest(%(series_ids)s::bigint[], %(packed)s::bytea[]) AS u (series_id, summary)
            JOIN free AS f ON f.series_id = u.series_id
                AND substring(u.summary FOR 16) = int8send(f.rewrites) || int8send(f.last_step)
            WHERE s.experiment_id = %(experiment_id)s AND s.series_id = u.series_id
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": encode_array("bigint", [row.series_id for row in computed]),
            "packed": encode_array(
                "bytea",
                [
                    summary_format.pack(summary, row.rewrites, row.last_step)
                    for row, summary in computed.items()
                ],
            ),
        },
    )


def list_summaries(
    db: Connection, experiment_id: ExperimentId, *, is_view: bool = False
) -> SummaryColumns:
    """Return all scalar series of an experiment, in no order; reads all of its rows of series.

    With `is_view`, `db` shows what a restricted link shows, without summaries: all are unknown.

    Results are packed into one value per column: a row for each of 1,000,000 series would take
    longer to fetch than to select.
    """
    size = summary_format.RECORD_DTYPE.itemsize
    summary = "''::bytea" if is_view or not series_rows.has_summaries(db) else "summary"
    with pipeline(db):
        # PostgreSQL would read all series of all workspaces, with two more processes.
        set_locals(db, {"enable_seqscan": "off", "max_parallel_workers_per_gather": "0"})
        result = execute_binary(
            db,
            f"""
                SELECT string_agg(int8send(series_id) || int8send(run_id) || int8send(tag_id)
                    || int8send(count) || int8send(rewrites) || int8send(last_step)
                    || float8send(last_value) || float8send(max_wall_time)
                    || CASE octet_length({summary}) WHEN {size} THEN {summary}
                        ELSE decode(repeat('ff', {size}), 'hex') END, ''::bytea)
                FROM time_series
                WHERE experiment_id = %(experiment_id)s AND {_IS_SCALAR} AND count > 0
            """,  # noqa: S608 - the constants above
            {"experiment_id": experiment_id},
        )
    ((data,),) = result.rows()
    names = ("series_id", "run_id", "tag_id", "count", "rewrites", "last_step")
    dtype = np.dtype(
        [
            *((name, ">i8") for name in names),
            ("last_value", ">f8"),
            ("max_wall_time", ">f8"),
            ("summary", summary_format.RECORD_DTYPE),
        ]
    )
    rows = np.frombuffer(bytes(data or b""), dtype)
    records = rows["summary"].astype(summary_format.NATIVE_DTYPE)
    is_unknown = (records["rewrites"] != rows["rewrites"]) | (
        records["last_step"] != rows["last_step"]
    )
    records["not_finite"][is_unknown] = -1
    return SummaryColumns(
        rows["series_id"].astype(np.int64),
        rows["run_id"].astype(np.int64),
        rows["tag_id"].astype(np.int64),
        rows["count"].astype(np.int64),
        rows["last_step"].astype(np.int64),
        rows["last_value"].astype(np.float64),
        rows["max_wall_time"].astype(np.float64),
        records,
    )
