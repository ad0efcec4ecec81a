"""Queries shared by the tables of points: keys in the sample order, steps, and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import Array, decode_int8s, encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s, Ranks
from tbservice.types.sampling import Sampling
from tbservice.types.series import Series
from tbwire.points import DataClass

_TABLES: Final = (
    "scalar_tail",
    "scalar_blocks",
    "tensor_points",
    "blob_points",
    "superseded_blocks",
    "superseded_tensors",
    "superseded_blobs",
)

SHOWN_TABLES: Final = {
    DataClass.TENSOR: "tensor_points",
    DataClass.BLOB_SEQUENCE: "blob_points",
}
"""The tables with one row per point; superseded points are in others (`superseded_points`)."""


@dataclass(frozen=True, slots=True)
class PointKeys:
    """Columns of tensor or blob sequence points.

    (rank, sample_key) is the position of a step in the sample order.
    """

    series_ids: Int64s
    ranks: Ranks
    sample_keys: Int64s
    steps: Int64s
    wall_times: Float64s

    def to_parameters(self) -> dict[str, Array]:
        """Return the columns as parameters of a statement."""
        return {
            "series_ids": encode_array("bigint", self.series_ids),
            "ranks": encode_array("smallint", self.ranks),
            "sample_keys": encode_array("bigint", self.sample_keys),
            "steps": encode_array("bigint", self.steps),
            "wall_times": encode_array("float8", self.wall_times),
        }


def upsert_counting_new(
    db: Connection, statement: str, parameters: Mapping[str, Any]
) -> dict[int, int]:
    """Execute an upsert of points and return how many are new by series id.

    It returns (series_id, is_new) rows, and inserts from `{source}`, the experiment's ids. Only
    plain PostgreSQL counts them: a cluster runs no INSERT within a query on one node.
    """
    statement = statement.replace("{source}", citus.insert_source(db, is_text=True))
    if citus.is_cluster(db):
        rows = db.execute(text(statement), parameters)
        return Counter(row.series_id for row in rows if row.is_new)
    counts = db.execute(
        text(f"""
            WITH upserted AS ({statement})
            SELECT series_id, count(*) AS new FROM upserted WHERE is_new GROUP BY series_id
        """),  # noqa: S608 - a constant of ours
        parameters,
    )
    return {row.series_id: row.new for row in counts}


def delete_series_points(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> None:
    """Delete all points of these series; no foreign key cascades. Their objects in S3 remain."""
    for table in _TABLES:
        statement = text(f"""
            DELETE FROM {table}
            WHERE experiment_id = :id AND series_id = ANY (CAST(:series_ids AS bigint[]))
        """)  # noqa: S608 - a constant above
        db.execute(statement, {"id": experiment_id, "series_ids": list(series_ids)})


def delete_some_points(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], rows_max: int
) -> bool:
    """Delete at most `rows_max` rows of points of these series; return whether none is left."""
    rows_left = rows_max
    for table in _TABLES:
        statement = text(f"""
            DELETE FROM {table} WHERE experiment_id = :id AND ctid = ANY (ARRAY(
                SELECT ctid FROM {table} WHERE experiment_id = :id
                    AND series_id = ANY (CAST(:series_ids AS bigint[])) LIMIT :limit))
        """)  # noqa: S608 - a constant above
        parameters = {"id": experiment_id, "series_ids": list(series_ids), "limit": rows_left}
        rows_left -= db.execute(statement, parameters).rowcount
        if rows_left <= 0:
            return False
    return True


def delete_experiment_points(db: Connection, experiment_id: ExperimentId) -> None:
    """Delete all points and logs of an experiment. Their objects in S3 remain."""
    for table in (*_TABLES, "katib_observations"):
        statement = text(f"DELETE FROM {table} WHERE experiment_id = :id")  # noqa: S608 - a constant above
        db.execute(statement, {"id": experiment_id})


def list_steps(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    series_ids: Sequence[int],
    sampling: Sampling,
) -> dict[int, Int64s]:
    """Return the steps of each tensor or blob sequence series that a sampling chooses from.

    Steps ascend: those in the sampling's range, of these the last `sampling.last`. A series without
    any has an empty array.
    """
    table = SHOWN_TABLES[data_class]
    rows = fetch_binary(
        db,
        f"""
            SELECT w.series_id, string_agg(int8send(p.step), ''::bytea ORDER BY p.step)
            FROM unnest(%(series_ids)s::bigint[]) AS w (series_id)
            CROSS JOIN LATERAL (
                SELECT step FROM {table}
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND step BETWEEN %(first)s AND %(last)s
                ORDER BY step DESC LIMIT %(limit)s
            ) AS p
            GROUP BY w.series_id
        """,  # noqa: S608 - a constant above
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": sampling.steps.first,
            "last": sampling.steps.last,
            "limit": sampling.last,
        },
    )
    steps = {series_id: np.empty(0, np.int64) for series_id in series_ids}
    return steps | {series_id: decode_int8s(data) for series_id, data in rows}


def list_steps_by_wall_time(
    db: Connection, experiment_id: ExperimentId, series: Series
) -> tuple[Int64s, Float64s]:
    """Return steps and wall times of all points of a series, by wall time, then step.

    For tensor and blob sequence series.
    """
    table = SHOWN_TABLES[series.data_class]
    rows = db.execute(
        text(f"""
            SELECT array_agg(step ORDER BY wall_time, step),
                array_agg(wall_time ORDER BY wall_time, step)
            FROM {table} WHERE experiment_id = :experiment_id AND series_id = :series_id
        """),  # noqa: S608 - a constant above
        {"experiment_id": experiment_id, "series_id": series.series_id},
    )
    steps, wall_times = rows.one()
    return np.array(steps or [], np.int64), np.array(wall_times or [], np.float64)
