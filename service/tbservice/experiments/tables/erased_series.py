"""Queries on `erased_series`: series that were deleted, whose points are erased bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import execute_binary
from tbservice.series.tables import points
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_SERIES_ITEMS_MAX = 1_000
"""Series (items) of which one call erases points."""


def insert(db: Connection, grant: ExperimentGrant, series_ids: Sequence[int]) -> None:
    """Note series whose rows this transaction has deleted: their points are to be erased."""
    execute_binary(
        db,
        f"""
            INSERT INTO erased_series (experiment_id, workspace_id, series_id)
            SELECT e.experiment_id, e.workspace_id, series_id
            FROM {citus.insert_source(db)} AS e
            CROSS JOIN unnest(%(series_ids)s::bigint[]) AS u (series_id)
        """,  # noqa: S608 - a constant of ours
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "series_ids": encode_array("bigint", list(series_ids)),
        },
    )


def list_experiments(db: Connection, limit: int) -> list[tuple[WorkspaceId, ExperimentId]]:
    """Return at most `limit` experiments with series to erase, of all workspaces.

    In the transaction in which `experiment_deletion.list_due` was called.
    """
    rows = db.execute(
        text("SELECT DISTINCT workspace_id, experiment_id FROM erased_series LIMIT :limit"),
        {"limit": limit},
    )
    return [(WorkspaceId(row[0]), ExperimentId(row[1])) for row in rows]


def are_left(db: Connection, experiment_id: ExperimentId) -> bool:
    """Return whether series of an experiment are noted."""
    statement = text("SELECT FROM erased_series WHERE experiment_id = :id LIMIT 1")
    return db.execute(statement, {"id": experiment_id}).first() is not None


def erase_some(db: Connection, experiment_id: ExperimentId, rows_max: int) -> bool:
    """Delete at most about `rows_max` rows of noted series; return whether all of them are gone.

    Skips series that another transaction is erasing. Objects in S3 remain.
    """
    parameters = {"experiment_id": experiment_id, "limit": _SERIES_ITEMS_MAX}
    locked = text("""
        SELECT series_id FROM erased_series WHERE experiment_id = :experiment_id
        ORDER BY series_id LIMIT :limit FOR UPDATE SKIP LOCKED
    """)
    series_ids = list(db.execute(locked, parameters).scalars())
    if not series_ids:
        return True
    if not points.delete_some_points(db, experiment_id, series_ids, rows_max):
        return False
    done = text("""
        DELETE FROM erased_series WHERE experiment_id = :experiment_id
            AND series_id = ANY (CAST(:series_ids AS bigint[]))
    """)
    db.execute(
        done,
        {"experiment_id": experiment_id, "series_ids": encode_array("bigint", series_ids)},
    )
    return len(series_ids) < _SERIES_ITEMS_MAX
