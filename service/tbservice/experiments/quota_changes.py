"""Quotas of workspaces and accounts, as administrators read and change them, and counting again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people
from tbservice.auth.workspaces import list_workspaces
from tbservice.db.database import Database
from tbservice.errors import NotFound, StartupError
from tbservice.experiments.usage import (
    list_experiments_to_count,
    read_account_totals,
    read_totals,
)
from tbservice.ingest import charges
from tbservice.quotas import plans, room
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.types.grants import ExperimentGrant, WorkspaceGrant
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import QUOTA_NAMES, UsageTotals


class QuotaDetails(NamedTuple):
    """Usage and limits of a workspace or an account.

    `plan` is None for the default one; `own` has its limits that differ from the plan's, others are
    None; `plans` are the names of all.
    """

    plan: str | None
    own: Mapping[str, int | None]
    totals: UsageTotals
    plans: tuple[str, ...]


def read_quota(database: Database, workspace: int) -> QuotaDetails:
    """Return what a workspace stores and may store. Raises NotFound."""
    workspace_id = _find_workspace(database, workspace)
    with database.transaction(workspace_id) as db:
        return describe_quota(db, workspace_id)


def describe_quota(db: Connection, workspace_id: WorkspaceId) -> QuotaDetails:
    """Return what a workspace stores and may store, in a transaction of it."""
    return QuotaDetails(
        *workspace_quotas.WORKSPACES.find_own(db, workspace_id),
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
        own_plan, own = _change(db, workspace_id, plan, limits, clears=clears)
        record(db, Act.QUOTA_SET, workspace_id, str(workspace_id), plan=own_plan, **own)


def read_account_quota(database: Database, named: str) -> QuotaDetails:
    """Return as `read_quota`, of all workspaces of a person's account together.

    Raises NotFound.
    """
    with _account(database, named) as (db, account):
        return QuotaDetails(
            *workspace_quotas.ACCOUNTS.find_own(db, account),
            read_account_totals(db, room.find_account_level(db, account)),
            tuple(workspace_quotas.list_plans(db)),
        )


def change_account_quota(
    database: Database,
    named: str,
    plan: str | None,
    limits: Mapping[str, int | None],
    *,
    clears: bool = False,
) -> None:
    """Change the plan of a person's account and these of its limits, as `change_quota`."""
    with _account(database, named) as (db, account):
        workspace_ids = workspace_quotas.list_of_account(db, account)
    for workspace_id in workspace_ids:
        _count_experiments(database, workspace_id, counts_all=False)
    with _account(database, named) as (db, account):
        own_plan, own = _change(db, account, plan, limits, clears=clears)
        record(db, Act.QUOTA_SET, None, account, plan=own_plan, **own)


def move_workspace(database: Database, workspace: int, named: str | None) -> None:
    """Move a workspace to the account of a person; None: to no account. Raises NotFound."""
    workspace_id = _find_workspace(database, workspace)
    with database.transaction(workspace_id) as db:
        _require_accounts(db)
        account = None if named is None else people.find_named(db, named).user_id
        plans.move_workspace(db, workspace_id, account)
        record(db, Act.WORKSPACE_ACCOUNT, workspace_id, str(workspace_id), account=account)


def recount(database: Database, workspace: int) -> int:
    """Count again all that a workspace stores; return the number of experiments."""
    return _count_experiments(database, _find_workspace(database, workspace), counts_all=True)


def _change(
    db: Connection,
    holder: WorkspaceId | UserId,
    plan: str | None,
    limits: Mapping[str, int | None],
    *,
    clears: bool,
) -> tuple[str | None, dict[str, int | None]]:
    """Change plan and limits as `change_quota`; return all that are set now."""
    table = workspace_quotas.table_of(holder)
    own_plan, own = table.find_own(db, holder)
    if clears:
        own_plan, own = None, dict.fromkeys(QUOTA_NAMES)
    if plan is not None:
        own_plan = None if plan == table.default_plan else plan
    own |= limits
    plans.set_quota(db, holder, own_plan, own)
    return own_plan, own


@contextmanager
def _account(database: Database, named: str) -> Iterator[tuple[Connection, UserId]]:
    """Open a transaction of no workspace, and find the person. Raises NotFound."""
    with database.transaction() as db:
        _require_accounts(db)
        yield db, people.find_named(db, named).user_id


def _require_accounts(db: Connection) -> None:
    if not workspace_quotas.accounts_exist(db):
        raise StartupError("the database has no quotas of accounts: run 'tbservice migrate'")


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
