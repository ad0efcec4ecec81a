"""Queries on `superseded_tensors` and `superseded_blobs`: one row per point, step and period.

They are points that lost their step to a later attempt of the run. Writers have locked the rows of
the series, so that no point changes between a comparison and what is written after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import Array, encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary
from tbservice.samples import TensorValue
from tbservice.series.tables.blob_points import encode_sequences
from tbservice.series.tables.points import SHOWN_TABLES, PointKeys
from tbservice.series.tables.tensor_points import encode_tensors
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire.points import DataClass

SUPERSEDED_TABLES: Final = {
    DataClass.TENSOR: "superseded_tensors",
    DataClass.BLOB_SEQUENCE: "superseded_blobs",
}
VALUE_COLUMNS: Final = {
    DataClass.TENSOR: "dtype, shape, data, histogram, object_sha256, object_size",
    DataClass.BLOB_SEQUENCE: "digests, logged_content_type",
}
"""The columns of a point's value, in the table of the shown ones and in that of superseded ones."""

_ON_CONFLICT: Final = {
    data_class: f"""
        ON CONFLICT (experiment_id, series_id, rank, sample_key, period_start) DO UPDATE
            SET wall_time = excluded.wall_time,
                {", ".join(f"{name} = excluded.{name}" for name in columns.split(", "))}
            WHERE excluded.wall_time >= old.wall_time
    """  # noqa: S608 - constants above
    for data_class, columns in VALUE_COLUMNS.items()
}


def find_wall_times(
    db: Connection, experiment_id: ExperimentId, data_class: DataClass, keys: PointKeys
) -> tuple[Int64s, Float64s]:
    """Return which of the points have a shown one of the same step: index, and its wall time."""
    rows = fetch_binary(
        db,
        f"""
            SELECT w.ordinal, p.wall_time
            FROM unnest(%(series_ids)s::bigint[], %(ranks)s::smallint[], %(sample_keys)s::bigint[])
                WITH ORDINALITY AS w (series_id, rank, sample_key, ordinal)
            JOIN {SHOWN_TABLES[data_class]} AS p ON p.experiment_id = %(experiment_id)s
                AND p.series_id = w.series_id AND p.rank = w.rank AND p.sample_key = w.sample_key
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
) -> None:
    """Copy shown points, which the caller is about to replace.

    `period_starts` has the restart that the period of each point began with, -inf for the first.
    """
    columns = VALUE_COLUMNS[data_class]
    db.execute(
        text(f"""
            INSERT INTO {SUPERSEDED_TABLES[data_class]} AS old
                (experiment_id, workspace_id, series_id, rank, sample_key, step, wall_time,
                period_start, {columns})
            SELECT p.experiment_id, p.workspace_id, p.series_id, p.rank, p.sample_key, p.step,
                p.wall_time, w.period_start,
                {", ".join(f"p.{name}" for name in columns.split(", "))}
            FROM unnest(CAST(:series_ids AS bigint[]), CAST(:ranks AS smallint[]),
                CAST(:sample_keys AS bigint[]), CAST(:period_starts AS float8[]))
                AS w (series_id, rank, sample_key, period_start)
            JOIN {SHOWN_TABLES[data_class]} AS p ON p.experiment_id = :experiment_id
                AND p.series_id = w.series_id AND p.rank = w.rank AND p.sample_key = w.sample_key
            {_ON_CONFLICT[data_class]}
        """),  # noqa: S608 - constants above
        {
            "experiment_id": experiment_id,
            **keys.to_parameters(),
            "period_starts": encode_array("float8", period_starts),
        },
    )


def find_digests(
    db: Connection, experiment_id: ExperimentId, series_id: int, rank: int, sample_key: int
) -> list[list[bytes]]:
    """Return the SHA-256s of the blobs of each superseded point of one step, the newest first."""
    statement = text("""
        SELECT digests FROM superseded_blobs
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND rank = :rank
            AND sample_key = :sample_key
        ORDER BY wall_time DESC
    """)
    parameters = {
        "experiment_id": experiment_id,
        "series_id": series_id,
        "rank": rank,
        "sample_key": sample_key,
    }
    return [
        [bytes(digest) for digest in digests]
        for digests in db.execute(statement, parameters).scalars()
    ]


def insert_tensors(
    db: Connection,
    grant: ExperimentGrant,
    keys: PointKeys,
    period_starts: Float64s,
    values: Sequence[TensorValue],
) -> None:
    """Insert tensor points; of one step and period the newest remains."""
    _insert(
        db,
        grant,
        DataClass.TENSOR,
        keys,
        period_starts,
        """CAST(dtypes AS smallint), CAST(shapes AS bigint[]), data, histograms, object_sha256s,
            object_sizes""",
        encode_tensors(values),
    )


def insert_blob_sequences(
    db: Connection,
    grant: ExperimentGrant,
    keys: PointKeys,
    period_starts: Float64s,
    sequences: Sequence[Sequence[bytes]],
    content_types: Sequence[str],
) -> None:
    """Insert blob sequence points; of one step and period the newest remains."""
    _insert(
        db,
        grant,
        DataClass.BLOB_SEQUENCE,
        keys,
        period_starts,
        "CAST(digests AS bytea[]), content_types",
        encode_sequences(sequences, content_types),
    )


_ARRAYS: Final = {
    "dtypes": "smallint",
    "shapes": "text",
    "data": "bytea",
    "histograms": "bytea",
    "object_sha256s": "bytea",
    "object_sizes": "bigint",
    "digests": "text",
    "content_types": "text",
}
"""Element types of the arrays of values, by the names of their parameters."""


def _insert(
    db: Connection,
    grant: ExperimentGrant,
    data_class: DataClass,
    keys: PointKeys,
    period_starts: Float64s,
    selected: str,
    values: dict[str, Array],
) -> None:
    arrays = ", ".join(f"CAST(:{name} AS {_ARRAYS[name]}[])" for name in values)
    db.execute(
        text(f"""
            INSERT INTO {SUPERSEDED_TABLES[data_class]} AS old
                (experiment_id, workspace_id, series_id, rank, sample_key, step, wall_time,
                period_start, {VALUE_COLUMNS[data_class]})
            SELECT e.experiment_id, e.workspace_id, series_id, rank, sample_key, step, wall_time,
                period_start, {selected}
            FROM {citus.insert_source(db, is_text=True)} AS e
            CROSS JOIN unnest(CAST(:series_ids AS bigint[]), CAST(:ranks AS smallint[]),
                CAST(:sample_keys AS bigint[]), CAST(:steps AS bigint[]),
                CAST(:wall_times AS float8[]), CAST(:period_starts AS float8[]),
                {arrays})
                AS u (series_id, rank, sample_key, step, wall_time, period_start,
                    {", ".join(values)})
            {_ON_CONFLICT[data_class]}
        """),  # noqa: S608 - constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **keys.to_parameters(),
            "period_starts": encode_array("float8", period_starts),
            **values,
        },
    )
