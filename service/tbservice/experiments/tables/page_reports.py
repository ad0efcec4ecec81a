"""Queries on `page_reports`, which the policy hides from all other statements."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.db.cluster import citus
from tbservice.db.pipeline import set_locals
from tbservice.db.schema_parts import has_table
from tbservice.types.reports import PageReport, ReportReason

_COLUMNS: Final = ", ".join(PageReport._fields)


def open_table(db: Connection) -> bool:
    """Let the rest of a transaction see reports; return False if the schema has none yet."""
    set_locals(db, {"tbhub.page_reports": "on"})
    return has_table(db, "page_reports")


def lock(db: Connection) -> None:
    """Let concurrent transactions that count reports wait for each other."""
    citus.lock_name(db, "page reports")


def count_recent(db: Connection, network: str, hours: int, limit: int) -> int:
    """Return how many reports of a network there are of the last hours, but at most `limit`."""
    statement = text("""
        SELECT count(*) FROM (
            SELECT FROM page_reports WHERE network = :network
                AND reported_at > now() - :hours * interval '1 hour' LIMIT :limit) AS counted
    """)
    values = {"network": network, "hours": hours, "limit": limit}
    return int(db.execute(statement, values).scalar_one())


def count_all(db: Connection) -> int:
    """Return the number of reports, open and closed."""
    return int(db.execute(text("SELECT count(*) FROM page_reports")).scalar_one())


def has_open(db: Connection, report: PageReport) -> bool:
    """Return whether this network has reported the same experiment, and the report is open."""
    statement = text("""
        SELECT EXISTS (SELECT FROM page_reports WHERE experiment_id = :experiment_id
            AND network = :network AND closed_at IS NULL)
    """)
    values = {"experiment_id": report.experiment_id, "network": report.network}
    return bool(db.execute(statement, values).scalar_one())


def count_open_of(db: Connection, experiment_id: str) -> int:
    """Return the number of open reports of an experiment."""
    statement = text("""
        SELECT count(*) FROM page_reports WHERE experiment_id = :id AND closed_at IS NULL
    """)
    return int(db.execute(statement, {"id": experiment_id}).scalar_one())


def count_open_by_workspace(db: Connection) -> dict[int, int]:
    """Return the numbers of open reports, by workspace; those without any are missing."""
    statement = text("""
        SELECT workspace_id, count(*) FROM page_reports WHERE closed_at IS NULL GROUP BY 1
    """)
    return {row[0]: row[1] for row in db.execute(statement)}


def create(db: Connection, report: PageReport) -> None:
    """Insert a report."""
    values = ", ".join(f":{name}" for name in PageReport._fields)
    statement = text(f"INSERT INTO page_reports ({_COLUMNS}) VALUES ({values})")  # noqa: S608 - constants
    db.execute(statement, report._asdict())


def list_all(db: Connection, *, with_closed: bool) -> list[PageReport]:
    """Return the reports, the oldest first."""
    statement = text(f"""
        SELECT {_COLUMNS} FROM page_reports WHERE closed_at IS NULL OR :with_closed
        ORDER BY reported_at, report_id
    """)  # noqa: S608 - a constant
    return [_report(row) for row in db.execute(statement, {"with_closed": with_closed})]


def find(db: Connection, report_id: str) -> PageReport | None:
    """Return a report, or None."""
    statement = text(f"SELECT {_COLUMNS} FROM page_reports WHERE report_id = :id")  # noqa: S608 - a constant
    row = db.execute(statement, {"id": report_id}).one_or_none()
    return None if row is None else _report(row)


def close(db: Connection, report_id: str, note: str) -> bool:
    """Close a report; return False if there is no such one that is open."""
    statement = text("""
        UPDATE page_reports SET closed_at = now(), note = :note
        WHERE report_id = :id AND closed_at IS NULL
    """)
    return db.execute(statement, {"id": report_id, "note": note}).rowcount == 1


def delete_closed(db: Connection, days: int, limit: int) -> None:
    """Delete at most `limit` reports that were closed so many days ago."""
    # An array is evaluated once: see `tokens.delete_ended_sessions`.
    statement = text("""
        DELETE FROM page_reports WHERE report_id = ANY (ARRAY(
            SELECT report_id FROM page_reports
            WHERE closed_at < now() - :days * interval '1 day'
            LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(statement, {"days": days, "limit": limit})


def _report(row: Row[Any]) -> PageReport:
    fields = row._asdict()
    return PageReport(**{**fields, "reason": ReportReason(fields["reason"])})
