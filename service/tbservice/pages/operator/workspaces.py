"""Workspaces for an operator: the list of all, and the page of one."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.auth import members, suspensions, tokens
from tbservice.errors import NotFound, ServiceError
from tbservice.experiments import quota_changes, share_links, usage, workspace_overview
from tbservice.pages.base.frame import redirect
from tbservice.pages.operator.acts import ActedOn, perform
from tbservice.pages.operator.operator_page import (
    PATH,
    Listing,
    OperatorForm,
    OperatorPage,
    OwnPage,
)
from tbservice.pages.people.workspace_view import SHOWN_ERRORS, parse_workspace_id
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import QUOTA_MAX

_ROWS: Final = 100
"""Tokens, links or experiments (items) of a workspace that its page shows: newest, largest."""

router = APIRouter(prefix=PATH, include_in_schema=False)


@router.get("")
def show_workspaces(page: OwnPage) -> Response:
    """Show all workspaces, those with the most bytes first, in pages."""
    listing = Listing(page.request, workspace_overview.ORDERS, workspace_overview.STATES)
    with page.database.transaction() as db:
        total, found = workspace_overview.list_page(db, *listing.arguments())
    return page.render("workspaces.html", listing=listing, total=total, workspaces=found)


@router.get("/workspace/{workspace_id}")
def show_workspace(page: OwnPage, workspace_id: str) -> Response:
    """Show a workspace with its members, tokens, links, quota and usage."""
    return _show(page, _parse(workspace_id))


@router.post("/workspace/{workspace_id}")
def change_workspace(page: OwnPage, form: OperatorForm, workspace_id: str) -> Response:
    """Do to the workspace, or to one of its links or tokens, what the form says."""
    known_id = _parse(workspace_id)
    try:
        done = perform(page, form, ActedOn(workspace_id=known_id))
    except SHOWN_ERRORS as error:
        return _show(page, known_id, error)
    return redirect(f"{PATH}/workspace/{known_id}", done=done)


def _parse(workspace_id: str) -> WorkspaceId:
    known_id = parse_workspace_id(workspace_id)
    if known_id is None:
        raise NotFound("there is no such workspace")
    return known_id


def _show(
    page: OperatorPage, workspace_id: WorkspaceId, error: ServiceError | None = None
) -> Response:
    with page.database.transaction() as db:
        details = workspace_overview.describe_one(db, workspace_id)
        grant = workspace_overview.administrate(db, workspace_id)
        listed, _ = tokens.list_workspace_tokens(db, grant, None, _ROWS)
        links, _ = share_links.list_workspace_links(db, grant, None, None, _ROWS)
        quota = quota_changes.describe_quota(db, workspace_id)
        found = members.list_members(db, grant)
        stored = usage.read_usage(db, WorkspaceGrant(workspace_id), _ROWS)
        reasons = {each.subject: each.reason for each in suspensions.list_suspended(db)}
    return page.render(
        "workspace.html",
        error,
        details=details,
        members=found,
        tokens=listed,
        links=links,
        quota=quota,
        usage=stored,
        reasons=reasons,
        quota_max=QUOTA_MAX,
    )
