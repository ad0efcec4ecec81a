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
    """Return the size of what an experiment has now. Reads the lengths of all tensors and blobs."""
    row = db.execute(
        text("""
            WITH erased AS (SELECT series_id FROM erased_series WHERE experiment_id = :id)
            SELECT
                (SELECT coalesce(sum(count), 0)::bigint FROM time_series
                 WHERE experiment_id = :id) AS points,
                (SELECT coalesce(sum(count), 0)::bigint FROM time_series
                 WHERE experiment_id = :id AND data_class = 1) AS scalars,
                (SELECT coalesce(sum(coalesce(octet_length(data), object_size)), 0)::bigint
                 FROM tensor_points WHERE experiment_id = :id
                    AND series_id NOT IN (SELECT series_id FROM erased)) AS tensor_bytes,
                (SELECT coalesce(sum(b.size), 0)::bigint
                 FROM blob_points AS p CROSS JOIN unnest(p.digests) AS digest
                 JOIN blobs AS b ON b.workspace_id = p.workspace_id AND b.sha256 = digest
                 WHERE p.experiment_id = :id
                    AND p.series_id NOT IN (SELECT series_id FROM erased)) AS blob_bytes
        """),
        {"id": experiment_id},
    ).one()
    return Size(row.points, row.scalars * SCALAR_BYTES + row.tensor_bytes + row.blob_bytes)
