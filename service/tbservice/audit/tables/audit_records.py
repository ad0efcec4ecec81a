"""Queries on `audit_records` and `audit_chains`: what is recorded, and the end of each chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.pipeline import (
    execute_binary,
    fetch_binary,
    pipeline,
    pipeline_with_rls,
    query_with_rls,
    set_locals,
)
from tbservice.db.schema_parts import has_table
from tbservice.types.audit import FIRST_DIGEST, AuditFilter, AuditRecord, ChainHead
from tbservice.types.identifiers import INT64_MAX

_COLUMNS: Final = ", ".join(AuditRecord._fields)
_VALUES: Final = ", ".join(f"%({name})s" for name in AuditRecord._fields)


def exist(db: Connection) -> bool:
    """Return whether the schema has the audit log; a migration may add it meanwhile."""
    return has_table(db, "audit_records")


def lock_chain(db: Connection, workspace_id: int) -> tuple[ChainHead, datetime]:
    """Lock the end of a chain until the transaction ends; return it, and the time under the lock.

    The transaction is READ COMMITTED: another would not see what was recorded since it began. The
    rest of it sees the rows of this workspace; 0: of none.
    """
    with pipeline_with_rls(db, {"workspace_id": str(workspace_id)}):
        locked = execute_binary(
            db,
            """
                INSERT INTO audit_chains (workspace_id, last_number, last_digest, day, day_items)
                VALUES (%(workspace_id)s, 0, %(digest)s, 0, 0)
                ON CONFLICT (workspace_id) DO UPDATE SET last_number = audit_chains.last_number
                RETURNING last_number, last_digest, day, day_items
            """,
            {"workspace_id": workspace_id, "digest": FIRST_DIGEST},
        )
        # Not now(), which is when the transaction began: later records have later times.
        clock = execute_binary(db, "SELECT clock_timestamp()", {})
    ((now,),) = clock.rows()
    return ChainHead(*locked.rows()[0]), now


def append(
    db: Connection, workspace_id: int, records: Sequence[AuditRecord], head: ChainHead
) -> None:
    """Insert records at the end of a chain that is locked, and move its end to `head`."""
    with pipeline(db):
        for record in records:
            execute_binary(
                db,
                f"INSERT INTO audit_records (workspace_id, {_COLUMNS}) "  # noqa: S608 - constants
                f"VALUES (%(workspace_id)s, {_VALUES})",
                {"workspace_id": workspace_id, **record._asdict()},
            )
        execute_binary(
            db,
            """
                UPDATE audit_chains SET last_number = %(number)s, last_digest = %(digest)s,
                    day = %(day)s, day_items = %(day_items)s
                WHERE workspace_id = %(workspace_id)s
            """,
            {"workspace_id": workspace_id, **head._asdict()},
        )


def count(
    db: Connection,
    workspace_id: int,
    limit: int,
    equal: Mapping[str, str],
    since: datetime | timedelta | None = None,
) -> int:
    """Return how many records with these values of columns there are, but at most `limit`.

    `since` is a time, or how long ago it is.
    """
    conditions = "".join(f" AND {name} = %({name})s" for name in equal)
    if since is not None:
        is_age = isinstance(since, timedelta)
        conditions += f" AND recorded_at >= {'now() - ' if is_age else ''}%(since)s"
    statement = f"""
        SELECT count(*) FROM (
            SELECT FROM audit_records WHERE workspace_id = %(workspace_id)s {conditions}
            LIMIT %(limit)s) AS counted
    """  # noqa: S608 - called with constants
    values = {"workspace_id": workspace_id, "limit": limit, "since": since, **equal}
    return int(fetch_binary(db, statement, values)[0][0])


def has_at(db: Connection, workspace_id: int, object_id: str, recorded_at: str) -> bool:
    """Return whether there is a record of this object and exactly this time (ISO 8601)."""
    statement = """
        SELECT EXISTS (SELECT FROM audit_records WHERE workspace_id = %(workspace_id)s
            AND object_id = %(object_id)s AND recorded_at = %(recorded_at)s::timestamptz)
    """
    values = {"workspace_id": workspace_id, "object_id": object_id, "recorded_at": recorded_at}
    return bool(fetch_binary(db, statement, values)[0][0])


def list_page(
    db: Connection, workspace_id: int, wanted: AuditFilter, before: int | None, limit: int
) -> list[AuditRecord]:
    """Return at most `limit` records below a number, or the last ones, the newest first."""
    statement = f"""
        SELECT {_COLUMNS} FROM audit_records
        WHERE workspace_id = %(workspace_id)s
            AND (%(before)s::bigint IS NULL OR number < %(before)s)
            AND (%(acts)s::text[] IS NULL OR act = ANY (%(acts)s))
            AND (%(actor)s::text IS NULL OR user_id = %(actor)s OR means_id = %(actor)s)
            AND (%(object_id)s::text IS NULL OR object_id = %(object_id)s)
            AND (%(since)s::timestamptz IS NULL OR recorded_at >= %(since)s)
            AND (%(until)s::timestamptz IS NULL OR recorded_at < %(until)s)
        ORDER BY number DESC LIMIT %(limit)s
    """  # noqa: S608 - a constant
    acts = [wanted.act] if isinstance(wanted.act, str) else wanted.act
    values = {
        "workspace_id": workspace_id,
        "before": before,
        "limit": limit,
        **wanted._asdict(),
        "acts": None if acts is None else list(acts),
    }
    return [AuditRecord(*row) for row in fetch_binary(db, statement, values)]


def list_after(db: Connection, workspace_id: int, number: int, limit: int) -> list[AuditRecord]:
    """Return at most `limit` records of a chain above a number, in their order.

    The rest of a transaction sees the rows of this workspace.
    """
    statement = f"""
        SELECT {_COLUMNS} FROM audit_records
        WHERE workspace_id = %(workspace_id)s AND number > %(number)s
        ORDER BY number LIMIT %(limit)s
    """  # noqa: S608 - a constant
    values = {"workspace_id": workspace_id, "number": number, "limit": limit}
    rows = query_with_rls(db, {"workspace_id": str(workspace_id)}, statement, values)
    return [AuditRecord(*row) for row in rows]


def find_head(db: Connection, workspace_id: int) -> ChainHead:
    """Return the end of a chain, that of an empty one if there is none.

    The rest of a transaction sees the rows of this workspace.
    """
    statement = """
        SELECT last_number, last_digest, day, day_items FROM audit_chains
        WHERE workspace_id = %(workspace_id)s
    """
    values = {"workspace_id": workspace_id}
    rows = query_with_rls(db, {"workspace_id": str(workspace_id)}, statement, values)
    return ChainHead(*rows[0]) if rows else ChainHead()


def find_last_time(db: Connection, workspace_id: int, act: str, object_id: str) -> datetime | None:
    """Return when an act was last done to something, in a transaction of the workspace."""
    statement = text("""
        SELECT max(recorded_at) FROM audit_records
        WHERE workspace_id = :workspace_id AND object_id = :object_id AND act = :act
    """)
    values = {"workspace_id": workspace_id, "object_id": object_id, "act": act}
    moment: datetime | None = db.execute(statement, values).scalar_one()
    return moment


def find_last_before(db: Connection, workspace_id: int, moment: datetime) -> AuditRecord | None:
    """Return the last of the records that are older than a moment, as all before it are."""
    statement = f"""
        SELECT {_COLUMNS} FROM audit_records
        WHERE workspace_id = %(workspace_id)s AND number < coalesce(
            (SELECT min(number) FROM audit_records
             WHERE workspace_id = %(workspace_id)s AND recorded_at >= %(moment)s),
            %(number_max)s)
        ORDER BY number DESC LIMIT 1
    """  # noqa: S608 - a constant
    values = {"workspace_id": workspace_id, "moment": moment, "number_max": INT64_MAX}
    rows = fetch_binary(db, statement, values)
    return AuditRecord(*rows[0]) if rows else None


def may_delete(db: Connection) -> bool:
    """Return whether the role may delete records."""
    statement = text("SELECT has_table_privilege('audit_records', 'DELETE')")
    return bool(db.execute(statement).scalar_one())


def delete_until(db: Connection, workspace_id: int, number: int) -> int:
    """Delete the records up to a number; return how many.

    For the role that owns the table: that of the service has no right to. The policy needs the
    setting, and keeps the records of the last day.
    """
    set_locals(db, {"tbhub.audit_expiry": "on"})
    statement = text("""
        DELETE FROM audit_records WHERE workspace_id = :workspace_id AND number <= :number
    """)
    return db.execute(statement, {"workspace_id": workspace_id, "number": number}).rowcount
