"""The share links of a workspace, by who made them: `/workspace/{id}/links`, for owners.

Links outlast the membership of who made them: this page shows whose they are, and revokes them.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import members
from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.experiments import share_links
from tbservice.pages.base.experiment_admin import admin_transaction
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnWorkspace,
    owner_transaction,
    render_tab,
)
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Membership

_PAGE_ITEMS: Final = 100

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("/links")
def show_links(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    database: UsesDatabase,
    created_by: str = "",
    after: str | None = None,
) -> Response:
    """Show the valid links to the workspace's experiments, the newest first, in pages."""
    return _show(request, session, workspace, database, created_by, after)


@router.post("/link/revoke")
def revoke_link(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Revoke a link of one of the workspace's experiments; the data of a frozen one are deleted."""
    created_by = form.text("created_by")
    try:
        with admin_transaction(database, form.text("experiment_id"), session) as (db, grant):
            share_links.revoke_link(db, grant, form.text("link_id"))
    except SHOWN_ERRORS as error:
        return _show(request, session, workspace, database, created_by, error=error)
    return redirect_to_links(workspace.workspace_id, created_by, "link-revoked")


def redirect_to_links(workspace_id: WorkspaceId, created_by: str, done: str) -> Response:
    """Return a redirect to the links of one creator, or to all with an empty id."""
    query = {"created_by": created_by} if created_by else {}
    return redirect(f"/workspace/{workspace_id}/links", **query, done=done)


def _show(
    request: Request,
    session: PersonSession,
    workspace: Membership,
    database: Database,
    created_by: str,
    after: str | None = None,
    error: ServiceError | None = None,
) -> Response:
    creator = UserId(created_by) if created_by else None
    with owner_transaction(database, session, workspace) as (db, grant):
        page, next_page = share_links.list_workspace_links(db, grant, creator, after, _PAGE_ITEMS)
        roles = {member.person.user_id: member.role for member in members.list_members(db, grant)}
    return render_tab(
        request,
        "workspace_links.html",
        workspace,
        error,
        links=page,
        roles=roles,
        created_by=created_by,
        next_page=next_page,
    )
