"""Queries shared by the tables of points: keys in the sample order, steps, and deletion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import Array, decode_int8s, encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary
from tbservice.samples import TensorValue
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s, Ranks
from tbservice.types.sampling import Sampling
from tbservice.types.series import Series
from tbwire.points import DataClass

POINT_TABLES: Final = (
    "scalar_tail",
    "scalar_blocks",
    "tensor_points",
    "blob_points",
    "superseded_blocks",
    "superseded_tensors",
    "superseded_blobs",
)
"""The tables of points, which have no foreign key to their series."""

SHOWN_TABLES: Final = {
    DataClass.TENSOR: "tensor_points",
    DataClass.BLOB_SEQUENCE: "blob_points",
}
"""The tables with one row per point; superseded points are in others (`superseded_points`)."""

VALUE_COLUMNS: Final[Mapping[DataClass, Mapping[str, str]]] = {
    DataClass.TENSOR: {
        "dtype": "smallint",
        "shape": "text",
        "data": "bytea",
        "histogram": "bytea",
        "object_sha256": "bytea",
        "object_size": "bigint",
    },
    DataClass.BLOB_SEQUENCE: {"digests": "text", "logged_content_type": "text"},
}
"""The columns of a point's value, and the types that they are sent as, of both tables of a class.

unnest flattens arrays of arrays, so a column of arrays is sent as their texts: `_ARRAYS`.
"""

_ARRAYS: Final = {"shape": "bigint[]", "digests": "bytea[]"}

_KEY_COLUMNS: Final = {
    "series_id": "bigint",
    "rank": "smallint",
    "sample_key": "bigint",
    "step": "bigint",
    "wall_time": "float8",
}


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
            "series_id": encode_array("bigint", self.series_ids),
            "rank": encode_array("smallint", self.ranks),
            "sample_key": encode_array("bigint", self.sample_keys),
            "step": encode_array("bigint", self.steps),
            "wall_time": encode_array("float8", self.wall_times),
        }


def make_upsert(db: Connection, data_class: DataClass, table: str, more: Mapping[str, str]) -> str:
    """Return the statement that inserts points, or replaces those of the same key.

    A stored point with a greater wall time is not replaced. `more` has further columns of the key,
    and their types. Parameters are those of the columns by name, and the ids of a grant.
    """
    columns = {**_KEY_COLUMNS, **more, **VALUE_COLUMNS[data_class]}
    selected = (f"CAST({name} AS {_ARRAYS[name]})" if name in _ARRAYS else name for name in columns)
    arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in columns.items())
    return f"""
        INSERT INTO {table} AS old (experiment_id, workspace_id, {", ".join(columns)})
        SELECT e.experiment_id, e.workspace_id, {", ".join(selected)}
        FROM {citus.insert_source(db)} AS e
        CROSS JOIN unnest({arrays}) AS u ({", ".join(columns)})
        ORDER BY series_id, rank, sample_key
        {make_on_conflict(data_class, more)}
    """  # noqa: S608 - constants above


def make_on_conflict(data_class: DataClass, more: Iterable[str]) -> str:
    """Return the clause by which a point replaces a stored one of the same key that is older."""
    replaced = ("wall_time", *VALUE_COLUMNS[data_class])
    return f"""
        ON CONFLICT ({", ".join(("experiment_id", "series_id", "rank", "sample_key", *more))})
            DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in replaced)}
            WHERE excluded.wall_time >= old.wall_time
    """


class Upserted(NamedTuple):
    """New steps by series, without series that have none; and bytes of tensors that were added."""

    new_steps: dict[int, int]
    tensor_bytes: int

    @property
    def new(self) -> int:
        """Points that replaced no other."""
        return sum(self.new_steps.values())


def upsert_points(
    db: Connection,
    grant: ExperimentGrant,
    data_class: DataClass,
    keys: PointKeys,
    values: Mapping[str, Array],
) -> Upserted:
    """Insert points, or replace those of the same step. Idempotent.

    A stored point with a greater wall time is not replaced.

    Args:
        db: A transaction of the grant's workspace.
        grant: Grant on the experiment.
        data_class: Data class of the points, one with a row per point.
        keys: Columns of the points, at most one point per series and step.
        values: VALUE_COLUMNS of the points.
    """
    parameters = {
        "experiment_id": grant.experiment_id,
        "workspace_id": grant.workspace_id,
        **keys.to_parameters(),
        **values,
    }
    statement = make_upsert(db, data_class, SHOWN_TABLES[data_class], {})
    return execute_upsert(db, statement, data_class, parameters)


def execute_upsert(
    db: Connection, statement: str, data_class: DataClass, parameters: Mapping[str, Any]
) -> Upserted:
    """Execute an INSERT with `make_on_conflict`, and count what it has added."""
    # The sizes of values are known without reading them; `was` has no row where one was inserted:
    # https://www.postgresql.org/docs/18/dml-returning.html
    size = "coalesce(octet_length({0}.data), {0}.object_size, 0)"
    added = f"{size.format('now')} - {size.format('was')}"
    statement = f"""
        {statement}
        RETURNING WITH (OLD AS was, NEW AS now) now.series_id,
            CAST(was.series_id IS NULL AS integer) AS new,
            {added if data_class is DataClass.TENSOR else "0"} AS bytes
    """
    new_steps: Counter[int] = Counter()
    tensor_bytes = 0
    # Not counted by a query around it: a cluster runs no INSERT within a query on one node.
    for series_id, new, bytes_ in fetch_binary(db, statement, parameters):
        if new:
            new_steps[series_id] += int(new)
        tensor_bytes += int(bytes_)
    return Upserted(new_steps, tensor_bytes)


def delete_series_points(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> None:
    """Delete all points of these series; no foreign key cascades. Their objects in S3 remain."""
    for table in POINT_TABLES:
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
    for table in POINT_TABLES:
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


def encode_tensors(values: Sequence[TensorValue]) -> dict[str, Array]:
    """Return the columns of tensors as parameters of `points.upsert_points`."""
    return {
        "dtype": encode_array("smallint", [value.dtype for value in values]),
        # unnest flattens arrays of arrays, so each shape is sent as the text of an array.
        "shape": encode_array(
            "text", ["{" + ",".join(map(str, value.shape)) + "}" for value in values]
        ),
        "data": encode_array(
            "bytea", [value.data if value.reference is None else None for value in values]
        ),
        "histogram": encode_array("bytea", [value.histogram for value in values]),
        "object_sha256": encode_array(
            "bytea", [value.reference and value.reference.sha256 for value in values]
        ),
        "object_size": encode_array(
            "bigint", [value.reference and value.reference.size for value in values]
        ),
    }
