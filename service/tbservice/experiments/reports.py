"""Reports of shared pages by their readers, which administrators read and close.

The owner of a page does not learn of them.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acting import get_acting
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import secrets
from tbservice.db.clock import read_now
from tbservice.errors import Conflict, Invalid, NotFound, StartupError
from tbservice.experiments.tables import page_reports
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import UserId
from tbservice.types.reports import PageReport, ReportReason

REPORT_DETAILS_CHARS_MAX: Final = 2_000
"""Characters of what somebody writes about a page that they report."""

REPORT_CONTACT_CHARS_MAX: Final = 254
"""Characters of the address for an answer (RFC 5321, 4.5.3.1)."""

REPORT_NOTE_CHARS_MAX: Final = 500
"""Characters of the note with which an administrator closes a report."""

REPORTS_PER_NETWORK_ITEMS_MAX: Final = 10
"""Reports (items) stored of one IPv4 address or IPv6 /48 in `REPORT_NETWORK_HOURS`."""

REPORT_NETWORK_HOURS: Final = 24
"""Hours in which the reports of a network are counted."""

REPORTS_PER_EXPERIMENT_ITEMS_MAX: Final = 20
"""Open reports (items) of one experiment: more would say nothing new, and are not stored."""

REPORTS_ITEMS_MAX: Final = 10_000
"""Reports (items) stored in all, open and closed."""

REPORT_CLOSED_DAYS: Final = 90
"""Days after which a closed report is deleted, a few with each new one."""


def report_page(
    db: Connection,
    grant: ReadGrant,
    reporter: UserId | None,
    reason: ReportReason,
    details: str,
    contact: str,
) -> bool:
    """Store a report of an experiment's page; return whether it was stored.

    It is not if the same network has an open report of the page, or many others have: the reader
    need not know.

    Args:
        db: A transaction of no workspace.
        grant: The right by which the page was read.
        reporter: The person who is signed in, if anybody is.
        reason: What it is reported for.
        details: Plain text about it; may be empty.
        contact: Address for an answer; may be empty.

    Raises:
        Invalid: A text is too long.
        Conflict: Too many reports, of this network or in all, with the code `too_many_reports`.
    """
    if len(details) > REPORT_DETAILS_CHARS_MAX or len(contact) > REPORT_CONTACT_CHARS_MAX:
        raise Invalid(
            f"write at most {REPORT_DETAILS_CHARS_MAX} characters about it, and "
            f"{REPORT_CONTACT_CHARS_MAX} for your address"
        )
    if not page_reports.open_table(db):
        raise Conflict("this server takes no reports yet: try again later")
    network = get_acting().network
    # Before the lock, too: of a flood, each request costs one look into an index.
    _check_network(db, network)
    page_reports.lock(db)
    _check_network(db, network)
    page_reports.delete_closed(db, REPORT_CLOSED_DAYS, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    report = PageReport(
        secrets.generate_public_id(),
        grant.workspace_id,
        grant.experiment_id,
        "" if grant.link is None else grant.link.token_id,
        read_now(db),
        network,
        reporter or "",
        reason,
        _clean(details),
        _clean(contact).replace("\n", " "),
        None,
        "",
    )
    return _store(db, report)


def list_reports(db: Connection, *, with_closed: bool) -> list[PageReport]:
    """Return the reports, the oldest first. For administrators."""
    if not page_reports.open_table(db):
        return []
    return page_reports.list_all(db, with_closed=with_closed)


def count_open(db: Connection) -> dict[int, int]:
    """Return the numbers of open reports by workspace. For administrators."""
    return page_reports.count_open_by_workspace(db) if page_reports.open_table(db) else {}


def get_report(db: Connection, report_id: str) -> PageReport:
    """Return a report. Raises NotFound. For administrators."""
    _require_table(db)
    report = page_reports.find(db, report_id)
    if report is None:
        raise NotFound(f"there is no report {report_id}")
    return report


def close_report(db: Connection, report_id: str, note: str) -> None:
    """Close a report. For administrators.

    Raises NotFound, Conflict if it is closed, and Invalid for a note that is too long.
    """
    if len(note) > REPORT_NOTE_CHARS_MAX:
        raise Invalid(f"a note has at most {REPORT_NOTE_CHARS_MAX} characters")
    report = get_report(db, report_id)
    if not page_reports.close(db, report_id, _clean(note)):
        raise Conflict(f"report {report_id} is closed already")
    record(
        db, Act.REPORT_CLOSE, None, report_id, experiment=report.experiment_id, note=_clean(note)
    )


def _store(db: Connection, report: PageReport) -> bool:
    """Insert a report, unless it says nothing new. Raises Conflict if the table is full."""
    if page_reports.has_open(db, report):
        return False
    if page_reports.count_open_of(db, report.experiment_id) >= REPORTS_PER_EXPERIMENT_ITEMS_MAX:
        return False
    if page_reports.count_all(db) >= REPORTS_ITEMS_MAX:
        page_reports.delete_closed(db, 0, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    if page_reports.count_all(db) >= REPORTS_ITEMS_MAX:
        raise Conflict(
            "too many reports wait to be read: try again later, or write to who runs this service",
            code="too_many_reports",
        )
    page_reports.create(db, report)
    return True


def _check_network(db: Connection, network: str) -> None:
    items_max = REPORTS_PER_NETWORK_ITEMS_MAX
    if page_reports.count_recent(db, network, REPORT_NETWORK_HOURS, items_max) >= items_max:
        raise Conflict(
            f"{items_max} reports came from your network ({network}) in {REPORT_NETWORK_HOURS} "
            "hours, the most that are taken: try again later",
            code="too_many_reports",
        )


def _require_table(db: Connection) -> None:
    if not page_reports.open_table(db):
        raise StartupError("the database has no reports yet: run 'tbservice migrate'")


def _clean(written: str) -> str:
    """Return a stranger's text without control characters, which a terminal would obey."""
    lines = written.replace("\r\n", "\n").split("\n")
    return "\n".join("".join(char for char in line if char.isprintable()) for line in lines).strip()
