"""Queries on `blob_points`: one row per point of a blob sequence, keyed by sample order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import Array, encode_array
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbservice.types.series import Series


def encode_sequences(
    sequences: Sequence[Sequence[bytes]], content_types: Sequence[str]
) -> dict[str, Array]:
    """Return the columns of blob sequences as parameters of `points.upsert_points`."""
    return {
        # unnest flattens arrays of arrays, so each sequence is sent as the text of an array.
        "digests": encode_array(
            "text",
            ["{" + ",".join(f'"\\\\x{d.hex()}"' for d in digests) + "}" for digests in sequences],
        ),
        "logged_content_type": encode_array("text", content_types),
    }


def list_digests(
    db: Connection,
    table: str,
    experiment_id: ExperimentId,
    series_id: int,
    rank: int,
    sample_key: int,
) -> list[list[bytes]]:
    """Return the SHA-256s of the blobs of each point of one step in a table, the newest first."""
    statement = text(f"""
        SELECT digests FROM {table}
        WHERE experiment_id = :experiment_id AND series_id = :series_id AND rank = :rank
            AND sample_key = :sample_key
        ORDER BY wall_time DESC
    """)  # noqa: S608 - called with constants
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
