"""The members of a workspace and its invitations: `/workspace/{id}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, UsesSettings
from tbservice.auth import grants, invitations, members
from tbservice.auth.link_urls import invitation_url
from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.experiments import share_links
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnWorkspace,
    owner_transaction,
    render_tab,
)
from tbservice.pages.sharing.workspace_link_list import redirect_to_links
from tbservice.pages.sign_in.sign_in import has_providers
from tbservice.types.grants import Scope
from tbservice.types.identifiers import UserId
from tbservice.types.people import Membership, Role

_DEFAULTS = {"email": "", "role": Role.EDITOR.value, "expires_days": "7"}

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("")
def show_members(
    request: Request, session: SignedIn, workspace: OwnWorkspace, database: UsesDatabase
) -> Response:
    """Show members, and to owners, open invitations and a form to invite."""
    return _show(request, session, workspace, database)


@router.post("/member/role")
def set_role(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Change the role of a member; show the links of one who may make no others now."""
    user_id = UserId(form.text("user_id"))
    try:
        role = Role(form.choice("role", set(Role)))
        with owner_transaction(database, session, workspace) as (db, grant):
            members.set_role(db, grant, user_id, role)
            has_links = user_id in share_links.count_links(db, grant)
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, error)
    if has_links and Scope.ADMIN not in role.scopes:
        return redirect_to_links(workspace.workspace_id, user_id, "role")
    return redirect(f"/workspace/{workspace.workspace_id}", done="role")


@router.post("/member/remove")
def remove_member(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Remove a member, who may be the person; show the owner the links that outlast them."""
    user_id = UserId(form.text("user_id"))
    try:
        with owner_transaction(database, session, workspace) as (db, grant):
            members.remove_member(db, grant, user_id)
            has_links = user_id in share_links.count_links(db, grant)
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, error)
    if user_id == session.person.user_id:
        return redirect("/me", done="left")
    if has_links:
        return redirect_to_links(workspace.workspace_id, user_id, "removed")
    return redirect(f"/workspace/{workspace.workspace_id}", done="removed")


@router.post("/invitation")
def invite(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
    settings: UsesSettings,
) -> Response:
    """Create an invitation, and show its link, which cannot be shown again."""
    try:
        role = Role(form.choice("role", set(Role)))
        expires_at = form.expiry("expires_days")
        with owner_transaction(database, session, workspace) as (db, grant):
            invitation, secret = invitations.invite(db, grant, role, form.text("email"), expires_at)
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, error, values=_values(form))
    return _show(
        request,
        session,
        workspace,
        database,
        invitation=invitation,
        invitation_link=invitation_url(settings.public_url, secret),
    )


@router.post("/invitation/revoke")
def revoke_invitation(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Revoke an open invitation."""
    try:
        with owner_transaction(database, session, workspace) as (db, grant):
            invitations.revoke(db, grant, form.text("invitation_id"))
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, error)
    return redirect(f"/workspace/{workspace.workspace_id}", done="invitation-revoked")


def _values(form: FormFields) -> dict[str, str]:
    return {name: form.text(name) for name in _DEFAULTS}


def _show(
    request: Request,
    session: PersonSession,
    workspace: Membership,
    database: Database,
    error: ServiceError | None = None,
    **context: Any,
) -> Response:
    workspace_id = workspace.workspace_id
    with database.without_transaction() as db:
        grant = grants.grant_workspace(db, session.secret, Scope.READ, workspace_id)
    with database.transaction(workspace_id) as db:
        listed = members.list_members(db, grant)
    context = {
        "members": listed,
        "invitations": [],
        "link_counts": {},
        "invitation_link": "",
        "values": _DEFAULTS,
        "has_providers": has_providers(request),
        "session_days": limits.PERSON_SESSION_SECONDS_MAX // 86_400,
        "idle_days": limits.PERSON_SESSION_IDLE_SECONDS_MAX // 86_400,
        "days_max": limits.INVITATION_SECONDS_MAX // 86_400,
    } | context
    if workspace.role is Role.OWNER:
        with owner_transaction(database, session, workspace) as (db, owner_grant):
            context["invitations"] = invitations.list_invitations(db, owner_grant)
            context["link_counts"] = share_links.count_links(db, owner_grant)
    return render_tab(request, "workspace_members.html", workspace, error, **context)
