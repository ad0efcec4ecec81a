"""Queries on deleted experiments: hide, list, restore, find what to erase, and erase.

The row policies hide a deleted experiment from every statement that does not ask for deleted ones,
which only those here do.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.database import set_local
from tbservice.experiments.tables.experiments import (
    COLUMNS,
    COLUMNS_OF_E,
    make_experiment,
    show_deleted,
)
from tbservice.quotas.tables import usage_counters
from tbservice.series.tables import wing_tables
from tbservice.series.tables.points import POINT_TABLES
from tbservice.types.experiments import RESTORABLE, Experiment
from tbservice.types.identifiers import ExperimentId, WorkspaceId

SWEEP_LOCK: Final = "erase"
"""Name of the advisory lock of the process that erases."""

_TABLES: Final = (
    *POINT_TABLES,
    "upload_streams",
    "experiment_blobs",
    "tags",
    "runs",
    "deleted_runs",
)
"""The tables that may have very many rows of an experiment; the others are left to cascades.

Before them, `time_series` and the registered ones of wings.
"""


class DueExperiment(NamedTuple):
    """An experiment that is to be erased, or deleted because it has expired."""

    workspace_id: WorkspaceId
    experiment_id: ExperimentId
    is_expiring: bool


def hide(db: Connection, experiment_id: ExperimentId, kept: timedelta) -> Experiment | None:
    """Mark an experiment and its snapshots as deleted, to be erased so much later.

    Returns the experiment; None if it does not exist, or was deleted before.
    """
    with show_deleted(db):
        rows = db.execute(
            text(f"""
                UPDATE experiments SET deleted_at = now(), updated_at = now(), is_listed = false,
                    erase_at = now() + :kept
                WHERE deleted_at IS NULL
                    AND (experiment_id = :experiment_id OR snapshot_of = :experiment_id)
                RETURNING {COLUMNS}, workspace_id
            """),  # noqa: S608 - a constant above
            {"experiment_id": experiment_id, "kept": kept},
        ).all()
    if not kept and usage_counters.exist(db):
        for row in rows:  # nobody can restore them
            usage_counters.release(db, row.workspace_id, row.experiment_id)
    hidden = [make_experiment(row) for row in rows]
    return next((each for each in hidden if each.experiment_id == experiment_id), None)


def hide_late_snapshots(db: Connection, experiment_id: ExperimentId) -> bool:
    """Hide the snapshots that a deleted experiment still has, to be erased soon; was there one?

    They were committed after its deletion. Waits for who deletes or restores it.
    """
    source = text("SELECT deleted_at FROM experiments WHERE experiment_id = :id FOR SHARE")
    late = text("""
        UPDATE experiments SET deleted_at = now(), updated_at = now(), erase_at = now()
        WHERE snapshot_of = :id AND deleted_at IS NULL
        RETURNING workspace_id, experiment_id
    """)
    with show_deleted(db):
        row = db.execute(source, {"id": experiment_id}).one_or_none()
        if row is not None and row.deleted_at is None:
            return False
        rows = db.execute(late, {"id": experiment_id}).all()
    if usage_counters.exist(db):
        for each in rows:
            usage_counters.release(db, each.workspace_id, each.experiment_id)
    return bool(rows)


def restore(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId
) -> Experiment | None:
    """Undo the deletion of an experiment, and of the snapshots that were deleted with it.

    Returns None if the workspace has no such experiment that is deleted and not due to be erased.
    """
    with show_deleted(db):
        rows = db.execute(
            text(f"""
                -- Evaluated once. A sub-select may be evaluated for each row, and after the update
                -- of the source finds nothing to lock: its snapshots would stay deleted.
                WITH source AS MATERIALIZED (
                    SELECT experiment_id, deleted_at FROM experiments
                    WHERE workspace_id = :workspace_id AND experiment_id = :experiment_id
                        AND erase_at > now()
                    FOR UPDATE
                )
                UPDATE experiments AS e SET deleted_at = NULL, erase_at = NULL, updated_at = now(),
                    is_listed = (e.snapshot_of IS NULL)
                FROM source
                WHERE e.deleted_at = source.deleted_at
                    AND (e.experiment_id = source.experiment_id
                        OR e.snapshot_of = source.experiment_id)
                RETURNING {COLUMNS_OF_E}
            """),  # noqa: S608 - a constant above
            {"workspace_id": workspace_id, "experiment_id": experiment_id},
        ).all()
    restored = [make_experiment(row) for row in rows]
    return next((each for each in restored if each.experiment_id == experiment_id), None)


def list_page(
    db: Connection, workspace_id: WorkspaceId, after: tuple[datetime, str] | None, limit: int
) -> list[Experiment]:
    """Return one page of the deleted experiments that can be restored, the last deleted first.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        after: (deleted_at, id) of the previous page's last experiment; None for the first page.
        limit: Experiments at most.
    """
    with show_deleted(db):
        rows = db.execute(
            text(f"""
                SELECT {COLUMNS} FROM experiments
                WHERE workspace_id = :workspace_id AND deleted_at IS NOT NULL
                    AND snapshot_of IS NULL AND erase_at > now()
                    AND (CAST(:deleted_at AS timestamptz) IS NULL
                        OR (deleted_at, experiment_id) < (:deleted_at, :experiment_id))
                ORDER BY deleted_at DESC, experiment_id DESC LIMIT :limit
            """),  # noqa: S608 - a constant above
            {
                "workspace_id": workspace_id,
                "deleted_at": after[0] if after else None,
                "experiment_id": after[1] if after else "",
                "limit": limit,
            },
        )
        return [make_experiment(row) for row in rows]


def try_lock_sweep(db: Connection) -> bool:
    """Lock the erasing until the transaction ends; return False when another process holds it."""
    return citus.try_lock_name(db, SWEEP_LOCK)


def list_due(db: Connection, limit: int) -> list[DueExperiment]:
    """Return at most `limit` experiments that are to be erased or expire by now, of all workspaces.

    One that expires has not been deleted, and is erased `RESTORABLE` later.
    """
    until = db.execute(text("SELECT (now() + :kept)::text"), {"kept": RESTORABLE}).scalar_one()
    set_local(db, "erase_before", until)
    rows = db.execute(
        text("""
            SELECT workspace_id, experiment_id, deleted_at IS NULL AND snapshot_of IS NULL
            FROM experiments
            WHERE erase_at < now() + :kept
                AND (erase_at < now() OR (deleted_at IS NULL AND snapshot_of IS NULL))
            ORDER BY erase_at LIMIT :limit
        """),
        {"kept": RESTORABLE, "limit": limit},
    )
    return [DueExperiment(WorkspaceId(row[0]), ExperimentId(row[1]), row[2]) for row in rows]


def claim(db: Connection, experiment_id: ExperimentId, *, is_due: bool = False) -> bool | None:
    """Let nobody restore an experiment that is to be erased by now, or `is_due` in any case.

    Waits for who restores it. Who waits for this comes too late, whenever its transaction began:
    the row has changed, to a time before all of them. Returns None if it was restored or is gone;
    else whether this is the first claim, so that nothing of it was erased before.
    """
    found = text("""
        SELECT erase_at < now() AS is_due, coalesce(erase_at > to_timestamp(0), true) AS is_first
        FROM experiments WHERE experiment_id = :experiment_id FOR UPDATE
    """)
    claimed = text("""
        UPDATE experiments SET erase_at = to_timestamp(0) WHERE experiment_id = :experiment_id
    """)
    with show_deleted(db):
        row = db.execute(found, {"experiment_id": experiment_id}).one_or_none()
        if row is None or not (is_due or row.is_due):
            return None
        db.execute(claimed, {"experiment_id": experiment_id})
    return bool(row.is_first)


def has_expired(db: Connection, experiment_id: ExperimentId) -> bool:
    """Return whether an experiment that is not deleted has expired; its row is locked then."""
    statement = text("""
        SELECT FROM experiments
        WHERE experiment_id = :experiment_id AND deleted_at IS NULL AND erase_at < now() + :kept
        FOR UPDATE
    """)
    parameters = {"experiment_id": experiment_id, "kept": RESTORABLE}
    return db.execute(statement, parameters).one_or_none() is not None


def postpone_expiry(db: Connection, experiment_id: ExperimentId) -> bool:
    """Let an experiment expire a day from now if it is in use; return whether it is.

    It has a snapshot, or data arrived within the last day.
    """
    snapshots = text("""
        SELECT FROM experiments WHERE snapshot_of = :experiment_id AND deleted_at IS NULL LIMIT 1
    """)
    statement = text("""
        UPDATE experiments SET erase_at = now() + :kept + interval '1 day'
        WHERE experiment_id = :experiment_id
            AND (:has_snapshots OR (version > 0 AND data_at > now() - interval '1 day'))
    """)
    has_snapshots = db.execute(snapshots, {"experiment_id": experiment_id}).first() is not None
    parameters = {
        "experiment_id": experiment_id,
        "kept": RESTORABLE,
        "has_snapshots": has_snapshots,
    }
    return db.execute(statement, parameters).rowcount > 0


def list_snapshots(db: Connection, experiment_id: ExperimentId) -> list[ExperimentId]:
    """Return the snapshots of a deleted experiment, which are deleted too."""
    with show_deleted(db):
        rows = db.execute(
            text("""
                SELECT experiment_id FROM experiments
                WHERE snapshot_of = :id AND experiment_id <> :id
            """),
            {"id": experiment_id},
        )
        return [ExperimentId(row.experiment_id) for row in rows]


def list_of_workspace(db: Connection, workspace_id: WorkspaceId, limit: int) -> list[ExperimentId]:
    """Return at most `limit` experiments of a workspace, deleted or not.

    Without snapshots, but those that have outlasted their source.
    """
    with show_deleted(db):
        rows = db.execute(
            text("""
                SELECT experiment_id FROM experiments
                WHERE workspace_id = :workspace_id
                    AND (snapshot_of IS NULL OR snapshot_of = experiment_id)
                LIMIT :limit
            """),
            {"workspace_id": workspace_id, "limit": limit},
        )
        return [ExperimentId(row.experiment_id) for row in rows]


def erase_some(db: Connection, experiment_id: ExperimentId, rows_max: int) -> int:
    """Delete at most `rows_max` rows of a deleted experiment; return how many: fewer if all.

    But that of the experiment itself. In a transaction of its workspace, whose commit need not
    reach the disk: what a crash brings back is deleted again. Objects in S3 remain.
    """
    db.execute(text("SET LOCAL synchronous_commit = off"))
    rows_left = rows_max
    # Series first: compaction locks their rows, and finds none of those that were deleted.
    for table in ("time_series", *wing_tables.list_tables(), *_TABLES):
        statement = text(f"""
            DELETE FROM {table} WHERE experiment_id = :id AND ctid = ANY (ARRAY(
                SELECT ctid FROM {table} WHERE experiment_id = :id LIMIT :limit))
        """)  # noqa: S608 - a constant above
        rows_left -= db.execute(statement, {"id": experiment_id, "limit": rows_left}).rowcount
        if rows_left <= 0:
            break
    return rows_max - rows_left


def forget(db: Connection, experiment_id: ExperimentId) -> Experiment | None:
    """Delete the row of a deleted experiment whose others are gone; return what it was.

    None if it is a snapshot whose source is there, or gone.
    """
    if usage_counters.exist(db):
        _release(db, experiment_id)
    # On plain PostgreSQL a cascade would do it. Citus has none to a table that all nodes have.
    db.execute(text("DELETE FROM tokens WHERE experiment_id = :id"), {"id": experiment_id})
    with show_deleted(db):
        row = db.execute(
            text(f"""
                DELETE FROM experiments WHERE experiment_id = :id AND deleted_at IS NOT NULL
                RETURNING {COLUMNS},
                    coalesce(snapshot_of <> experiment_id, false) AS is_snapshot
            """),  # noqa: S608 - a constant above
            {"id": experiment_id},
        ).one_or_none()
    return None if row is None or row.is_snapshot else make_experiment(row)


def _release(db: Connection, experiment_id: ExperimentId) -> None:
    """Let an experiment that is erased count no longer, unless it was released when deleted."""
    with show_deleted(db):
        statement = text("SELECT workspace_id FROM experiments WHERE experiment_id = :id")
        workspace_id = db.execute(statement, {"id": experiment_id}).scalar()
    if workspace_id is not None:
        usage_counters.release(db, WorkspaceId(workspace_id), experiment_id)
