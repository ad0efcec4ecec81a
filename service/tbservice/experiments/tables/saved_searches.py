"""Queries on `saved_searches`: lists of experiments that each person has given a name."""

from __future__ import annotations

from sqlalchemy import Connection, text

from tbservice.experiment_values import SavedSearch
from tbservice.types.identifiers import UserId, WorkspaceId


def put(db: Connection, workspace_id: WorkspaceId, user_id: UserId, saved: SavedSearch) -> None:
    """Save a search of a person, or replace the one of its name."""
    db.execute(
        text("""
            INSERT INTO saved_searches (workspace_id, user_id, name, query)
            VALUES (:workspace_id, :user_id, :name, :query)
            ON CONFLICT (workspace_id, user_id, name) DO UPDATE SET query = excluded.query
        """),
        {
            "workspace_id": workspace_id,
            "user_id": user_id,
            "name": saved.name,
            "query": saved.query,
        },
    )


def delete(db: Connection, workspace_id: WorkspaceId, user_id: UserId, name: str) -> None:
    """Delete a saved search; a no-op if there is none of this name."""
    statement = text("""
        DELETE FROM saved_searches
        WHERE workspace_id = :workspace_id AND user_id = :user_id AND name = :name
    """)
    db.execute(statement, {"workspace_id": workspace_id, "user_id": user_id, "name": name})


def list_all(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> list[SavedSearch]:
    """Return the saved searches of a person, by name."""
    statement = text("""
        SELECT name, query FROM saved_searches
        WHERE workspace_id = :workspace_id AND user_id = :user_id ORDER BY name
    """)
    rows = db.execute(statement, {"workspace_id": workspace_id, "user_id": user_id})
    return [SavedSearch(row.name, row.query) for row in rows]
