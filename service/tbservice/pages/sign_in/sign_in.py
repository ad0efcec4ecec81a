"""Pages to sign in, by a one-time link or at a provider, and to sign out."""

from __future__ import annotations

import ipaddress
from typing import Final, cast
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.audit.recording import record_sign_in_failure
from tbservice.auth import sign_in_links
from tbservice.auth.oidc.sign_in import SignIn
from tbservice.errors import NotFound
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.signed_in import (
    MaybeSignedIn,
    OpenForm,
    SignedIn,
    SignedInForm,
    end_session,
    start_session,
)
from tbservice.pages.sign_in.next_page import safe_next

PATH: Final = "/sign-in"

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def show_sign_in(request: Request, session: MaybeSignedIn, next: str = "/") -> Response:  # noqa: A002 - the parameter of the address
    """Show how to sign in; who is signed in already goes to `next`."""
    if session is not None:
        return redirect(safe_next(next))
    sign_in = cast("SignIn", request.app.state.sign_in)
    return render(
        request,
        "sign_in.html",
        form_targets=sign_in.list_origins(),
        next=safe_next(next),
        providers=sign_in.list_providers(),
    )


@router.get(f"{PATH}/link")
def show_link(
    request: Request,
    session: MaybeSignedIn,
    database: UsesDatabase,
    token: str = "",
    next: str = "/",  # noqa: A002 - the parameter of the address
) -> Response:
    """Show whom a one-time link signs in. It stays unused: programs that scan e-mail open links."""
    with database.transaction() as db:
        try:
            person = sign_in_links.find_link(db, token)
        except NotFound:
            return _show_dead_link(request)
    return render(
        request,
        "sign_in_link.html",
        person=person,
        token=token,
        next=safe_next(next),
        is_sent_at_once=session is None and _is_opened_on_this_machine(request),
    )


@router.post(f"{PATH}/link")
def use_link(request: Request, form: OpenForm, database: UsesDatabase) -> Response:
    """Use up a one-time link, and sign its person in."""
    response = redirect(safe_next(form.text("next")))
    try:
        with database.transaction() as db:
            person = sign_in_links.use_link(db, form.text("token"))
            start_session(db, request, response, person, "link")
    except NotFound:
        record_sign_in_failure(database, "link")
        return _show_dead_link(request)
    return response


@router.post("/sign-out")
def sign_out(request: Request, _session: SignedIn, _form: SignedInForm) -> Response:
    """End the browser session."""
    response = redirect("/")
    end_session(request, response)
    return response


def has_providers(request: Request) -> bool:
    """Return whether people sign in at an OpenID provider, and not by links alone."""
    return bool(cast("SignIn", request.app.state.sign_in).list_providers())


def redirect_to_sign_in(request: Request) -> Response:
    """Return the redirect of a request that needs a person; afterwards they see what it asked for.

    A form that was sent without a session is lost: `next` is then the start page.
    """
    query = f"?{request.url.query}" if request.url.query else ""
    if request.method != "GET":
        return redirect(PATH)
    return redirect(PATH, next=safe_next(quote(request.scope["path"]) + query))


def _show_dead_link(request: Request) -> Response:
    return render(request, "dead_link.html", NotFound.status, is_invitation=False)


def _is_opened_on_this_machine(request: Request) -> bool:
    """Return whether a person opened a link of `tbservice up`, which then needs no click.

    A page of another site must not sign its visitors in as somebody else, and a scanner of e-mail
    must not use a link up: neither opens an address of this machine by itself.
    """
    host = request.url.hostname or ""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return is_loopback and request.headers.get("sec-fetch-site") == "none"
