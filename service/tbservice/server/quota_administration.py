"""Functions of `tbservice workspace quota`, and of a server that starts with a file of plans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tbservice.audit.acting import begin_command
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth.workspaces import list_workspaces
from tbservice.db.database import Database
from tbservice.errors import NotFound, StartupError
from tbservice.experiments.usage import list_experiments_to_count, read_totals
from tbservice.ingest import charges
from tbservice.quotas import plans
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.server.administration import open_database
from tbservice.settings import Settings
from tbservice.types.grants import ExperimentGrant, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import QUOTA_NAMES, WorkspaceTotals


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
            workspace_quotas.lock(db, workspace_id)
            usage_counters.reset_maxima(db, workspace_id)


def read_quota(settings: Settings, workspace: int) -> tuple[str | None, WorkspaceTotals]:
    """Return the plan of a workspace, if it has one of its own, and what it stores and may store.

    Raises NotFound.
    """
    with open_database(settings) as database:
        workspace_id = _find_workspace(database, workspace)
        with database.transaction(workspace_id) as db:
            plan, _ = workspace_quotas.find_own(db, workspace_id)
            return plan, read_totals(db, WorkspaceGrant(workspace_id))


def change_quota(
    settings: Settings,
    workspace: int,
    plan: str | None,
    limits: Mapping[str, int | None],
    *,
    clears: bool = False,
) -> None:
    """Change a workspace's plan, unless it is None, and these of its limits.

    With `clears`, all of before goes first. First counts what was stored before the migration.
    Raises NotFound and Invalid.
    """
    with open_database(settings) as database:
        workspace_id = _find_workspace(database, workspace)
        _count_experiments(database, workspace_id, counts_all=False)
        with database.transaction(workspace_id) as db:
            own_plan, own = workspace_quotas.find_own(db, workspace_id)
            if clears:
                own_plan, own = None, dict.fromkeys(QUOTA_NAMES)
            if plan is not None and plan == workspace_quotas.DEFAULT_PLAN:
                own_plan = None
            elif plan is not None:
                own_plan = plan
            own |= limits
            plans.set_quota(db, workspace_id, own_plan, own)
            record(db, Act.QUOTA_SET, workspace_id, str(workspace_id), plan=own_plan, **own)


def recount(settings: Settings, workspace: int) -> int:
    """Count again all that a workspace stores; return the number of experiments."""
    with open_database(settings) as database:
        return _count_experiments(database, _find_workspace(database, workspace), counts_all=True)


def _find_workspace(database: Database, workspace: int) -> WorkspaceId:
    with database.transaction() as db:
        if not usage_counters.exist(db):
            raise StartupError("the database has no quotas yet: run 'tbservice migrate'")
        if workspace not in dict(list_workspaces(db)):
            raise NotFound(
                f"there is no workspace {workspace}: `tbservice workspace list` shows them"
            )
    return WorkspaceId(workspace)


def _count_experiments(database: Database, workspace_id: WorkspaceId, *, counts_all: bool) -> int:
    """Count experiments in one transaction each, which uploads to it wait for."""
    with database.transaction(workspace_id) as db:
        experiment_ids = list_experiments_to_count(db, workspace_id, counts_all=counts_all)
    for experiment_id in experiment_ids:
        with database.transaction(workspace_id) as db:
            charges.count_again(db, ExperimentGrant(workspace_id, experiment_id))
    if counts_all:
        with database.transaction(workspace_id) as db:
            usage_counters.recount_blobs(db, workspace_id)
    return len(experiment_ids)
