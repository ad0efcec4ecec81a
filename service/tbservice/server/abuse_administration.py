"""Functions of `tbservice suspend`, `release`, `suspensions`, `reports` and `workspace list`."""

from __future__ import annotations

from tbservice.auth import suspensions
from tbservice.auth.suspensions import Subject
from tbservice.auth.tables.suspensions import SuspensionRow
from tbservice.experiments import reports, workspace_overview
from tbservice.experiments.workspace_overview import WorkspaceDetails
from tbservice.server.administration import open_database
from tbservice.settings import Settings
from tbservice.types.identifiers import UserId
from tbservice.types.reports import PageReport
from tbservice.types.suspensions import Suspendable


def suspend(
    settings: Settings, kind: str, named: str, reason: str
) -> tuple[Subject | None, list[str]]:
    """Suspend something; return it, None if it was for this reason, and workspaces left ownerless.

    Raises as `suspensions.suspend` does.
    """
    with open_database(settings) as database, database.transaction() as db:
        subject = suspensions.suspend(db, Suspendable(kind), named, reason)
        if subject is None or subject.kind is not Suspendable.PERSON:
            return subject, []
        return subject, suspensions.list_sole_ownerships(db, UserId(subject.object_id))


def release(settings: Settings, kind: str, named: str) -> None:
    """Release something. Raises as `suspensions.release` does."""
    with open_database(settings) as database, database.transaction() as db:
        suspensions.release(db, Suspendable(kind), named)


def read_suspensions(settings: Settings) -> list[SuspensionRow]:
    """Return what is suspended, the latest first."""
    with open_database(settings) as database, database.transaction() as db:
        return suspensions.list_suspended(db)


def read_reports(settings: Settings, *, with_closed: bool) -> list[PageReport]:
    """Return the reports of shared pages, the oldest first."""
    with open_database(settings) as database, database.transaction() as db:
        return reports.list_reports(db, with_closed=with_closed)


def read_report(settings: Settings, report_id: str) -> PageReport:
    """Return a report. Raises NotFound."""
    with open_database(settings) as database, database.transaction() as db:
        return reports.get_report(db, report_id)


def close_report(settings: Settings, report_id: str, note: str) -> None:
    """Close a report. Raises NotFound, Conflict and Invalid."""
    with open_database(settings) as database, database.transaction() as db:
        reports.close_report(db, report_id, note)


def describe_report(report: PageReport) -> dict[str, str | int | None]:
    """Return the fields of a report as JSON can say them."""
    closed_at = report.closed_at and report.closed_at.isoformat()
    moments = {"reported_at": report.reported_at.isoformat(), "closed_at": closed_at}
    return report._asdict() | moments


def read_workspace_details(settings: Settings, *, by_age: bool) -> list[WorkspaceDetails]:
    """Return all workspaces but deleted ones, those with the most bytes first, or the oldest."""
    with open_database(settings) as database, database.transaction() as db:
        return workspace_overview.list_all(db, by_age=by_age)
