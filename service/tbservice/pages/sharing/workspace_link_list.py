"""The share links of a workspace, by who made them: `/workspace/{id}/links`, for owners.

Links outlast the membership of who made them: this page shows whose they are, and revokes them.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.auth import members
from tbservice.errors import ServiceError
from tbservice.experiments import share_links
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnPage,
    WorkspacePage,
)
from tbservice.types.identifiers import UserId

_PAGE_ITEMS: Final = 100

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("/links")
def show_links(page: OwnPage, created_by: str = "", after: str | None = None) -> Response:
    """Show the valid links to the workspace's experiments, the newest first, in pages."""
    return _show(page, created_by, after)


@router.post("/link/revoke")
def revoke_link(page: OwnPage, form: SignedInForm) -> Response:
    """Revoke a link of one of the workspace's experiments; the data of a frozen one are deleted."""
    created_by = form.text("created_by")
    try:
        place = form.text("experiment_id")
        with page.admin_transaction(place, allows_kept_copy=True) as (db, grant):
            share_links.revoke_link(db, grant, form.text("link_id"))
    except SHOWN_ERRORS as error:
        return _show(page, created_by, error=error)
    return redirect_to_links(page.address, created_by, "link-revoked")


def redirect_to_links(workspace: str, created_by: str, done: str) -> Response:
    """Return a redirect to the links of one creator, or to all with an empty id.

    `workspace` is `WorkspacePage.address`.
    """
    query = {"created_by": created_by} if created_by else {}
    return redirect(f"{workspace}/links", **query, done=done)


def _show(
    page: WorkspacePage,
    created_by: str,
    after: str | None = None,
    error: ServiceError | None = None,
) -> Response:
    creator = UserId(created_by) if created_by else None
    with page.owner_transaction() as (db, grant):
        links, next_page = share_links.list_workspace_links(db, grant, creator, after, _PAGE_ITEMS)
        roles = {member.person.user_id: member.role for member in members.list_members(db, grant)}
    return page.render(
        "workspace_links.html",
        error,
        links=links,
        roles=roles,
        created_by=created_by,
        next_page=next_page,
    )
