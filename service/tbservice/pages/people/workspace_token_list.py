"""The tokens of a workspace, of machines and of people: `/workspace/{id}/tokens`, for owners."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import tokens
from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people import token_pages
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnWorkspace,
    owner_transaction,
    render_tab,
)
from tbservice.types.people import Membership, Role

_PAGE_ITEMS: Final = 100

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("/tokens")
def show_tokens(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    database: UsesDatabase,
    after: str | None = None,
) -> Response:
    """Show the tokens of the workspace, the newest first, in pages."""
    return _show(request, session, workspace, database, after)


@router.get("/token/new")
def show_new_token(
    request: Request, session: SignedIn, workspace: OwnWorkspace, database: UsesDatabase
) -> Response:
    """Show the form for a new machine token."""
    with owner_transaction(database, session, workspace):
        return token_pages.show_form(
            request, token_pages.scopes_of(Role.OWNER), **_texts(workspace)
        )


@router.post("/token/new")
def create_token(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Create a machine token, and show its secret, which cannot be shown again."""
    try:
        scopes = token_pages.parse_scopes(form)
        expires_at = form.expiry("expires_days")
        with owner_transaction(database, session, workspace) as (db, grant):
            token, secret = tokens.create_workspace_token(
                db, grant, scopes, form.text("label"), expires_at
            )
    except SHOWN_ERRORS as error:
        return token_pages.show_form(
            request, token_pages.scopes_of(Role.OWNER), form, error, **_texts(workspace)
        )
    return token_pages.show_secret(request, token, secret, **_back(workspace))


@router.post("/token/revoke")
def revoke_token(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Revoke a token of the workspace."""
    try:
        with owner_transaction(database, session, workspace) as (db, grant):
            tokens.revoke_workspace_token(db, grant, form.text("token_id"))
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, error=error)
    return redirect(f"/workspace/{workspace.workspace_id}/tokens", done="token-revoked")


def _show(
    request: Request,
    session: PersonSession,
    workspace: Membership,
    database: Database,
    after: str | None = None,
    error: ServiceError | None = None,
) -> Response:
    with owner_transaction(database, session, workspace) as (db, grant):
        page, next_page = tokens.list_workspace_tokens(db, grant, after, _PAGE_ITEMS)
    return render_tab(
        request, "workspace_tokens.html", workspace, error, tokens=page, next_page=next_page
    )


def _back(workspace: Membership) -> dict[str, Any]:
    return {
        "section": "workspace",
        "workspace": workspace,
        "back": f"/workspace/{workspace.workspace_id}/tokens",
        "back_name": workspace.workspace_name,
    }


def _texts(workspace: Membership) -> dict[str, Any]:
    return _back(workspace) | {
        "heading": "New machine token",
        "explanation": "For a cluster, CI or another service. It belongs to the workspace, not to "
        "you.",
        "placeholder": "CI of the vision team",
        "memberships": [],
    }
