"""How much data an experiment has: its points, and an estimate of their bytes."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.types import ExperimentId

SCALAR_BYTES: Final = 12
"""Bytes that a scalar takes in PostgreSQL, about: see docs/benchmarks.md."""


class Size(NamedTuple):
    """Points, and their size in bytes, estimated."""

    points: int
    bytes: int


def measure(db: Connection, experiment_id: ExperimentId) -> Size:
    """Return the size of what an experiment has now, earlier attempts included.

    Reads the lengths of all tensors and blobs.
    """
    row = db.execute(
        text("""
            WITH erased AS (SELECT series_id FROM erased_series WHERE experiment_id = :id)
            SELECT
                (SELECT coalesce(sum(count), 0)::bigint FROM time_series
                 WHERE experiment_id = :id AND data_class = 1)
                + (SELECT coalesce(sum(count), 0)::bigint FROM superseded_blocks
                 WHERE experiment_id = :id
                    AND series_id NOT IN (SELECT series_id FROM erased)) AS scalars,
                tensors.points AS tensors, tensors.bytes AS tensor_bytes,
                blobs.points AS blobs, blobs.bytes AS blob_bytes
            FROM (
                SELECT count(*) AS points,
                    coalesce(sum(coalesce(octet_length(data), object_size)), 0)::bigint AS bytes
                FROM (
                    SELECT data, object_size FROM tensor_points WHERE experiment_id = :id
                        AND series_id NOT IN (SELECT series_id FROM erased)
                    UNION ALL
                    SELECT data, object_size FROM superseded_tensors WHERE experiment_id = :id
                        AND series_id NOT IN (SELECT series_id FROM erased)
                ) AS p
            ) AS tensors, (
                SELECT count(*) AS points, coalesce(sum(b.size), 0)::bigint AS bytes
                FROM (
                    SELECT workspace_id, digests FROM blob_points WHERE experiment_id = :id
                        AND series_id NOT IN (SELECT series_id FROM erased)
                    UNION ALL
                    SELECT workspace_id, digests FROM superseded_blobs WHERE experiment_id = :id
                        AND series_id NOT IN (SELECT series_id FROM erased)
                ) AS p
                CROSS JOIN LATERAL (
                    SELECT sum(blobs.size) AS size FROM unnest(p.digests) AS digest
                    JOIN blobs ON blobs.workspace_id = p.workspace_id AND blobs.sha256 = digest
                ) AS b
            ) AS blobs
        """),
        {"id": experiment_id},
    ).one()
    points = row.scalars + row.tensors + row.blobs
    return Size(points, row.scalars * SCALAR_BYTES + row.tensor_bytes + row.blob_bytes)
