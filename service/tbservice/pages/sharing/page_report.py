"""The form by which readers of a shared page report it to who runs the service."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.api.http.observation import set_error_code
from tbservice.errors import Conflict, Invalid, ServiceError
from tbservice.experiments import reports
from tbservice.metrics import observe_page_report
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.signed_in import MaybeSignedIn, OpenForm
from tbservice.pages.experiments.experiment_reader import find_reader
from tbservice.pages.stock_page import page_auth
from tbservice.types.reports import ReportReason

router = APIRouter(prefix="/experiment/{experiment_id}", include_in_schema=False)

_REASONS: Final = {
    ReportReason.PRIVATE_DATA: "It shows personal data, or secrets such as passwords",
    ReportReason.ILLEGAL: "It is against the law",
    ReportReason.DECEPTION: "It deceives: it imitates another site, or leads to malware",
    ReportReason.COPYRIGHT: "It shows something that its owner did not allow",
    ReportReason.OFFENSIVE: "It is hateful, violent or sexual",
    ReportReason.OTHER: "Something else",
}


@router.get("/report")
def show_report(
    request: Request, experiment_id: str, session: MaybeSignedIn, database: UsesDatabase
) -> Response:
    """Show the form to everybody who may read the page; `?token=` as for `about`."""
    if offered := request.query_params.getlist("token"):
        response = redirect(f"/experiment/{experiment_id}/report")
        page_auth.set_read_cookie(response, request, offered)
        return response
    find_reader(request, experiment_id, session, database)
    return _show(request, experiment_id, {})


@router.post("/report")
def report(
    request: Request,
    experiment_id: str,
    session: MaybeSignedIn,
    form: OpenForm,
    database: UsesDatabase,
) -> Response:
    """Store a report. Nobody needs to sign in: the form changes nothing of a person."""
    reader = find_reader(request, experiment_id, session, database)
    sent = {name: form.text(name) for name in ("reason", "details", "contact")}
    reporter = None if session is None else session.person.user_id
    try:
        reason = ReportReason(form.choice("reason", set(ReportReason)))
        with database.transaction() as db:
            is_stored = reports.report_page(
                db, reader.grant, reporter, reason, sent["details"], sent["contact"]
            )
    except (Conflict, Invalid) as error:
        if isinstance(error, Conflict):
            observe_page_report("refused")
        set_error_code(request.scope, error.code)
        return _show(request, experiment_id, sent, error)
    observe_page_report("stored" if is_stored else "repeated")
    return redirect(f"/experiment/{experiment_id}/report", done="reported")


def _show(
    request: Request, experiment_id: str, sent: dict[str, str], error: ServiceError | None = None
) -> Response:
    return render(
        request,
        "page_report.html",
        error=error,
        experiment_id=experiment_id,
        reasons=_REASONS,
        sent=sent,
        details_chars_max=reports.REPORT_DETAILS_CHARS_MAX,
        contact_chars_max=reports.REPORT_CONTACT_CHARS_MAX,
    )
