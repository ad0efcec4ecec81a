"""Functions of `tbservice suspend`, `release`, `suspensions`, `reports` and `workspace list`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice.auth import members, suspensions
from tbservice.auth.suspensions import Subject
from tbservice.auth.tables import tokens, workspaces
from tbservice.auth.tables.suspensions import SuspensionRow
from tbservice.auth.workspaces import list_deleted
from tbservice.db.database import set_local
from tbservice.experiments import reports, usage
from tbservice.server.administration import open_database
from tbservice.settings import Settings
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import UserId
from tbservice.types.people import Role
from tbservice.types.reports import PageReport
from tbservice.types.suspensions import Suspendable, subject_of


class WorkspaceDetails(NamedTuple):
    """A workspace, as administrators see it.

    `bytes` are those of tensors and blobs, `last_used_at` the last use of a token, also of those
    that pages get by themselves, `suspended` the reason; None for none.
    """

    workspace_id: int
    points: int
    bytes: int
    experiments: int
    created_at: datetime
    last_used_at: datetime | None
    open_reports: int
    suspended: str | None
    owners: tuple[str, ...]
    name: str

    def as_dict(self) -> dict[str, object]:
        """Return what JSON can say."""
        moments = {"created_at": self.created_at, "last_used_at": self.last_used_at}
        shown = {name: each and each.isoformat() for name, each in moments.items()}
        return self._asdict() | shown

    def columns(self) -> list[str]:
        """Return texts for a line: days for times, a word for the state."""
        days = [each.date().isoformat() if each else "" for each in self[4:6]]
        state = "active" if self.suspended is None else "suspended"
        counts = [str(each) for each in self[:4]]
        owners = " ".join(self.owners)
        return [*counts, *days, str(self.open_reports), state, owners, self.name]


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
        details = list(_list_details(db))
    if not by_age:
        details.sort(key=lambda each: (-each.bytes, -each.points, each.workspace_id))
    return details


def _list_details(db: Connection) -> Iterator[WorkspaceDetails]:
    """Yield the workspaces, the oldest first: row-level security shows one at a time."""
    open_reports = reports.count_open(db)
    reasons = {row.subject: row.reason for row in suspensions.list_suspended(db)}
    deleted = {each.workspace_id for each in list_deleted(db)}
    for workspace_id, name, created_at in workspaces.list_with_ages(db):
        if workspace_id in deleted:
            continue
        set_local(db, "workspace_id", str(workspace_id))
        grant = WorkspaceGrant(workspace_id)
        totals = usage.read_totals(db, grant)
        yield WorkspaceDetails(
            workspace_id,
            totals.stored.points,
            totals.stored.tensor_bytes + totals.stored.blob_bytes,
            totals.experiments,
            created_at,
            tokens.find_last_use(db, workspace_id),
            open_reports.get(workspace_id, 0),
            reasons.get(subject_of(Suspendable.WORKSPACE, str(workspace_id))),
            _list_owners(db, grant),
            name,
        )


def _list_owners(db: Connection, grant: WorkspaceGrant) -> tuple[str, ...]:
    owners = [each.person for each in members.list_members(db, grant) if each.role is Role.OWNER]
    return tuple(person.email or person.user_id for person in owners)
