"""The page of an invitation to a workspace."""

from __future__ import annotations

from typing import Final, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import invitations
from tbservice.auth.emails import email_key
from tbservice.auth.link_urls import INVITATION_PATH
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.signed_in import (
    MaybeSignedIn,
    OpenForm,
    SignedIn,
    SignedInForm,
    start_session,
)
from tbservice.pages.sign_in.sign_in import has_providers
from tbservice.types.sign_up import SignUp

PATH: Final = INVITATION_PATH

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
            membership = invitations.accept(
                db, token, session.person, is_link_enough=not has_providers(request)
            )
    except (Conflict, Forbidden) as error:
        return _show(request, database, token, error)
    except NotFound:
        return _show_dead(request)
    return redirect(f"/workspace/{membership.workspace_id}", done="joined")


@router.post(f"{PATH}/join")
def join(
    request: Request, session: MaybeSignedIn, form: OpenForm, database: UsesDatabase
) -> Response:
    """Create the person whom the link invites, and sign them in as a member.

    A person who is signed in already is asked whether to accept as that person.
    """
    token, name = form.text("token"), form.text("name")
    if session is not None:
        return redirect(PATH, token=token)
    try:
        with database.transaction() as db:
            person, membership = invitations.join(
                db, token, name, _sign_up(request), is_link_enough=not has_providers(request)
            )
            response = redirect(f"/workspace/{membership.workspace_id}", done="joined-new")
            start_session(db, request, response, person, "invitation")
    except (Conflict, Forbidden, Invalid) as error:
        return _show(request, database, token, error, name)
    except NotFound:
        return _show_dead(request)
    return response


def _show(
    request: Request,
    database: Database,
    token: str,
    error: ServiceError | None = None,
    name: str = "",
) -> Response:
    try:
        with database.transaction() as db:
            invitation = invitations.find_invitation(db, token)
    except NotFound:
        return _show_dead(request)
    return render(
        request,
        "invitation.html",
        invitation=invitation,
        token=token,
        error=error,
        has_providers=has_providers(request),
        # Whether the address has an account here is not told before somebody joins: who invites
        # could ask of any address.
        is_admitted=_sign_up(request).admits_invited(email_key(invitation.email)),
        name=name,
        name_chars_max=limits.PERSON_NAME_CHARS_MAX,
    )


def _sign_up(request: Request) -> SignUp:
    return cast("SignUp", request.app.state.sign_up)


def _show_dead(request: Request) -> Response:
    return render(request, "dead_link.html", NotFound.status, is_invitation=True)
