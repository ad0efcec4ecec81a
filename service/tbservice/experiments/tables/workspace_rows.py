"""Delete the rows of a workspace whose experiments are gone."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from tbservice.quotas.tables import traffic_groups
from tbservice.types.identifiers import WorkspaceId

_KEYS: Final = {
    "experiment_words": "number, word",
    "saved_searches": "user_id, name",
    "saved_views": "view_id, version",
    "tokens": "token_id",
    "invitations": "invitation_id",
    "workspace_quotas": "workspace_id",
    "workspace_traffic": "month",
    "traffic_groups": "month, kind, key",
    "members": "user_id",
}
"""Tables and their keys within a workspace. Members last: until then it is known who they were.

What stays: the row of `workspaces`, without its name; its counter of blobs, and the blobs, until
sweeps have deleted them; and the audit log.
"""


def delete_some(db: Connection, workspace_id: WorkspaceId, rows_max: int) -> dict[str, int]:
    """Delete at most `rows_max` rows; return how many of each table: fewer in all if none is left.

    In a transaction of the workspace.
    """
    # For the tables of traffic, to which a worker adds later what it has counted.
    lock = text("SELECT 1 FROM workspaces WHERE workspace_id = :id FOR UPDATE")
    db.execute(lock, {"id": workspace_id})
    deleted: dict[str, int] = {}
    for table, key in _KEYS.items():
        if table == "traffic_groups" and not traffic_groups.exist(db):
            continue
        limit = rows_max - sum(deleted.values())
        # By key, not by place: every node of a cluster has a copy of its own of some tables.
        statement = text(f"""
            DELETE FROM {table} WHERE workspace_id = :workspace_id AND ({key}) IN (
                SELECT {key} FROM {table} WHERE workspace_id = :workspace_id
                ORDER BY {key} LIMIT :limit)
        """)  # noqa: S608 - constants above
        values = {"workspace_id": workspace_id, "limit": limit}
        deleted[table] = db.execute(statement, values).rowcount
    return deleted


def take_name(db: Connection, workspace_id: WorkspaceId) -> str:
    """Take the name of a workspace, as the last that is erased of it; return the name."""
    statement = text("SELECT name FROM workspaces WHERE workspace_id = :id")
    name: str = db.execute(statement, {"id": workspace_id}).scalar_one()
    db.execute(
        text("UPDATE workspaces SET name = '' WHERE workspace_id = :id"), {"id": workspace_id}
    )
    return name
