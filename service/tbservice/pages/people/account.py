"""The page of the person who is signed in: name, workspaces, tokens, browsers."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Final

from fastapi import APIRouter
from markupsafe import Markup
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.api_docs import TriedToken, show_with_token
from tbservice.api.http.dependencies import UsesSettings, get_settings
from tbservice.audit import receipts
from tbservice.audit.recording import NO_WORKSPACE
from tbservice.audit.signatures import sign
from tbservice.auth import deletion, members, people, sessions, sign_in_links, tokens
from tbservice.auth.link_urls import sign_in_url
from tbservice.errors import NotFound, ServiceError
from tbservice.pages.base.csrf import csrf_field
from tbservice.pages.base.forms import FormFields, end_after
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_page import PersonPage, SignedInPage
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.base.static_files import static_url
from tbservice.pages.base.templates import clip
from tbservice.pages.people import token_pages
from tbservice.pages.people.workspace_view import SHOWN_ERRORS, parse_workspace_id
from tbservice.pages.sign_in.sign_in import has_providers
from tbservice.types.audit import AuditRecord
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership, Role, Token

PATH: Final = "/me"

TRY_TOKEN_SECONDS: Final = 3_600
"""Seconds after which a token ends that the API page tries requests with."""

TRY_TOKEN_LABEL: Final = "API page"  # noqa: S105 - no secret

_EXPLANATION: Final = "It acts for you in one workspace, and ends when you leave it."
_TRY_EXPLANATION: Final = (
    "A new token acts for you in one workspace, for an hour. It is in that page alone, until you "
    "leave it; you can revoke it there, and in your account."
)
_BACK_TO_DOCS: Final = {"section": "me", "back": "/api/v1/docs", "back_name": "HTTP API"}
_BACK: Final = {"section": "me", "back": PATH, "back_name": "Account"}

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def show_me(page: SignedInPage) -> Response:
    """Show the account of the person who is signed in."""
    return _show(page)


@router.post(f"{PATH}/name")
def rename(page: SignedInPage, form: SignedInForm) -> Response:
    """Change the person's name."""
    name = form.text("name")
    try:
        with page.database.transaction() as db:
            people.rename(db, page.session.person.user_id, name)
    except SHOWN_ERRORS as error:
        return _show(page, error, name)
    return redirect(PATH, done="renamed")


@router.post(f"{PATH}/session/end")
def end_session(page: SignedInPage, form: SignedInForm) -> Response:
    """Sign a browser of the person out, which may be this one."""
    try:
        with page.database.transaction() as db:
            sessions.revoke_session(db, page.session.person.user_id, form.text("session_id"))
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect(PATH, done="session-ended")


@router.post(f"{PATH}/session/end-others")
def end_other_sessions(page: SignedInPage, _form: SignedInForm) -> Response:
    """Sign all other browsers of the person out."""
    with page.database.transaction() as db:
        sessions.revoke_other_sessions(db, page.session.person.user_id, page.session.session_id)
    return redirect(PATH, done="sessions-ended")


@router.post(f"{PATH}/sign-in-link")
def create_sign_in_link(
    page: SignedInPage, _form: SignedInForm, settings: UsesSettings
) -> Response:
    """Create a link that signs the person in on another browser, and show it this once."""
    try:
        with page.database.transaction() as db:
            secret = sign_in_links.create_own_link(
                db, page.session.person.user_id, has_providers=has_providers(page.request)
            )
    except SHOWN_ERRORS as error:
        return _show(page, error)
    link = sign_in_url(settings.public_url, secret)
    return _show(page, sign_in_link=link)


@router.post(f"{PATH}/leave")
def leave(page: SignedInPage, form: SignedInForm) -> Response:
    """Leave a workspace."""
    try:
        workspace_id = _require_membership(page.session, form).workspace_id
        with page.database.transaction(workspace_id) as db:
            members.leave(db, workspace_id, page.session.person.user_id)
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect(PATH, done="left")


@router.post(f"{PATH}/delete")
def delete(page: SignedInPage, form: SignedInForm) -> Response:
    """Delete the person, who has typed their address and signed in recently."""
    session = page.session
    try:
        with page.database.transaction() as db:
            deletion.delete_own_account(db, session.person, session.session_id, form.text("typed"))
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect("/sign-in", done="deleted")


@router.post(f"{PATH}/workspace/restore")
def restore_workspace(page: SignedInPage, form: SignedInForm) -> Response:
    """Undo the deletion of a workspace that the person owns."""
    try:
        workspace_id = parse_workspace_id(form.text("workspace_id"))
        if workspace_id is None:
            raise NotFound("there is no such deleted workspace, or it is not yours")
        with page.database.transaction(workspace_id) as db:
            deletion.restore_workspace(db, page.session.person.user_id, workspace_id)
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect(f"/workspace/{workspace_id}", done="restored")


@router.get(f"{PATH}/receipt/{{workspace_id}}")
def download_receipts(page: SignedInPage, settings: UsesSettings, workspace_id: str) -> Response:
    """Return the receipts of an erased workspace that the person has deleted, as a JSON file."""
    erased = next(
        (each for each, details in _list_erased(page) if details["workspace"] == workspace_id), None
    )
    if erased is None:
        raise NotFound("there is no such receipt")
    own_id = WorkspaceId(int(workspace_id))
    with page.database.snapshot(own_id) as db:
        found = receipts.list_of_erased(db, own_id)
    name = f"receipts-workspace-{own_id}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    stated = [each.to_json(settings.backup_keep_days) for each in found]
    signed = [sign(each, settings.receipt_keys, settings.public_url) for each in stated]
    return Response(json.dumps(signed, indent=2), 200, headers, "application/json")


def _list_erased(page: PersonPage) -> list[tuple[AuditRecord, dict[str, str]]]:
    """Return the erased workspaces that the person has deleted, with the details of the record."""
    with page.database.snapshot(NO_WORKSPACE) as db:
        records = receipts.list_erased_workspaces(db, page.session.person.user_id)
    return [(each, json.loads(each.details)) for each in records]


@router.get(f"{PATH}/token/new")
def show_new_token(page: SignedInPage) -> Response:
    """Show the form for a new token of the person."""
    return _show_token_form(page)


@router.post(f"{PATH}/token/new")
def create_token(page: SignedInPage, form: SignedInForm) -> Response:
    """Create a token of the person, and show its secret, which cannot be shown again."""
    try:
        expires_at = form.expiry("expires_days")
        token, secret, _ = _create_token(page, form, form.text("label"), expires_at)
    except SHOWN_ERRORS as error:
        return _show_token_form(page, form, error)
    return token_pages.show_secret(page.request, token, secret, **_BACK)


@router.get(f"{PATH}/token/try")
def show_try_form(page: SignedInPage) -> Response:
    """Show the form for a token with which the API page tries requests."""
    return _show_token_form(page, is_for_trying=True)


@router.post(f"{PATH}/token/try")
def try_token(page: SignedInPage, form: SignedInForm) -> Response:
    """Create a token of an hour, and show the API page with it, which keeps it in memory.

    The answer of a form has it, so that no script needs a right to make tokens.
    """
    expires_at = end_after(timedelta(seconds=TRY_TOKEN_SECONDS))
    try:
        token, secret, membership = _create_token(page, form, TRY_TOKEN_LABEL, expires_at)
    except SHOWN_ERRORS as error:
        return _show_token_form(page, form, error, is_for_trying=True)
    description = (
        f"A token for {' and '.join(token.scopes)} in {clip(membership.workspace_name, 60)} is in "
        f"this page alone, until you leave it, and ends at {expires_at:%H:%M} UTC. It is listed "
        f"under your account as “{TRY_TOKEN_LABEL}”."
    )
    revoke = csrf_field(page.session.secret) + Markup(
        '<input type="hidden" name="token_id" value="{}">'
    ).format(token.token_id)
    tried = TriedToken(secret, description, revoke)
    return show_with_token(page.request, static_url, tried)


@router.post(f"{PATH}/token/revoke")
def revoke_token(page: SignedInPage, form: SignedInForm) -> Response:
    """Revoke a token of the person."""
    try:
        with page.database.transaction() as db:
            tokens.revoke_personal_token(db, page.session.person.user_id, form.text("token_id"))
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect(PATH, done="token-revoked")


def _create_token(
    page: PersonPage, form: FormFields, label: str, expires_at: datetime | None
) -> tuple[Token, str, Membership]:
    """Create a token of the person with scopes and workspace of the form. Raises SHOWN_ERRORS."""
    scopes, membership = token_pages.parse_scopes(form), _require_membership(page.session, form)
    user_id, workspace_id = page.session.person.user_id, membership.workspace_id
    with page.database.transaction(workspace_id) as db:
        created = tokens.create_personal_token(db, user_id, workspace_id, scopes, label, expires_at)
    return *created, membership


def _require_membership(session: PersonSession, form: FormFields) -> Membership:
    workspace_id = parse_workspace_id(form.text("workspace_id"))
    membership = None if workspace_id is None else session.find_membership(workspace_id)
    if membership is None:
        raise NotFound("you are no member of this workspace")
    return membership


def _show_token_form(
    page: PersonPage,
    form: FormFields | None = None,
    error: ServiceError | None = None,
    *,
    is_for_trying: bool = False,
) -> Response:
    memberships = page.session.memberships
    is_viewer = all(each.role is Role.VIEWER for each in memberships)
    return token_pages.show_form(
        page.request,
        token_pages.scopes_of(Role.VIEWER if is_viewer else Role.EDITOR),
        form,
        error,
        is_for_trying=is_for_trying,
        heading="Try requests on the API page" if is_for_trying else "New personal token",
        explanation=_TRY_EXPLANATION if is_for_trying else _EXPLANATION,
        placeholder="tbupload on my laptop",
        memberships=memberships,
        **(_BACK_TO_DOCS if is_for_trying else _BACK),
    )


def _show(
    page: PersonPage,
    error: ServiceError | None = None,
    name: str | None = None,
    sign_in_link: str = "",
) -> Response:
    session = page.session
    with page.database.transaction() as db:
        open_sessions = sessions.list_sessions(db, session.person.user_id)
        own_tokens = tokens.list_personal_tokens(db, session.person.user_id)
        deleted = deletion.list_restorable(db, session.person.user_id)
    return page.render(
        "me.html",
        error,
        name=session.person.name if name is None else name,
        sessions=open_sessions,
        sign_in_link=sign_in_link,
        sign_in_link_minutes=limits.SIGN_IN_LINK_LOCAL_SECONDS // 60,
        session_days=limits.PERSON_SESSION_SECONDS_MAX // 86_400,
        idle_days=limits.PERSON_SESSION_IDLE_SECONDS_MAX // 86_400,
        has_providers=has_providers(page.request),
        tokens=own_tokens,
        deleted_workspaces=deleted,
        erased_workspaces=_list_erased(page),
        may_create_workspaces=get_settings(page.request).people_create_workspaces,
        workspace_names={each.workspace_id: each.workspace_name for each in session.memberships},
        name_chars_max=limits.PERSON_NAME_CHARS_MAX,
    )
