"""Deletion from all tables of points at once: no foreign key ties them to their series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from tbservice.types import ExperimentId

_TABLES: Final = ("scalar_tail", "scalar_blocks", "tensor_points", "blob_points")


def delete_series_points(db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]) -> None:
    """Deletes every point of these series. The objects of their blobs stay until they are swept."""
    for table in _TABLES:
        db.execute(
            text(f"DELETE FROM {table} WHERE experiment_id = :id AND series_id = ANY (CAST(:series_ids AS bigint[]))"),  # noqa: S608 - a constant above
            {"id": experiment_id, "series_ids": list(series_ids)},
        )


def delete_experiment_points(db: Connection, experiment_id: ExperimentId) -> None:
    """Deletes every point of the experiment. The objects of its blobs stay until they are swept."""
    for table in _TABLES:
        db.execute(text(f"DELETE FROM {table} WHERE experiment_id = :id"), {"id": experiment_id})  # noqa: S608 - a constant above
