"""Queries on `workspace_traffic`: requests and exported bytes of a workspace, by month."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import Traffic

_MONTH: Final = "date_trunc('month', now() AT TIME ZONE 'UTC')"


class Month(NamedTuple):
    """The present month in UTC, by the clock of PostgreSQL.

    `seconds` are those of all of it, `seconds_left` those until `ends_at`.
    """

    ends_at: datetime
    seconds: int
    seconds_left: float


def exist(db: Connection) -> bool:
    """Return whether the schema has the table; a migration may add it meanwhile."""
    return has_table(db, "workspace_traffic")


def lock_workspace(db: Connection, workspace_id: WorkspaceId) -> bool:
    """Keep a workspace from being erased until the transaction ends; False if it was erased."""
    statement = text("SELECT 1 FROM workspaces WHERE workspace_id = :id AND name <> '' FOR SHARE")
    return db.execute(statement, {"id": workspace_id}).first() is not None


def add(db: Connection, workspace_id: WorkspaceId, added: Traffic) -> Traffic:
    """Add to what a workspace has in this month; return the sum."""
    row = db.execute(
        text(f"""
            INSERT INTO workspace_traffic AS t
                (workspace_id, month, requests, export_bytes, last_at)
            VALUES (:workspace_id, {_MONTH}, :requests, :export_bytes, now())
            ON CONFLICT (workspace_id, month) DO UPDATE SET
                requests = t.requests + excluded.requests,
                export_bytes = t.export_bytes + excluded.export_bytes,
                last_at = excluded.last_at
            RETURNING requests, export_bytes
        """),  # noqa: S608 - a constant
        {"workspace_id": workspace_id, **added._asdict()},
    ).one()
    return Traffic(*row)


def read_month(db: Connection) -> Month:
    """Return the present month."""
    row = db.execute(
        text(f"""
            SELECT ends_at, extract(epoch FROM ends_at - begins_at)::int,
                extract(epoch FROM ends_at - now())::float8
            FROM (SELECT {_MONTH} AT TIME ZONE 'UTC' AS begins_at,
                ({_MONTH} + interval '1 month') AT TIME ZONE 'UTC' AS ends_at) AS m
        """)  # noqa: S608 - a constant
    ).one()
    return Month(row[0].astimezone(UTC), *row[1:])


def find_present(db: Connection, workspace_id: WorkspaceId) -> Traffic:
    """Return what a workspace has in this month; nothing before the migration."""
    if not exist(db):
        return Traffic()
    row = db.execute(
        text(f"""
            SELECT requests, export_bytes FROM workspace_traffic
            WHERE workspace_id = :workspace_id AND month = {_MONTH}
        """),  # noqa: S608 - a constant
        {"workspace_id": workspace_id},
    ).one_or_none()
    return Traffic() if row is None else Traffic(*row)


def find_last_use(db: Connection, workspace_id: WorkspaceId) -> datetime | None:
    """Return when a workspace had its last request; None if it had none, or before the migration.

    Some seconds late.
    """
    if not exist(db):
        return None
    statement = text("SELECT max(last_at) FROM workspace_traffic WHERE workspace_id = :id")
    last_at: datetime | None = db.execute(statement, {"id": workspace_id}).scalar_one()
    return last_at


def list_months(db: Connection, workspace_id: WorkspaceId) -> list[tuple[str, Traffic]]:
    """Return the months of a workspace as "YYYY-MM", the latest first."""
    if not exist(db):
        return []
    rows = db.execute(
        text("""
            SELECT to_char(month, 'YYYY-MM'), requests, export_bytes FROM workspace_traffic
            WHERE workspace_id = :workspace_id ORDER BY month DESC
        """),
        {"workspace_id": workspace_id},
    )
    return [(month, Traffic(*counts)) for month, *counts in rows]
