"""Queries on `workspaces`.

The row of one that was erased stays, without a name: its number is not used again, and the records
of its audit log and its objects in the bucket are found by it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, text

from tbservice.db.schema_parts import has_column
from tbservice.types.identifiers import UserId, WorkspaceId


def create(db: Connection, name: str, created_by: UserId | None = None) -> WorkspaceId:
    """Create a workspace and return its id. Names need not be unique.

    `created_by` is a person; None for an administrator of the service.
    """
    statement = text("INSERT INTO workspaces (name) VALUES (:name) RETURNING workspace_id")
    if created_by is not None and has_column(db, "workspaces", "created_by"):
        statement = text("""
            INSERT INTO workspaces (name, created_by) VALUES (:name, :created_by)
            RETURNING workspace_id
        """)
    values = {"name": name, "created_by": created_by}
    return WorkspaceId(db.execute(statement, values).scalar_one())


def find_creator(db: Connection, workspace_id: WorkspaceId) -> UserId | None:
    """Return the person who created a workspace; None if that is unknown."""
    # By way of JSON, which also works before the migration 0010.
    creator = "SELECT to_jsonb(w) ->> 'created_by' FROM workspaces AS w WHERE workspace_id = :id"
    return db.execute(text(creator), {"id": workspace_id}).scalar_one_or_none()


def list_all(db: Connection) -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace, oldest first; erased ones have no name."""
    rows = db.execute(text("SELECT workspace_id, name FROM workspaces ORDER BY workspace_id"))
    return [(WorkspaceId(row.workspace_id), row.name) for row in rows]


def list_with_ages(
    db: Connection, wanted: Collection[WorkspaceId] | None = None
) -> list[tuple[WorkspaceId, str, datetime]]:
    """Return id, name and time of creation of these workspaces, or of every one; no erased ones.

    The oldest are the first.
    """
    statement = text("""
        SELECT workspace_id, name, created_at FROM workspaces
        WHERE name <> '' AND (:is_all OR workspace_id = ANY (CAST(:wanted AS bigint[])))
        ORDER BY created_at, workspace_id
    """)
    values = {"is_all": wanted is None, "wanted": list(wanted or ())}
    return [(WorkspaceId(row[0]), row[1], row[2]) for row in db.execute(statement, values)]


def find_name(db: Connection, workspace_id: WorkspaceId) -> str | None:
    """Return the name of a workspace; None if there is none with this id, or it was erased."""
    statement = text("SELECT name FROM workspaces WHERE workspace_id = :id AND name <> ''")
    return db.execute(statement, {"id": workspace_id}).scalar_one_or_none()


def rename(db: Connection, workspace_id: WorkspaceId, name: str) -> None:
    """Set the name of a workspace. Idempotent."""
    statement = text("UPDATE workspaces SET name = :name WHERE workspace_id = :id")
    db.execute(statement, {"id": workspace_id, "name": name})


def find_expiry_days(db: Connection, workspace_id: WorkspaceId) -> int | None:
    """Return the days after which new experiments of a workspace expire; None: never."""
    # By way of JSON, which also works before the migration 0030.
    statement = text("""
        SELECT CAST(to_jsonb(w) ->> 'expires_days' AS integer) FROM workspaces AS w
        WHERE workspace_id = :id
    """)
    days: int | None = db.execute(statement, {"id": workspace_id}).scalar_one_or_none()
    return days


def set_expiry_days(db: Connection, workspace_id: WorkspaceId, days: int | None) -> bool:
    """Set what `find_expiry_days` returns; return False before the migration 0030. Idempotent."""
    if not has_column(db, "workspaces", "expires_days"):
        return False
    statement = text("UPDATE workspaces SET expires_days = :days WHERE workspace_id = :id")
    db.execute(statement, {"id": workspace_id, "days": days})
    return True
