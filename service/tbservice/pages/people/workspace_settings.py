"""Usage and settings of a workspace, and the form for a new one."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, UsesSettings, get_settings
from tbservice.auth import grants, workspaces
from tbservice.errors import ServiceError
from tbservice.experiments import usage
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnWorkspace,
    owner_transaction,
    render_tab,
)
from tbservice.types.grants import Scope
from tbservice.types.people import Membership

router = APIRouter(prefix="/workspace", include_in_schema=False)


@router.get("/new")
def show_new_workspace(request: Request, _session: SignedIn) -> Response:
    """Show the form for a new workspace."""
    return _show_new(request, "")


@router.post("/new")
def create_workspace(
    request: Request,
    session: SignedIn,
    form: SignedInForm,
    database: UsesDatabase,
    settings: UsesSettings,
) -> Response:
    """Create a workspace that the person owns."""
    name = form.text("name")
    try:
        with database.transaction() as db:
            created = workspaces.create_for_person(
                db, session.person.user_id, name, is_permitted=settings.people_create_workspaces
            )
    except SHOWN_ERRORS as error:
        return _show_new(request, name, error)
    return redirect(f"/workspace/{created.workspace_id}", done="created")


@router.get("/{workspace_id}/usage")
def show_usage(
    request: Request, session: SignedIn, workspace: OwnWorkspace, database: UsesDatabase
) -> Response:
    """Show what the workspace stores."""
    workspace_id = workspace.workspace_id
    with database.without_transaction() as db:
        grant = grants.grant_workspace(db, session.secret, Scope.READ, workspace_id)
    with database.snapshot(workspace_id) as db:
        stored = usage.read_usage(db, grant)
    return render_tab(request, "workspace_usage.html", workspace, usage=stored)


@router.get("/{workspace_id}/settings")
def show_settings(request: Request, _session: SignedIn, workspace: OwnWorkspace) -> Response:
    """Show the settings of the workspace."""
    return _show_settings(request, workspace, workspace.workspace_name)


@router.post("/{workspace_id}/name")
def rename(
    request: Request,
    session: SignedIn,
    workspace: OwnWorkspace,
    form: SignedInForm,
    database: UsesDatabase,
) -> Response:
    """Rename the workspace."""
    name = form.text("name")
    try:
        with owner_transaction(database, session, workspace) as (db, grant):
            workspaces.rename(db, grant, name)
    except SHOWN_ERRORS as error:
        return _show_settings(request, workspace, name, error)
    return redirect(f"/workspace/{workspace.workspace_id}/settings", done="renamed")


def _show_settings(
    request: Request, workspace: Membership, name: str, error: ServiceError | None = None
) -> Response:
    return render_tab(
        request,
        "workspace_settings.html",
        workspace,
        error,
        values={"name": name},
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
        server=get_settings(request).public_url.rstrip("/"),
    )


def _show_new(request: Request, name: str, error: ServiceError | None = None) -> Response:
    return render(
        request,
        "workspace_new.html",
        200 if error is None else error.status,
        values={"name": name},
        error="" if error is None else error.detail,
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
    )
