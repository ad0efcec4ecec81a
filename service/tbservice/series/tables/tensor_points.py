"""Queries on `tensor_points`: one row per point, keyed by sample order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.arrays import Array, encode_array
from tbservice.samples import TensorValue
from tbservice.series.tables.points import PointKeys, upsert_counting_new
from tbservice.series.tables.value_scan import TensorSampleRow, make_tensor_value, stream_by_bytes
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId

STREAM_OPTIONS: Final = {"stream_results": True, "max_row_buffer": 100}
"""Options for a statement whose rows are streamed with a server-side cursor."""


@dataclass(frozen=True, slots=True)
class TensorPoint:
    """A point of a tensor series; (rank, sample_key) is its step's position in the sample order."""

    series_id: int
    rank: int
    sample_key: int
    step: int
    wall_time: float
    value: TensorValue


_UPSERT: Final = """
        INSERT INTO tensor_points AS old
            (experiment_id, workspace_id, series_id, rank, sample_key, step, wall_time,
            dtype, shape, data, histogram, object_sha256, object_size)
        SELECT e.experiment_id, e.workspace_id, series_id, rank, sample_key, step, wall_time,
            dtype,
            CAST(shape AS bigint[]), data, histogram, object_sha256, object_size
        FROM {source} AS e
        CROSS JOIN unnest(CAST(:series_ids AS bigint[]), CAST(:ranks AS smallint[]),
            CAST(:sample_keys AS bigint[]),
            CAST(:steps AS bigint[]), CAST(:wall_times AS float8[]),
                CAST(:dtypes AS smallint[]),
            CAST(:shapes AS text[]), CAST(:data AS bytea[]), CAST(:histograms AS bytea[]),
            CAST(:object_sha256s AS bytea[]), CAST(:object_sizes AS bigint[]))
            AS u (series_id, rank, sample_key, step, wall_time, dtype, shape, data,
                histogram,
                object_sha256, object_size)
        ORDER BY series_id, rank, sample_key
        ON CONFLICT (experiment_id, series_id, rank, sample_key) DO UPDATE
            SET wall_time = excluded.wall_time, dtype = excluded.dtype,
                shape = excluded.shape,
                data = excluded.data, histogram = excluded.histogram,
                object_sha256 = excluded.object_sha256, object_size = excluded.object_size
            WHERE excluded.wall_time >= old.wall_time
        RETURNING series_id, (xmax = 0) AS is_new  -- 0 for an inserted row
"""


def upsert(
    db: Connection, grant: ExperimentGrant, keys: PointKeys, values: Sequence[TensorValue]
) -> dict[int, int]:
    """Insert points, or replace those of the same step; return the number of new steps by series.

    A stored point with a greater wall time is not replaced. Series without a new step are missing
    in the result. Idempotent.

    Args:
        db: A transaction of the grant's workspace.
        grant: Grant on the experiment.
        keys: Columns of the points, at most one point per series and step.
        values: The tensor of each point.
    """
    return upsert_counting_new(
        db,
        _UPSERT,
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **keys.to_parameters(),
            **encode_tensors(values),
        },
    )


def encode_tensors(values: Sequence[TensorValue]) -> dict[str, Array]:
    """Return the columns of tensors as parameters of a statement."""
    return {
        "dtypes": encode_array("smallint", [value.dtype for value in values]),
        # unnest flattens arrays of arrays, so each shape is sent as the text of an array.
        "shapes": encode_array(
            "text", ["{" + ",".join(map(str, value.shape)) + "}" for value in values]
        ),
        "data": encode_array(
            "bytea", [value.data if value.reference is None else None for value in values]
        ),
        "histograms": encode_array("bytea", [value.histogram for value in values]),
        "object_sha256s": encode_array(
            "bytea", [value.reference and value.reference.sha256 for value in values]
        ),
        "object_sizes": encode_array(
            "bigint", [value.reference and value.reference.size for value in values]
        ),
    }


def sample(
    db: Connection,
    experiment_id: ExperimentId,
    k: int,
    ends: Mapping[int, Sequence[tuple[int, int]]],
) -> Generator[TensorPoint, None, None]:
    """Stream the first `k` points of each series in sample order, and those at its `ends`.

    Points are in no order, and may occur twice. A caller that stops early, since the points have
    too many bytes, closes the generator.

    Args:
        db: A transaction.
        experiment_id: The experiment of all series.
        k: Points per series.
        ends: (rank, sample key) pairs by series id. Its keys are the series to read.
    """
    statement = """
        SELECT p.* FROM unnest(%(series_ids)s::bigint[]) AS w (series_id)
        CROSS JOIN LATERAL (
            SELECT series_id, rank, sample_key, step, wall_time, dtype, shape, data, histogram,
                object_sha256, object_size
            FROM tensor_points
            WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
            ORDER BY rank, sample_key LIMIT %(k)s
        ) AS p
        UNION ALL
        SELECT p.series_id, p.rank, p.sample_key, step, wall_time, dtype, shape, data, histogram,
            object_sha256, object_size
        FROM unnest(%(end_ids)s::bigint[], %(ranks)s::smallint[], %(keys)s::bigint[])
            AS e (series_id, rank, sample_key)
        JOIN tensor_points AS p ON p.experiment_id = %(experiment_id)s AND p.series_id = e.series_id
            AND p.rank = e.rank AND p.sample_key = e.sample_key
    """
    parameters = {"experiment_id": experiment_id, "k": k, **ends_to_parameters(ends)}
    with closing(stream_by_bytes(db, TensorSampleRow, statement, parameters)) as rows:
        for row in rows:
            yield TensorPoint(
                row.series_id,
                row.rank,
                row.sample_key,
                row.step,
                row.wall_time,
                make_tensor_value(row),
            )


def ends_to_parameters(ends: Mapping[int, Sequence[tuple[int, int]]]) -> dict[str, list[int]]:
    """Return statement parameters for `ends`: the series' ids, and three parallel arrays."""
    flat = [(series_id, rank, key) for series_id, keys in ends.items() for rank, key in keys]
    return {
        "series_ids": list(ends),
        "end_ids": [series_id for series_id, _, _ in flat],
        "ranks": [rank for _, rank, _ in flat],
        "keys": [key for _, _, key in flat],
    }
