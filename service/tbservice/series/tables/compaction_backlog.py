"""Queries for the compaction that another process left undone."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.pipeline import fetch_binary
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_SEARCH_LOCK_ID: Final = 8_317_446_904
"""Number of the advisory lock of the searching process: arbitrary."""


def try_lock_search(db: Connection) -> bool:
    """Lock the search until the transaction ends; return False when another process holds it."""
    locked: bool = db.execute(
        text("SELECT pg_try_advisory_xact_lock(:number)"), {"number": _SEARCH_LOCK_ID}
    ).scalar_one()
    return locked


def list_written(
    db: Connection, workspace_id: WorkspaceId, after: tuple[datetime, str], limit: int
) -> list[tuple[datetime, ExperimentId]]:
    """Return (time of the last data, id) of experiments whose data are later than `after`.

    In this order. The time is up to a minute early.
    """
    rows = db.execute(
        text("""
            SELECT data_at, experiment_id FROM experiments
            WHERE workspace_id = :workspace_id
                AND (data_at, experiment_id) > (CAST(:data_at AS timestamptz), :experiment_id)
            ORDER BY data_at, experiment_id LIMIT :limit
        """),
        {
            "workspace_id": workspace_id,
            "data_at": after[0],
            "experiment_id": after[1],
            "limit": limit,
        },
    )
    return [(row.data_at, ExperimentId(row.experiment_id)) for row in rows]


def list_backlog_runs(
    db: Connection,
    experiment_id: ExperimentId,
    idle_threshold: tuple[int, int],
    threshold: tuple[int, int],
) -> list[tuple[int, bool]]:
    """Return (run id, is above `threshold`) of the experiment's runs with a series to compact.

    Reads all series of the experiment.

    Args:
        db: A transaction of the experiment's workspace.
        experiment_id: The experiment.
        idle_threshold: Rows in the write buffer, and uncompacted points. A series of an idle run
            is compacted from either on.
        threshold: The same, for a run that is not idle.
    """
    rows = fetch_binary(
        db,
        """
            SELECT run_id, bool_or(tail_rows >= %(due_rows)s OR tail_points >= %(due_points)s)
            FROM time_series
            WHERE experiment_id = %(experiment_id)s
                AND (tail_rows >= %(rows_min)s OR tail_points >= %(points_min)s)
            GROUP BY run_id
        """,
        {
            "experiment_id": experiment_id,
            "rows_min": idle_threshold[0],
            "points_min": idle_threshold[1],
            "due_rows": threshold[0],
            "due_points": threshold[1],
        },
    )
    return [(run_id, is_due) for run_id, is_due in rows]
