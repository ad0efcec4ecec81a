"""Reports of shared pages, and what is suspended, for an operator."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.auth import people, suspensions
from tbservice.errors import ServiceError
from tbservice.experiments import reports
from tbservice.pages.base.frame import redirect
from tbservice.pages.operator.acts import ActedOn, perform
from tbservice.pages.operator.operator_page import PATH, OperatorForm, OperatorPage, OwnPage
from tbservice.pages.people.workspace_view import SHOWN_ERRORS
from tbservice.types.suspensions import Suspendable

_ROWS: Final = 100
"""Reports (items) that the page shows, the oldest; those closed count as later ones."""

_SUSPENDED_ROWS: Final = 200
"""Suspended things (items) that the page shows, the latest."""

router = APIRouter(prefix=PATH, include_in_schema=False)


@router.get("/reports")
def show_reports(page: OwnPage, workspace: str = "", closed: str = "") -> Response:
    """Show open reports, or with `closed` closed ones, too; of all workspaces, or of one."""
    return _show(page, workspace, closed)


@router.post("/reports")
def change_report(page: OwnPage, form: OperatorForm) -> Response:
    """Close a report, suspend what it is about, or release something."""
    try:
        done = perform(page, form, ActedOn())
    except SHOWN_ERRORS as error:
        return _show(page, error=error)
    return redirect(f"{PATH}/reports", done=done)


def _show(
    page: OperatorPage, workspace: str = "", closed: str = "", error: ServiceError | None = None
) -> Response:
    with page.database.transaction() as db:
        found = [
            each
            for each in reports.list_reports(db, with_closed=bool(closed))
            if workspace in ("", str(each.workspace_id))
        ]
        suspended = suspensions.list_suspended(db)
        shown = suspended[:_SUSPENDED_ROWS]
        names = people.find_people(db, (each.subject.partition("/")[2] for each in shown))
    return page.render(
        "reports.html",
        error,
        total=len(found),
        reports=found[:_ROWS],
        only=workspace,
        with_closed=bool(closed),
        suspended=[(*each.subject.partition("/")[::2], each) for each in shown],
        suspended_total=len(suspended),
        reasons={each.subject: each.reason for each in suspended},
        people=names,
        kinds=list(Suspendable),
    )
