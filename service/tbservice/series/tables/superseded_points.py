"""Queries on `superseded_tensors` and `superseded_blobs`: one row per point, step and period.

They are points that lost their step to a later attempt of the run. Writers have locked the rows of
the series, so that no point changes between a comparison and what is written after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.db.arrays import Array, encode_array
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables.points import (
    SHOWN_TABLES,
    VALUE_COLUMNS,
    PointKeys,
    Upserted,
    execute_upsert,
    make_on_conflict,
    make_upsert,
)
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire.points import DataClass

SUPERSEDED_TABLES: Final = {
    DataClass.TENSOR: "superseded_tensors",
    DataClass.BLOB_SEQUENCE: "superseded_blobs",
}


def find_wall_times(
    db: Connection, experiment_id: ExperimentId, data_class: DataClass, keys: PointKeys
) -> tuple[Int64s, Float64s]:
    """Return which of the points have a shown one of the same step: index, and its wall time."""
    rows = fetch_binary(
        db,
        f"""
            SELECT w.ordinal, p.wall_time
            FROM unnest(%(series_id)s::bigint[], %(rank)s::smallint[], %(sample_key)s::bigint[])
                WITH ORDINALITY AS w (series_id, rank, sample_key, ordinal)
            CROSS JOIN LATERAL (
                SELECT wall_time FROM {SHOWN_TABLES[data_class]}
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND rank = w.rank AND sample_key = w.sample_key LIMIT 1) AS p
        """,  # noqa: S608 - a constant above
        {"experiment_id": experiment_id, **keys.to_parameters()},
    )
    ordinals, wall_times = zip(*rows, strict=True) if rows else ((), ())
    return np.array(ordinals, np.int64) - 1, np.array(wall_times, np.float64)


def keep_shown(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    keys: PointKeys,
    period_starts: Float64s,
) -> Upserted:
    """Copy shown points, which the caller is about to replace; return what that adds.

    `period_starts` has the restart that the period of each point began with, -inf for the first.
    """
    copied = ("series_id", "rank", "sample_key", "step", "wall_time", *VALUE_COLUMNS[data_class])
    return execute_upsert(
        db,
        f"""
            INSERT INTO {SUPERSEDED_TABLES[data_class]} AS old
                (experiment_id, workspace_id, period_start, {", ".join(copied)})
            SELECT p.experiment_id, p.workspace_id, w.period_start,
                {", ".join(f"p.{name}" for name in copied)}
            FROM unnest(CAST(%(series_id)s AS bigint[]), CAST(%(rank)s AS smallint[]),
                CAST(%(sample_key)s AS bigint[]), CAST(%(period_start)s AS float8[]))
                AS w (series_id, rank, sample_key, period_start)
            CROSS JOIN LATERAL (
                SELECT * FROM {SHOWN_TABLES[data_class]}
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND rank = w.rank AND sample_key = w.sample_key LIMIT 1) AS p
            {make_on_conflict(data_class, ["period_start"])}
        """,  # noqa: S608 - constants above
        data_class,
        {
            "experiment_id": experiment_id,
            **keys.to_parameters(),
            "period_start": encode_array("float8", period_starts),
        },
    )


def insert(
    db: Connection,
    grant: ExperimentGrant,
    data_class: DataClass,
    keys: PointKeys,
    period_starts: Float64s,
    values: Mapping[str, Array],
) -> Upserted:
    """Insert points, with VALUE_COLUMNS; of one step and period the newest remains."""
    statement = make_upsert(
        db, data_class, SUPERSEDED_TABLES[data_class], {"period_start": "float8"}
    )
    return execute_upsert(
        db,
        statement,
        data_class,
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **keys.to_parameters(),
            "period_start": encode_array("float8", period_starts),
            **values,
        },
    )
