"""The file of plans: limits by the name of a plan, in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tbservice.errors import Invalid, StartupError
from tbservice.quotas import room
from tbservice.quotas.tables import usage_counters, workspace_quotas
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import QUOTA_MAX, QUOTA_NAMES, Quota


def read_plans(path: Path) -> dict[str, Quota]:
    """Return the plans of a file. Raises StartupError, which names the file and the mistake."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: _read_plan(name, limits) for name, limits in content.items()}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, Invalid) as error:
        raise StartupError(f"TBHUB_PLANS_FILE: {path}: {error}") from error


def store_plans(db: Connection, plans: Mapping[str, Quota]) -> bool:
    """Store the plans for all servers of the database; return whether that changed any."""
    if not usage_counters.exist(db):
        return False
    workspace_quotas.lock_plans(db)
    if workspace_quotas.list_plans(db) == plans:
        return False
    workspace_quotas.replace_plans(db, plans)
    return True


def set_quota(
    db: Connection,
    holder: WorkspaceId | UserId,
    plan: str | None,
    limits: Mapping[str, int | None],
) -> None:
    """Set plan and own limits of a workspace, or of a person's account.

    They hold from the commit on. A limit that is None is the plan's; QUOTA_MAX is no limit. Raises
    Invalid.
    """
    for name, limit in limits.items():
        if limit is not None:
            check_limit(name, limit)
    plans = workspace_quotas.list_plans(db)
    if plan is not None and plan not in plans:
        known = ", ".join(plans) or "there are none, TBHUB_PLANS_FILE is not set"
        raise Invalid(f"there is no plan {plan!r}: {known}")
    table = workspace_quotas.table_of(holder)
    table.lock(db, holder)
    table.put(db, holder, plan, limits)
    reset_parts(db, holder)


def reset_parts(db: Connection, holder: WorkspaceId | UserId) -> None:
    """Let all experiments look at the quota of a workspace or an account before they grow again."""
    if isinstance(holder, int):
        usage_counters.reset_maxima(db, holder)
        return
    for workspace_id in room.find_account_level(db, holder).visit(db):
        usage_counters.reset_maxima(db, workspace_id)


def move_workspace(db: Connection, workspace_id: WorkspaceId, account: UserId | None) -> None:
    """Move a workspace to another account, whose quota counts it from the commit on; None: to none.

    It may bring more than that has room for: what is stored stays.
    """
    workspace_quotas.WORKSPACES.lock(db, workspace_id)
    if account is not None:
        workspace_quotas.ACCOUNTS.lock(db, account)
    workspace_quotas.set_account(db, workspace_id, account)
    reset_parts(db, workspace_id if account is None else account)


def check_limit(name: str, limit: object) -> int:
    """Return the limit. Raises Invalid for anything but a whole number from 0 to QUOTA_MAX."""
    # A bool is an int in Python.
    if type(limit) is not int or not 0 <= limit <= QUOTA_MAX:
        raise Invalid(f"{name} = {limit!r}: a limit is a whole number from 0 to {QUOTA_MAX}")
    return limit


def _read_plan(name: str, limits: Any) -> Quota:
    if not isinstance(limits, dict):
        raise Invalid(f"{name!r} is no plan: write its limits below [{name}]")
    if unknown := limits.keys() - set(QUOTA_NAMES):
        raise Invalid(f"[{name}] {min(unknown)!r} is no limit: {', '.join(QUOTA_NAMES)}")
    return Quota(**{key: check_limit(f"[{name}] {key}", value) for key, value in limits.items()})
