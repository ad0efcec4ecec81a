"""Queries on `tensor_points`: one row per point, keyed by sample order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.db.arrays import Array, encode_array
from tbservice.samples import TensorValue
from tbservice.series.tables.points import PointKeys, upsert_counting_new
from tbservice.types.grants import ExperimentGrant

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
