"""Queries on what is left to merge in the database, for a service that has just started."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from tbservice.store.pg.pipeline import fetch_binary
from tbservice.types import ExperimentId

_SEARCH_LOCK_ID: Final = 8_317_446_904
"""Number of the advisory lock of the process that searches; any number nobody else uses."""


def try_lock_search(db: Connection) -> bool:
    """Take the right to search, until the transaction ends; False when another process has it."""
    locked: bool = db.execute(
        text("SELECT pg_try_advisory_xact_lock(:number)"), {"number": _SEARCH_LOCK_ID}
    ).scalar_one()
    return locked


def list_backlog_runs(
    db: Connection,
    experiment_id: ExperimentId,
    idle_threshold: tuple[int, int],
    threshold: tuple[int, int],
) -> list[tuple[int, bool]]:
    """Return the ids of the experiment's runs with a series to merge, and whether one of them is due.

    Args:
        db: A transaction that sees the experiment's workspace.
        experiment_id: The experiment, whose series are all looked at: by the key's index, in no other order.
        idle_threshold: Rows and points in a series' tail, either of which is enough to be merged when its run is at rest.
        threshold: The same, for a merge that is due.
    """
    rows = fetch_binary(
        db,
        """
            SELECT run_id, bool_or(tail_rows >= %(due_rows)s OR tail_points >= %(due_points)s) FROM time_series
            WHERE experiment_id = %(experiment_id)s AND (tail_rows >= %(rows_min)s OR tail_points >= %(points_min)s)
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
