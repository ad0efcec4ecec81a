"""Create and list workspaces, which separate tenants; for administrators of the service."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.store import workspaces
from tbservice.types import WorkspaceId


def create_workspace(db: Connection, name: str) -> WorkspaceId:
    """Create a workspace. Raises Invalid for a name that is empty or too long."""
    if not name or len(name) > limits.EXPERIMENT_NAME_CHARS_MAX or "\0" in name:
        raise Invalid(
            f"a workspace's name has 1 to {limits.EXPERIMENT_NAME_CHARS_MAX} characters, "
            "none of them NUL"
        )
    return workspaces.create(db, name)


def list_workspaces(db: Connection) -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace, the oldest first."""
    return workspaces.list_all(db)
