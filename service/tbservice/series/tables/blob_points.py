"""Queries on `blob_points`: one row per point of a blob sequence, keyed by sample order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import Array, encode_array
from tbservice.series.tables.points import PointKeys, upsert_counting_new
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbservice.types.series import Series

_UPSERT: Final = """
        INSERT INTO blob_points AS old
            (experiment_id, workspace_id, series_id, rank, sample_key, step, wall_time,
            digests, logged_content_type)
        SELECT e.experiment_id, e.workspace_id, series_id, rank, sample_key, step, wall_time,
            CAST(digests AS bytea[]), logged_content_type
        FROM {source} AS e
        CROSS JOIN unnest(CAST(:series_ids AS bigint[]), CAST(:ranks AS smallint[]),
            CAST(:sample_keys AS bigint[]), CAST(:steps AS bigint[]),
            CAST(:wall_times AS float8[]), CAST(:digests AS text[]),
            CAST(:content_types AS text[]))
            AS u (series_id, rank, sample_key, step, wall_time, digests,
                logged_content_type)
        ORDER BY series_id, rank, sample_key
        ON CONFLICT (experiment_id, series_id, rank, sample_key) DO UPDATE
            SET wall_time = excluded.wall_time, digests = excluded.digests,
                logged_content_type = excluded.logged_content_type
            WHERE excluded.wall_time >= old.wall_time
        RETURNING series_id, (xmax = 0) AS is_new  -- 0 for an inserted row
"""


def upsert(
    db: Connection,
    grant: ExperimentGrant,
    keys: PointKeys,
    sequences: Sequence[Sequence[bytes]],
    content_types: Sequence[str],
) -> dict[int, int]:
    """Insert points, or replace those of the same step; return the number of new steps by series.

    A stored point with a greater wall time is not replaced. Series without a new step are missing
    in the result. Idempotent.

    Args:
        db: A transaction of the grant's workspace.
        grant: Grant on the experiment.
        keys: Columns of the points, at most one point per series and step.
        sequences: The SHA-256s of each point's blobs.
        content_types: The content type logged with each point, "" for none.
    """
    return upsert_counting_new(
        db,
        _UPSERT,
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **keys.to_parameters(),
            **encode_sequences(sequences, content_types),
        },
    )


def encode_sequences(
    sequences: Sequence[Sequence[bytes]], content_types: Sequence[str]
) -> dict[str, Array]:
    """Return the columns of blob sequences as parameters of a statement."""
    return {
        # unnest flattens arrays of arrays, so each sequence is sent as the text of an array.
        "digests": encode_array(
            "text",
            ["{" + ",".join(f'"\\\\x{d.hex()}"' for d in digests) + "}" for digests in sequences],
        ),
        "content_types": encode_array("text", content_types),
    }


def find_digests(
    db: Connection, experiment_id: ExperimentId, series_id: int, rank: int, sample_key: int
) -> list[bytes] | None:
    """Return the SHA-256s of one point's blobs, in order; None if the point does not exist."""
    statement = text("""
        SELECT digests FROM blob_points
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND rank = :rank
            AND sample_key = :sample_key
    """)
    parameters = {
        "experiment_id": experiment_id,
        "series_id": series_id,
        "rank": rank,
        "sample_key": sample_key,
    }
    digests = db.execute(statement, parameters).scalar()
    return None if digests is None else [bytes(digest) for digest in digests]


def list_lengths(
    db: Connection, experiment_id: ExperimentId, series: Series
) -> tuple[Int64s, Float64s, Int64s]:
    """Return steps, wall times and numbers of blobs of all points, by wall time, then step."""
    rows = db.execute(
        text("""
            SELECT array_agg(step ORDER BY wall_time, step),
                array_agg(wall_time ORDER BY wall_time, step),
                array_agg(cardinality(digests) ORDER BY wall_time, step)
            FROM blob_points WHERE experiment_id = :experiment_id AND series_id = :series_id
        """),
        {"experiment_id": experiment_id, "series_id": series.series_id},
    )
    steps, wall_times, lengths = rows.one()
    return (
        np.array(steps or [], np.int64),
        np.array(wall_times or [], np.float64),
        np.array(lengths or [], np.int64),
    )
