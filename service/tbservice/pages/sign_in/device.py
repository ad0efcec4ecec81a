"""Pages on which a person approves or denies the login of a command: `tbupload login`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.admission.callers import client_network
from tbservice.auth import device_logins
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people import token_pages
from tbservice.pages.people.workspace_view import parse_workspace_id
from tbservice.types.grants import Scope
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership, Role

PATH: Final = "/device"

_SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid)
"""Errors that the form shows above its fields."""

_DEFAULT_EXPIRY_DAYS: Final = "90"

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def show_code_form(request: Request, _session: SignedIn) -> Response:
    """Ask for the code that a command shows."""
    return _ask_for_code(request)


@router.post(PATH)
def show_login(page: SignedInPage, form: SignedInForm) -> Response:
    """Show what asks, and what it may be given."""
    try:
        return _show_login(page, form.text("code"), _default_values(page.session))
    except NotFound as error:
        return _ask_for_code(page.request, form.text("code"), error)


@router.post(f"{PATH}/approve")
def approve(page: SignedInPage, form: SignedInForm) -> Response:
    """Let the command have a token of the person."""
    code = form.text("code")
    try:
        workspace_id, scopes, expires_at = _parse_choices(page.session, form)
        with page.database.transaction(workspace_id) as db:
            device_logins.approve(db, page.session.person, code, workspace_id, scopes, expires_at)
    except NotFound as error:
        return _ask_for_code(page.request, code, error)
    except _SHOWN_ERRORS as error:
        values = {
            "workspace_id": form.text("workspace_id"),
            "scopes": form.texts("scope"),
            "expires_days": form.text("expires_days"),
        }
        return _show_login(page, code, values, error)
    return redirect(PATH, done="approved")


@router.post(f"{PATH}/deny")
def deny(page: SignedInPage, form: SignedInForm) -> Response:
    """Refuse the command."""
    try:
        with page.database.transaction() as db:
            device_logins.deny(db, page.session.person, form.text("code"))
    except NotFound as error:
        return _ask_for_code(page.request, form.text("code"), error)
    return redirect(PATH, done="denied")


def _parse_choices(
    session: PersonSession, form: FormFields
) -> tuple[WorkspaceId, list[Scope], datetime | None]:
    """Return workspace, scopes and expiry as the person chose them. Raises Invalid."""
    workspace_id = parse_workspace_id(form.text("workspace_id"))
    membership = None if workspace_id is None else session.find_membership(workspace_id)
    if membership is None:
        raise Invalid("choose one of your workspaces")
    scopes = [scope for scope in Scope if scope.value in form.texts("scope")]
    if not scopes:
        raise Invalid("choose what the command may do")
    return membership.workspace_id, scopes, form.expiry("expires_days")


def _default_values(session: PersonSession) -> Mapping[str, Any]:
    """Return what is chosen at first: all that the person may do with experiments.

    As other commands of a person do: they upload, then rename, share and delete what they uploaded.
    """
    workspace = session.current_membership
    if workspace is not None and _is_viewer(workspace):
        workspace = min(session.memberships, key=_is_viewer)
    return {
        "workspace_id": str(workspace.workspace_id) if workspace else "",
        "scopes": list(workspace.role.scopes) if workspace else [],
        "expires_days": _DEFAULT_EXPIRY_DAYS,
    }


def _is_viewer(membership: Membership) -> bool:
    return membership.role is Role.VIEWER


def _ask_for_code(request: Request, code: str = "", error: ServiceError | None = None) -> Response:
    return render(request, "device_code.html", code=code, error=error)


def _show_login(
    page: PersonPage, code: str, values: Mapping[str, Any], error: ServiceError | None = None
) -> Response:
    """Return the page of a login that waits. Raises NotFound."""
    role = Role.VIEWER if all(map(_is_viewer, page.session.memberships)) else Role.EDITOR
    with page.database.transaction() as db:
        login = device_logins.find(db, code)
    return page.render(
        "device_approve.html",
        error,
        login=login,
        code=device_logins.show_code(device_logins.parse_code(code)),
        values=values,
        is_other_network=login.network != client_network(page.request),
        scopes=token_pages.scopes_of(role),
    )
