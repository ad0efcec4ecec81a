"""The tokens of a workspace, of machines and of people: `/workspace/{id}/tokens`, for owners."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.auth import tokens
from tbservice.errors import ServiceError
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people import token_pages
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnPage,
    WorkspacePage,
)
from tbservice.types.people import Role

_PAGE_ITEMS: Final = 100

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("/tokens")
def show_tokens(page: OwnPage, after: str | None = None) -> Response:
    """Show the tokens of the workspace, the newest first, in pages."""
    return _show(page, after)


@router.get("/token/new")
def show_new_token(page: OwnPage) -> Response:
    """Show the form for a new machine token."""
    with page.owner_transaction():
        return token_pages.show_form(
            page.request, token_pages.scopes_of(Role.OWNER), **_texts(page)
        )


@router.post("/token/new")
def create_token(page: OwnPage, form: SignedInForm) -> Response:
    """Create a machine token, and show its secret, which cannot be shown again."""
    try:
        scopes = token_pages.parse_scopes(form)
        expires_at = form.expiry("expires_days")
        with page.owner_transaction() as (db, grant):
            token, secret = tokens.create_workspace_token(
                db, grant, scopes, form.text("label"), expires_at
            )
    except SHOWN_ERRORS as error:
        return token_pages.show_form(
            page.request, token_pages.scopes_of(Role.OWNER), form, error, **_texts(page)
        )
    return token_pages.show_secret(page.request, token, secret, **_texts(page))


@router.post("/token/revoke")
def revoke_token(page: OwnPage, form: SignedInForm) -> Response:
    """Revoke a token of the workspace."""
    try:
        with page.owner_transaction() as (db, grant):
            tokens.revoke_workspace_token(db, grant, form.text("token_id"))
    except SHOWN_ERRORS as error:
        return _show(page, error=error)
    return redirect(f"{page.address}/tokens", done="token-revoked")


def _show(
    page: WorkspacePage,
    after: str | None = None,
    error: ServiceError | None = None,
) -> Response:
    with page.owner_transaction() as (db, grant):
        listed, next_page = tokens.list_workspace_tokens(db, grant, after, _PAGE_ITEMS)
    return page.render("workspace_tokens.html", error, tokens=listed, next_page=next_page)


def _texts(page: WorkspacePage) -> dict[str, Any]:
    return {
        "section": "workspace",
        "workspace": page.workspace,
        "back": f"{page.address}/tokens",
        "back_name": page.workspace.workspace_name,
        "heading": "New machine token",
        "explanation": "For a cluster, CI or another service. It belongs to the workspace, not to "
        "you.",
        "placeholder": "CI of the vision team",
    }
