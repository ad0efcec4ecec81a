"""The page of the person who is signed in: name, workspaces, tokens, browsers."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import people, sessions
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.pages.frame import redirect, render
from tbservice.pages.person_session import PersonSession
from tbservice.pages.signed_in import SignedIn, SignedInForm
from tbservice.store.pg.database import Database

PATH: Final = "/me"

_SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid, NotFound)
"""Errors of a form that the page shows above its content."""

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def show_me(request: Request, session: SignedIn, database: UsesDatabase) -> Response:
    """Show the account of the person who is signed in."""
    return _show(request, session, database)


@router.post(f"{PATH}/name")
def rename(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Change the person's name."""
    try:
        with database.transaction() as db:
            people.rename(db, session.person.user_id, form.text("name"))
    except _SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    return redirect(PATH, done="renamed")


@router.post(f"{PATH}/session/end")
def end_session(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Sign a browser of the person out, which may be this one."""
    try:
        with database.transaction() as db:
            sessions.revoke_session(db, session.person.user_id, form.text("session_id"))
    except _SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    return redirect(PATH, done="session-ended")


@router.post(f"{PATH}/session/end-others")
def end_other_sessions(session: SignedIn, _form: SignedInForm, database: UsesDatabase) -> Response:
    """Sign all other browsers of the person out."""
    with database.transaction() as db:
        sessions.revoke_other_sessions(db, session.person.user_id, session.session_id)
    return redirect(PATH, done="sessions-ended")


def _show(
    request: Request,
    session: PersonSession,
    database: Database,
    error: ServiceError | None = None,
) -> Response:
    with database.transaction() as db:
        open_sessions = sessions.list_sessions(db, session.person.user_id)
    return render(
        request,
        "me.html",
        200 if error is None else error.status,
        error="" if error is None else error.detail,
        sessions=open_sessions,
        tokens=[],
        may_create_workspaces=True,
        workspace_names={each.workspace_id: each.workspace_name for each in session.memberships},
        name_chars_max=limits.PERSON_NAME_CHARS_MAX,
    )
