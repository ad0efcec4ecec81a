"""Quotas of workspaces, as administrators read and change them, and counting again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth.workspaces import list_workspaces
from tbservice.db.database import Database
from tbservice.errors import NotFound, StartupError
from tbservice.experiments.usage import list_experiments_to_count, read_totals
from tbservice.ingest import charges
from tbservice.quotas import plans
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.types.grants import ExperimentGrant, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import QUOTA_NAMES, WorkspaceTotals


class QuotaDetails(NamedTuple):
    """Usage and limits of a workspace.

    `plan` is None for the default one; `own` has its limits that differ from the plan's, others are
    None; `plans` are the names of all.
    """

    plan: str | None
    own: Mapping[str, int | None]
    totals: WorkspaceTotals
    plans: tuple[str, ...]


def read_quota(database: Database, workspace: int) -> QuotaDetails:
    """Return what a workspace stores and may store. Raises NotFound."""
    workspace_id = _find_workspace(database, workspace)
    with database.transaction(workspace_id) as db:
        return describe_quota(db, workspace_id)


def describe_quota(db: Connection, workspace_id: WorkspaceId) -> QuotaDetails:
    """Return what a workspace stores and may store, in a transaction of it."""
    return QuotaDetails(
        *workspace_quotas.find_own(db, workspace_id),
        read_totals(db, WorkspaceGrant(workspace_id)),
        tuple(workspace_quotas.list_plans(db)),
    )


def change_quota(
    database: Database,
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


def recount(database: Database, workspace: int) -> int:
    """Count again all that a workspace stores; return the number of experiments."""
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
