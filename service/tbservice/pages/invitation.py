"""The page of an invitation to a workspace."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import invitations
from tbservice.errors import Conflict, Forbidden, NotFound, ServiceError
from tbservice.pages.frame import redirect, render
from tbservice.pages.signed_in import MaybeSignedIn, SignedIn, SignedInForm
from tbservice.store.pg.database import Database

PATH: Final = "/invitation"

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def show_invitation(
    request: Request, _session: MaybeSignedIn, database: UsesDatabase, token: str = ""
) -> Response:
    """Show who invites to what. It stays open: programs that scan e-mail open links."""
    return _show(request, database, token)


@router.post(PATH)
def accept_invitation(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Make the person a member."""
    token = form.text("token")
    try:
        with database.transaction() as db:
            membership = invitations.accept(db, token, session.person)
    except (Conflict, Forbidden) as error:
        return _show(request, database, token, error)
    except NotFound:
        return _show_dead(request)
    return redirect(f"/workspace/{membership.workspace_id}", done="joined")


def _show(
    request: Request, database: Database, token: str, error: ServiceError | None = None
) -> Response:
    try:
        with database.transaction() as db:
            invitation = invitations.find_invitation(db, token)
    except NotFound:
        return _show_dead(request)
    return render(
        request,
        "invitation.html",
        200 if error is None else error.status,
        invitation=invitation,
        token=token,
        error="" if error is None else error.detail,
    )


def _show_dead(request: Request) -> Response:
    return render(request, "dead_link.html", NotFound.status, is_invitation=True)
