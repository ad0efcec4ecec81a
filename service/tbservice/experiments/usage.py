"""Usage of a workspace: how much it stores."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.experiments.tables import workspace_usage
from tbservice.types.experiments import WorkspaceUsage
from tbservice.types.grants import WorkspaceGrant

_LARGEST: Final = 10


def read_usage(db: Connection, grant: WorkspaceGrant) -> WorkspaceUsage:
    """Return what the workspace stores; `grant` is for the scope read.

    Deleted experiments do not count; blobs do until they are erased.
    """
    return workspace_usage.read(db, grant.workspace_id, _LARGEST)
