"""Queries on `saved_views`: versions of views of the runs of a workspace."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import UserId, WorkspaceId


@dataclass(frozen=True, slots=True)
class ViewVersion:
    """A version of a view: `query` is that of the address of `page`, which is runs or compare."""

    view_id: str
    version: int
    name: str
    page: str
    query: str
    saved_by: UserId | None = None
    saved_at: datetime | None = None


_COLUMNS: Final = ", ".join(field.name for field in fields(ViewVersion))


def exist(db: Connection) -> bool:
    """Return whether the schema has views, which a migration may add."""
    return has_table(db, "saved_views")


def insert(db: Connection, workspace_id: WorkspaceId, view: ViewVersion) -> bool:
    """Insert the last version of a view; return False if another view has the name."""
    try:
        with db.begin_nested():
            db.execute(
                text("""
                    INSERT INTO saved_views (workspace_id, view_id, version, name, page, query,
                        saved_by, is_current)
                    VALUES (:workspace_id, :view_id, :version, :name, :page, :query, :saved_by,
                        true)
                """),
                {
                    "workspace_id": workspace_id,
                    "view_id": view.view_id,
                    "version": view.version,
                    "name": view.name,
                    "page": view.page,
                    "query": view.query,
                    "saved_by": view.saved_by,
                },
            )
    except IntegrityError:
        return False
    return True


def supersede(db: Connection, workspace_id: WorkspaceId, view_id: str) -> ViewVersion | None:
    """Return the last version, which is no longer the last; None if there is no such view.

    Locks its row: of two transactions, the second finds none.
    """
    statement = text(f"""
        UPDATE saved_views SET is_current = false
        WHERE workspace_id = :workspace_id AND view_id = :view_id AND is_current
        RETURNING {_COLUMNS}
    """)  # noqa: S608 - a constant above
    row = db.execute(statement, {"workspace_id": workspace_id, "view_id": view_id}).one_or_none()
    return None if row is None else ViewVersion(*row)


def delete_until(db: Connection, workspace_id: WorkspaceId, view_id: str, version: int) -> int:
    """Delete versions up to this one; return how many there were."""
    statement = text("""
        DELETE FROM saved_views
        WHERE workspace_id = :workspace_id AND view_id = :view_id AND version <= :version
    """)
    return db.execute(
        statement, {"workspace_id": workspace_id, "view_id": view_id, "version": version}
    ).rowcount


def list_current(db: Connection, workspace_id: WorkspaceId) -> list[ViewVersion]:
    """Return the last version of each view of a workspace, by name."""
    statement = text(f"""
        SELECT {_COLUMNS} FROM saved_views
        WHERE workspace_id = :workspace_id AND is_current ORDER BY name
    """)  # noqa: S608 - a constant above
    rows = db.execute(statement, {"workspace_id": workspace_id})
    return [ViewVersion(*row) for row in rows]


def list_versions(db: Connection, workspace_id: WorkspaceId, view_id: str) -> list[ViewVersion]:
    """Return the versions of a view, the last one first."""
    statement = text(f"""
        SELECT {_COLUMNS} FROM saved_views
        WHERE workspace_id = :workspace_id AND view_id = :view_id ORDER BY version DESC
    """)  # noqa: S608 - a constant above
    rows = db.execute(statement, {"workspace_id": workspace_id, "view_id": view_id})
    return [ViewVersion(*row) for row in rows]
