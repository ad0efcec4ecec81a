"""Queries on `workspaces`."""

from __future__ import annotations

from sqlalchemy import Connection, text

from tbservice.types import WorkspaceId


def create(db: Connection, name: str) -> WorkspaceId:
    """Create a workspace and return its id. Names need not be unique."""
    statement = text("INSERT INTO workspaces (name) VALUES (:name) RETURNING workspace_id")
    return WorkspaceId(db.execute(statement, {"name": name}).scalar_one())


def list_all(db: Connection) -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace, oldest first."""
    rows = db.execute(text("SELECT workspace_id, name FROM workspaces ORDER BY workspace_id"))
    return [(WorkspaceId(row.workspace_id), row.name) for row in rows]


def find_name(db: Connection, workspace_id: WorkspaceId) -> str | None:
    """Return the name of a workspace; None if there is none with this id."""
    statement = text("SELECT name FROM workspaces WHERE workspace_id = :id")
    return db.execute(statement, {"id": workspace_id}).scalar_one_or_none()


def rename(db: Connection, workspace_id: WorkspaceId, name: str) -> None:
    """Set the name of a workspace. Idempotent."""
    statement = text("UPDATE workspaces SET name = :name WHERE workspace_id = :id")
    db.execute(statement, {"id": workspace_id, "name": name})
