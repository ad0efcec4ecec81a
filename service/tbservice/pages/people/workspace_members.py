"""The members of a workspace and its invitations: `/workspace/{id}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesSettings
from tbservice.auth import invitations, members
from tbservice.auth.link_urls import invitation_url
from tbservice.errors import ServiceError
from tbservice.experiments import share_links
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnPage,
    WorkspacePage,
)
from tbservice.pages.sharing.workspace_link_list import redirect_to_links
from tbservice.pages.sign_in.sign_in import has_providers
from tbservice.types.grants import Scope
from tbservice.types.identifiers import UserId
from tbservice.types.people import Role

_DEFAULTS = {"email": "", "role": Role.EDITOR.value, "expires_days": "7"}

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("")
def show_members(page: OwnPage) -> Response:
    """Show members, and to owners, open invitations and a form to invite."""
    return _show(page)


@router.post("/member/role")
def set_role(page: OwnPage, form: SignedInForm) -> Response:
    """Change the role of a member; show the links of one who may make no others now."""
    user_id = UserId(form.text("user_id"))
    try:
        role = Role(form.choice("role", set(Role)))
        with page.owner_transaction() as (db, grant):
            members.set_role(db, grant, user_id, role)
            has_links = user_id in share_links.count_links(db, grant)
    except SHOWN_ERRORS as error:
        return _show(page, error)
    if has_links and Scope.ADMIN not in role.scopes:
        return redirect_to_links(page.address, user_id, "role")
    return redirect(page.address, done="role")


@router.post("/member/remove")
def remove_member(page: OwnPage, form: SignedInForm) -> Response:
    """Remove a member, who may be the person; show the owner the links that outlast them."""
    user_id = UserId(form.text("user_id"))
    try:
        with page.owner_transaction() as (db, grant):
            members.remove_member(db, grant, user_id)
            has_links = user_id in share_links.count_links(db, grant)
    except SHOWN_ERRORS as error:
        return _show(page, error)
    if user_id == page.session.person.user_id:
        return redirect("/me", done="left")
    if has_links:
        return redirect_to_links(page.address, user_id, "removed")
    return redirect(page.address, done="removed")


@router.post("/invitation")
def invite(page: OwnPage, form: SignedInForm, settings: UsesSettings) -> Response:
    """Create an invitation, and show its link, which cannot be shown again."""
    try:
        role = Role(form.choice("role", set(Role)))
        expires_at = form.expiry("expires_days")
        with page.owner_transaction() as (db, grant):
            invitation, secret = invitations.invite(db, grant, role, form.text("email"), expires_at)
    except SHOWN_ERRORS as error:
        return _show(page, error, values=_values(form))
    return _show(
        page,
        invitation=invitation,
        invitation_link=invitation_url(settings.public_url, secret),
    )


@router.post("/invitation/revoke")
def revoke_invitation(page: OwnPage, form: SignedInForm) -> Response:
    """Revoke an open invitation."""
    try:
        with page.owner_transaction() as (db, grant):
            invitations.revoke(db, grant, form.text("invitation_id"))
    except SHOWN_ERRORS as error:
        return _show(page, error)
    return redirect(page.address, done="invitation-revoked")


def _values(form: FormFields) -> dict[str, str]:
    return {name: form.text(name) for name in _DEFAULTS}


def _show(
    page: WorkspacePage,
    error: ServiceError | None = None,
    **context: Any,
) -> Response:
    grant = page.grant_member()
    with page.database.transaction(grant) as db:
        listed = members.list_members(db, grant)
    context = {
        "members": listed,
        "invitations": [],
        "link_counts": {},
        "invitation_link": "",
        "values": _DEFAULTS,
        "has_providers": has_providers(page.request),
        "session_days": limits.PERSON_SESSION_SECONDS_MAX // 86_400,
        "idle_days": limits.PERSON_SESSION_IDLE_SECONDS_MAX // 86_400,
        "days_max": limits.INVITATION_SECONDS_MAX // 86_400,
    } | context
    if page.workspace.role is Role.OWNER:
        with page.owner_transaction() as (db, owner_grant):
            context["invitations"] = invitations.list_invitations(db, owner_grant)
            context["link_counts"] = share_links.count_links(db, owner_grant)
    return page.render("workspace_members.html", error, **context)
