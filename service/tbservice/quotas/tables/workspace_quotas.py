"""Queries on `workspace_quotas` and `quota_plans`, and the rows that limits count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.pipeline import set_locals
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import QUOTA_NAMES, Quota

DEFAULT_PLAN: Final = "default"
"""The plan of the workspaces that are given none."""

_COLUMNS: Final = ", ".join(QUOTA_NAMES)
_PARAMETERS: Final = ", ".join(f":{name}" for name in QUOTA_NAMES)


def lock(db: Connection, workspace_id: WorkspaceId) -> None:
    """Make others wait who look whether there is room in the workspace, until the transaction ends.

    After the rows of experiments, before those of `usage_counters`: else deadlocks.
    """
    citus.lock_name(db, f"{workspace_id}/quota")


def lock_plans(db: Connection) -> None:
    """Make others wait who store plans, until the transaction ends."""
    citus.lock_name(db, "quota plans")


def find(db: Connection, workspace_id: WorkspaceId) -> Quota:
    """Return the limits of a workspace: its own, else those of its plan."""
    row = db.execute(
        text(f"""
            SELECT {", ".join(f"coalesce(q.{name}, p.{name}) AS {name}" for name in QUOTA_NAMES)}
            FROM (SELECT 1) AS always
            LEFT JOIN workspace_quotas AS q ON q.workspace_id = :workspace_id
            LEFT JOIN quota_plans AS p ON p.name = coalesce(
                (SELECT name FROM quota_plans WHERE name = q.plan), :default_plan)
        """),  # noqa: S608 - constants above
        {"workspace_id": workspace_id, "default_plan": DEFAULT_PLAN},
    ).one()
    return Quota.of(row._asdict())


def find_own(db: Connection, workspace_id: WorkspaceId) -> tuple[str | None, dict[str, int | None]]:
    """Return the plan that a workspace was given, and the limits that differ from its plan's."""
    statement = text(f"SELECT plan, {_COLUMNS} FROM workspace_quotas WHERE workspace_id = :id")  # noqa: S608 - a constant above
    row = db.execute(statement, {"id": workspace_id}).one_or_none()
    if row is None:
        return None, dict.fromkeys(QUOTA_NAMES)
    return row.plan, {name: getattr(row, name) for name in QUOTA_NAMES}


def put(
    db: Connection, workspace_id: WorkspaceId, plan: str | None, limits: Mapping[str, int | None]
) -> None:
    """Set plan and limits of a workspace; a limit that is None is the plan's."""
    db.execute(
        text(f"""
            INSERT INTO workspace_quotas (workspace_id, plan, {_COLUMNS})
            VALUES (:workspace_id, :plan, {_PARAMETERS})
            ON CONFLICT (workspace_id) DO UPDATE SET plan = excluded.plan,
                {", ".join(f"{name} = excluded.{name}" for name in QUOTA_NAMES)}
        """),  # noqa: S608 - constants above
        {"workspace_id": workspace_id, "plan": plan, **limits},
    )


def list_plans(db: Connection) -> dict[str, Quota]:
    """Return the plans by name."""
    rows = db.execute(text(f"SELECT name, {_COLUMNS} FROM quota_plans ORDER BY name"))  # noqa: S608 - a constant above
    return {row.name: Quota(*row[1:]) for row in rows}


def replace_plans(db: Connection, plans: Mapping[str, Quota]) -> None:
    """Store these plans, and no others."""
    db.execute(text("DELETE FROM quota_plans"))
    statement = text(f"INSERT INTO quota_plans (name, {_COLUMNS}) VALUES (:name, {_PARAMETERS})")  # noqa: S608 - constants above
    for name, quota in plans.items():
        db.execute(statement, {"name": name, **quota.as_dict()})


def count_experiments(db: Connection, workspace_id: WorkspaceId) -> int:
    """Count the experiments of a workspace, without frozen copies, with those to be restored."""
    set_locals(db, {"tbhub.shows_deleted": "on"})
    statement = text("""
        SELECT count(*) FROM experiments WHERE workspace_id = :id AND snapshot_of IS NULL
            AND (deleted_at IS NULL OR erase_at > now())
    """)
    count: int = db.execute(statement, {"id": workspace_id}).scalar_one()
    set_locals(db, {"tbhub.shows_deleted": "off"})
    return count


def count_members(db: Connection, workspace_id: WorkspaceId) -> int:
    """Count the members of a workspace."""
    statement = text("SELECT count(*) FROM members WHERE workspace_id = :id")
    count: int = db.execute(statement, {"id": workspace_id}).scalar_one()
    return count
