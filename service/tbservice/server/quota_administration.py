"""Plans of a file, which a server stores when it starts."""

from __future__ import annotations

from pathlib import Path

from tbservice.audit.acting import begin_command
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth.workspaces import list_workspaces
from tbservice.db.database import Database
from tbservice.quotas import plans
from tbservice.quotas.tables import usage_counters, workspace_quotas


def apply_plans(database: Database, path: Path) -> None:
    """Store the plans of a file, if they are others than those of the database.

    What experiments were granted by the plans of before ends with it. Raises StartupError.
    """
    read = plans.read_plans(path)
    with database.transaction() as db:
        if not plans.store_plans(db, read):
            return
        begin_command("tbservice serve")
        record(db, Act.QUOTA_SET, None, str(path), plans=" ".join(read))
        workspaces = list_workspaces(db)
    for workspace_id, _ in workspaces:
        with database.transaction(workspace_id) as db:
            workspace_quotas.WORKSPACES.lock(db, workspace_id)
            usage_counters.reset_maxima(db, workspace_id)
