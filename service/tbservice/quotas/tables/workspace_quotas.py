"""Queries on tables of quotas and `quota_plans`, accounts, and the rows that limits count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary, set_locals
from tbservice.db.schema_parts import has_column, has_table
from tbservice.errors import StartupError
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import MONTHLY, QUOTA_NAMES, Quota

_BEFORE_TRAFFIC: Final = tuple(name for name in QUOTA_NAMES if name not in MONTHLY)


def list_limits(db: Connection) -> tuple[str, ...]:
    """Return the limits that the schema has columns for; a migration may add some meanwhile."""
    return QUOTA_NAMES if has_column(db, "quota_plans", "requests") else _BEFORE_TRAFFIC


def _require_limits(db: Connection, limits: Mapping[str, int | None]) -> tuple[str, ...]:
    """Return what `list_limits` does; raise StartupError if it lacks one that is set."""
    names = list_limits(db)
    if any(limit is not None for name, limit in limits.items() if name not in names):
        raise StartupError("the database has no quotas of traffic: run 'tbservice migrate'")
    return names


@dataclass(frozen=True, slots=True)
class QuotaTable:
    """A table of plans and limits, one row for each who has some of their own."""

    name: str
    key: str
    default_plan: str
    """The plan of those who are given none."""

    def lock(self, db: Connection, key: int | str) -> None:
        """Make others wait who look whether there is room, until the transaction ends.

        After the rows of experiments, before those of `usage_counters`, workspaces before accounts:
        else deadlocks.
        """
        citus.lock_name(db, f"{key}/quota")

    def find(self, db: Connection, key: int | str) -> Quota:
        """Return the limits: the own ones, else those of the plan."""
        names = list_limits(db)
        effective = ", ".join(f"coalesce(q.{name}, p.{name})" for name in names)
        (row,) = fetch_binary(
            db,
            f"""
                SELECT {effective}
                FROM (SELECT 1) AS always
                LEFT JOIN {self.name} AS q ON q.{self.key} = %(key)s
                LEFT JOIN quota_plans AS p ON p.name = coalesce(
                    (SELECT name FROM quota_plans WHERE name = q.plan), %(default_plan)s)
            """,  # noqa: S608 - constants
            {"key": key, "default_plan": self.default_plan},
        )
        return Quota.of(dict(zip(names, row, strict=True)))

    def find_own(self, db: Connection, key: int | str) -> tuple[str | None, dict[str, int | None]]:
        """Return the plan that was given, and the limits that differ from its plan's."""
        columns = ", ".join(list_limits(db))
        statement = text(f"SELECT plan, {columns} FROM {self.name} WHERE {self.key} = :key")  # noqa: S608 - constants
        row = db.execute(statement, {"key": key}).one_or_none()
        if row is None:
            return None, dict.fromkeys(QUOTA_NAMES)
        return row.plan, {name: getattr(row, name, None) for name in QUOTA_NAMES}

    def put(
        self, db: Connection, key: int | str, plan: str | None, limits: Mapping[str, int | None]
    ) -> None:
        """Set plan and limits; a limit that is None is the plan's. Raises StartupError."""
        names = _require_limits(db, limits)
        db.execute(
            text(f"""
                INSERT INTO {self.name} ({self.key}, plan, {", ".join(names)})
                VALUES (:key, :plan, {", ".join(f":{name}" for name in names)})
                ON CONFLICT ({self.key}) DO UPDATE SET plan = excluded.plan,
                    {", ".join(f"{name} = excluded.{name}" for name in names)}
            """),  # noqa: S608 - constants
            {"key": key, "plan": plan, **{name: limits[name] for name in names}},
        )


WORKSPACES: Final = QuotaTable("workspace_quotas", "workspace_id", "default")
ACCOUNTS: Final = QuotaTable("account_quotas", "account", "account")


def table_of(holder: WorkspaceId | UserId) -> QuotaTable:
    """Return the table of the quotas of workspaces, or of accounts."""
    return WORKSPACES if isinstance(holder, int) else ACCOUNTS


def lock_plans(db: Connection) -> None:
    """Make others wait who store plans, until the transaction ends."""
    citus.lock_name(db, "quota plans")


def accounts_exist(db: Connection) -> bool:
    """Return whether the schema has quotas of accounts; a migration may add them meanwhile."""
    return has_table(db, "account_quotas")


def find_account(db: Connection, workspace_id: WorkspaceId) -> UserId | None:
    """Return the person to whose account a workspace belongs; None: it is of no account.

    None also before the migration 0028, without which accounts have no quotas.
    """
    if not accounts_exist(db):
        return None
    query = "SELECT created_by FROM workspaces WHERE workspace_id = %(id)s"
    rows = fetch_binary(db, query, {"id": workspace_id})
    return UserId(rows[0][0]) if rows and rows[0][0] is not None else None


def set_account(db: Connection, workspace_id: WorkspaceId, account: UserId | None) -> None:
    """Move a workspace to another account, or to none."""
    statement = text("UPDATE workspaces SET created_by = :account WHERE workspace_id = :id")
    db.execute(statement, {"id": workspace_id, "account": account})


def list_of_account(db: Connection, account: UserId) -> list[WorkspaceId]:
    """Return the workspaces of an account, with deleted ones that are not erased yet."""
    query = """
        SELECT workspace_id FROM workspaces WHERE created_by = %(account)s AND name <> ''
        ORDER BY workspace_id
    """
    return [WorkspaceId(each) for (each,) in fetch_binary(db, query, {"account": account})]


def list_plans(db: Connection) -> dict[str, Quota]:
    """Return the plans by name."""
    limits = list_limits(db)
    rows = db.execute(text(f"SELECT name, {', '.join(limits)} FROM quota_plans ORDER BY name"))  # noqa: S608 - constants
    return {row.name: Quota(**dict(zip(limits, row[1:], strict=True))) for row in rows}


def replace_plans(db: Connection, plans: Mapping[str, Quota]) -> None:
    """Store these plans, and no others. Raises StartupError."""
    db.execute(text("DELETE FROM quota_plans"))
    for name, quota in plans.items():
        limits = quota.as_dict()
        names = _require_limits(db, limits)
        parameters = ", ".join(f":{each}" for each in names)
        statement = text(
            f"INSERT INTO quota_plans (name, {', '.join(names)}) VALUES (:name, {parameters})"  # noqa: S608 - constants
        )
        db.execute(statement, {"name": name, **{each: limits[each] for each in names}})


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
