"""The page of the person who is signed in: name, workspaces, tokens, browsers."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, UsesSettings, get_settings
from tbservice.auth import members, people, sessions, sign_in_links, tokens
from tbservice.auth.link_urls import sign_in_url
from tbservice.db.database import Database
from tbservice.errors import NotFound, ServiceError
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people import token_pages
from tbservice.pages.people.workspace_view import SHOWN_ERRORS, parse_workspace_id
from tbservice.pages.sign_in.sign_in import has_providers
from tbservice.types.people import Membership, Role

PATH: Final = "/me"

_BACK: Final = {"section": "me", "back": PATH, "back_name": "Account"}

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
    name = form.text("name")
    try:
        with database.transaction() as db:
            people.rename(db, session.person.user_id, name)
    except SHOWN_ERRORS as error:
        return _show(request, session, database, error, name)
    return redirect(PATH, done="renamed")


@router.post(f"{PATH}/session/end")
def end_session(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Sign a browser of the person out, which may be this one."""
    try:
        with database.transaction() as db:
            sessions.revoke_session(db, session.person.user_id, form.text("session_id"))
    except SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    return redirect(PATH, done="session-ended")


@router.post(f"{PATH}/session/end-others")
def end_other_sessions(session: SignedIn, _form: SignedInForm, database: UsesDatabase) -> Response:
    """Sign all other browsers of the person out."""
    with database.transaction() as db:
        sessions.revoke_other_sessions(db, session.person.user_id, session.session_id)
    return redirect(PATH, done="sessions-ended")


@router.post(f"{PATH}/sign-in-link")
def create_sign_in_link(
    request: Request,
    session: SignedIn,
    _form: SignedInForm,
    database: UsesDatabase,
    settings: UsesSettings,
) -> Response:
    """Create a link that signs the person in on another browser, and show it this once."""
    try:
        with database.transaction() as db:
            secret = sign_in_links.create_own_link(
                db, session.person.user_id, has_providers=has_providers(request)
            )
    except SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    link = sign_in_url(settings.public_url, secret)
    return _show(request, session, database, sign_in_link=link)


@router.post(f"{PATH}/leave")
def leave(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Leave a workspace."""
    try:
        workspace_id = _require_membership(session, form).workspace_id
        with database.transaction(workspace_id) as db:
            members.leave(db, workspace_id, session.person.user_id)
    except SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    return redirect(PATH, done="left")


@router.get(f"{PATH}/token/new")
def show_new_token(request: Request, session: SignedIn) -> Response:
    """Show the form for a new token of the person."""
    return _show_token_form(request, session)


@router.post(f"{PATH}/token/new")
def create_token(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Create a token of the person, and show its secret, which cannot be shown again."""
    try:
        scopes, expires_at = token_pages.parse_scopes(form), form.expiry("expires_days")
        workspace_id = _require_membership(session, form).workspace_id
        with database.transaction(workspace_id) as db:
            token, secret = tokens.create_personal_token(
                db, session.person.user_id, workspace_id, scopes, form.text("label"), expires_at
            )
    except SHOWN_ERRORS as error:
        return _show_token_form(request, session, form, error)
    return token_pages.show_secret(request, token, secret, **_BACK)


@router.post(f"{PATH}/token/revoke")
def revoke_token(
    request: Request, session: SignedIn, form: SignedInForm, database: UsesDatabase
) -> Response:
    """Revoke a token of the person."""
    try:
        with database.transaction() as db:
            tokens.revoke_personal_token(db, session.person.user_id, form.text("token_id"))
    except SHOWN_ERRORS as error:
        return _show(request, session, database, error)
    return redirect(PATH, done="token-revoked")


def _require_membership(session: PersonSession, form: FormFields) -> Membership:
    workspace_id = parse_workspace_id(form.text("workspace_id"))
    membership = None if workspace_id is None else session.find_membership(workspace_id)
    if membership is None:
        raise NotFound("you are no member of this workspace")
    return membership


def _show_token_form(
    request: Request,
    session: PersonSession,
    form: FormFields | None = None,
    error: ServiceError | None = None,
) -> Response:
    is_viewer = all(each.role is Role.VIEWER for each in session.memberships)
    return token_pages.show_form(
        request,
        token_pages.scopes_of(Role.VIEWER if is_viewer else Role.EDITOR),
        form,
        error,
        heading="New personal token",
        explanation="It acts for you in one workspace, and ends when you leave it.",
        placeholder="tbupload on my laptop",
        memberships=session.memberships,
        **_BACK,
    )


def _show(
    request: Request,
    session: PersonSession,
    database: Database,
    error: ServiceError | None = None,
    name: str | None = None,
    sign_in_link: str = "",
) -> Response:
    with database.transaction() as db:
        open_sessions = sessions.list_sessions(db, session.person.user_id)
        own_tokens = tokens.list_personal_tokens(db, session.person.user_id)
    return render(
        request,
        "me.html",
        200 if error is None else error.status,
        error="" if error is None else error.detail,
        name=session.person.name if name is None else name,
        sessions=open_sessions,
        sign_in_link=sign_in_link,
        sign_in_link_minutes=limits.SIGN_IN_LINK_LOCAL_SECONDS // 60,
        session_days=limits.PERSON_SESSION_SECONDS_MAX // 86_400,
        idle_days=limits.PERSON_SESSION_IDLE_SECONDS_MAX // 86_400,
        has_providers=has_providers(request),
        tokens=own_tokens,
        may_create_workspaces=get_settings(request).people_create_workspaces,
        workspace_names={each.workspace_id: each.workspace_name for each in session.memberships},
        name_chars_max=limits.PERSON_NAME_CHARS_MAX,
    )
