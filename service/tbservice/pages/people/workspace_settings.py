"""Usage and settings of a workspace, and the form for a new one."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, UsesSettings, get_settings
from tbservice.auth import deletion, workspaces
from tbservice.errors import ServiceError
from tbservice.experiments import usage
from tbservice.pages.base.frame import redirect, render
from tbservice.pages.base.signed_in import SignedIn, SignedInForm
from tbservice.pages.people.workspace_view import (
    SHOWN_ERRORS,
    OwnPage,
    WorkspacePage,
)

_LARGEST_SHOWN: Final = 10
"""Experiments on the page of usage."""

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
def show_usage(page: OwnPage) -> Response:
    """Show what the workspace stores."""
    grant = page.grant_member()
    with page.database.snapshot(grant) as db:
        stored = usage.read_usage(db, grant, _LARGEST_SHOWN)
    return page.render("workspace_usage.html", usage=stored)


@router.get("/{workspace_id}/settings")
def show_settings(page: OwnPage) -> Response:
    """Show the settings of the workspace."""
    page.grant_member()  # raises Suspended
    return _show_settings(page, page.workspace.workspace_name)


@router.post("/{workspace_id}/name")
def rename(page: OwnPage, form: SignedInForm) -> Response:
    """Rename the workspace."""
    name = form.text("name")
    try:
        with page.owner_transaction() as (db, grant):
            workspaces.rename(db, grant, name)
    except SHOWN_ERRORS as error:
        return _show_settings(page, name, error)
    return redirect(f"{page.address}/settings", done="renamed")


@router.post("/{workspace_id}/expiry")
def set_expiry(page: OwnPage, form: SignedInForm) -> Response:
    """Set after how many days new experiments expire; an empty field: never."""
    typed = form.text("days").strip()
    try:
        with page.owner_transaction() as (db, grant):
            workspaces.set_expiry_days(db, grant, _parse_days(typed) if typed else None)
    except SHOWN_ERRORS as error:
        return _show_settings(page, page.workspace.workspace_name, error, typed)
    return redirect(f"{page.address}/settings", done="expiry")


@router.post("/{workspace_id}/delete")
def delete(page: OwnPage, form: SignedInForm) -> Response:
    """Delete the workspace; who asks for it has typed its name."""
    try:
        with page.owner_transaction() as (db, grant):
            deletion.delete_workspace(db, grant, form.text("name"))
    except SHOWN_ERRORS as error:
        return _show_settings(page, page.workspace.workspace_name, error)
    return redirect("/me", done="workspace-deleted")


def _parse_days(typed: str) -> int:
    """Return the number, 0 for what is none: the use case says what is accepted."""
    return int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 9 else 0  # noqa: PLR2004 - digits


def _show_settings(
    page: WorkspacePage,
    name: str,
    error: ServiceError | None = None,
    typed_days: str | None = None,
) -> Response:
    with page.database.snapshot(page.workspace.workspace_id) as db:
        days = workspaces.find_expiry_days(db, page.workspace.workspace_id)
    return page.render(
        "workspace_settings.html",
        error,
        values={"name": name, "days": days or "" if typed_days is None else typed_days},
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
        expiry_days=days,
        expiry_days_max=limits.EXPIRY_DAYS_MAX,
        server=get_settings(page.request).public_url.rstrip("/"),
    )


def _show_new(request: Request, name: str, error: ServiceError | None = None) -> Response:
    return render(
        request,
        "workspace_new.html",
        values={"name": name},
        error=error,
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
    )
