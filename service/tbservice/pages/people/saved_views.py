"""Views of the page of runs: opened by a short address, saved, renamed, deleted and shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesIngest, UsesSettings
from tbservice.errors import NotFound, ServiceError, TooLarge
from tbservice.experiments import share_links
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import SignedInForm
from tbservice.pages.people.workspace_view import SHOWN_ERRORS, OwnPage, WorkspacePage
from tbservice.runs import view_links
from tbservice.runs.views import (
    COMPARE_PAGE,
    RUNS_PAGE,
    VIEW_NAME_CHARS_MAX,
    ViewChange,
    ViewVersion,
    clean_query,
    delete_view,
    get_versions,
    list_views,
    save_view,
)
from tbservice.types.grants import Scope, WorkspaceGrant
from tbservice.types.people import Role

VIEW_ID_CHARS_MAX: Final = 20
"""Characters of the id of a view that are looked for."""

router = APIRouter(include_in_schema=False)

_PATHS: Final = {RUNS_PAGE: "runs", COMPARE_PAGE: "runs/compare"}
_DIGITS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class ShownViews:
    """The views of a workspace for one of its pages, the open one, and what would be saved."""

    page: str
    query: str
    listed: list[ViewVersion]
    current: ViewVersion | None
    is_missing: bool
    may_save: bool
    name_chars_max: int = VIEW_NAME_CHARS_MAX

    @property
    def is_changed(self) -> bool:
        """Return whether the page shows another state than the open view."""
        view = self.current
        return view is not None and (view.page, view.query) != (self.page, self.query)


def read_shown_views(page: WorkspacePage, name: str, view_id: str, query: str) -> ShownViews:
    """Return the views for the page of this name, whose address has the query.

    Raises Invalid for a query that is too long to be kept.
    """
    grant = page.grant_read()
    with page.database.snapshot(grant) as db:
        listed = list_views(db, grant)
    current = next((view for view in listed if view.view_id == view_id), None)
    return ShownViews(
        name,
        clean_query(name, query),
        listed,
        current,
        is_missing=bool(view_id) and current is None,
        may_save=page.workspace.role is not Role.VIEWER,
    )


@router.get("/workspace/{workspace_id}/view/{view_id}")
def open_view(page: OwnPage, view_id: str, version: str = "") -> Response:
    """Redirect to what a view shows, or what an earlier version of it showed. Raises NotFound."""
    versions = _read_versions(page, view_id)
    if version:
        is_number = version.isascii() and version.isdigit() and len(version) <= _DIGITS_MAX
        versions = [each for each in versions if is_number and each.version == int(version)]
        if not versions:
            raise NotFound("the view has no such version: the last 50 are kept")
    view = versions[0]
    query = f"{view.query}&view={view.view_id}" if view.query else f"view={view.view_id}"
    return redirect(f"{page.address}/{_PATHS[view.page]}?{query}")


@router.get("/workspace/{workspace_id}/views/{view_id}")
def show_view(page: OwnPage, view_id: str) -> Response:
    """Show the history of a view, with forms to rename, share and delete it. Raises NotFound."""
    return _show(page, _read_versions(page, view_id))


@router.post("/workspace/{workspace_id}/views")
def save_new_view(page: OwnPage, form: SignedInForm) -> Response:
    """Save the state of a page under a name."""
    name, page_name, query = form.text("name"), form.text("page"), form.text("query")
    try:
        with _change(page) as (db, grant):
            view = save_view(db, grant, ViewChange(name, page_name, query))
    except SHOWN_ERRORS as error:
        return page.render(
            "saved_view.html",
            error,
            versions=[],
            typed={"name": name, "page": page_name, "query": query},
            name_chars_max=VIEW_NAME_CHARS_MAX,
        )
    return redirect(f"{page.address}/view/{view.view_id}")


@router.post("/workspace/{workspace_id}/views/{view_id}")
def change_view(page: OwnPage, view_id: str, form: SignedInForm) -> Response:
    """Save the state of a page as the next version of a view, rename it, or delete it."""
    try:
        with _change(page) as (db, grant):
            if form.text("act") == "delete":
                delete_view(db, grant, view_id)
                return redirect(f"{page.address}/runs", done="view-deleted")
            if form.text("act") == "rename":
                save_view(db, grant, ViewChange(name=form.text("name")), view_id)
                return redirect(f"{page.address}/views/{view_id}")
            change = ViewChange(page=form.text("page"), query=form.text("query"))
            save_view(db, grant, change, view_id)
    except SHOWN_ERRORS as error:
        return _show(page, _read_versions(page, view_id), error)
    return redirect(f"{page.address}/view/{view_id}")


@router.post("/workspace/{workspace_id}/views/{view_id}/share")
def share_view(
    page: OwnPage, view_id: str, form: SignedInForm, ingest: UsesIngest, settings: UsesSettings
) -> Response:
    """Create a share link of each experiment that the view shows now, and show their address."""
    versions = _read_versions(page, view_id)
    grant = page.grant_read()
    try:
        with page.database.snapshot(grant) as db:
            shown = view_links.list_shown(
                db, grant, versions[0], with_hparams=bool(form.text("hparams"))
            )
        links = share_links.create_links(
            ingest.door,
            [(page.grant_admin(each.experiment_id), each.runs, each.tags) for each in shown],
            f"view: {versions[0].name}",
            form.expiry("expires_days"),
        )
    except (*SHOWN_ERRORS, TooLarge) as error:
        return _show(page, versions, error)
    url = view_links.make_address(settings.public_url, shown, [secret for _, secret in links])
    return _show(page, versions, url=url)


@contextmanager
def _change(page: WorkspacePage) -> Iterator[tuple[Connection, WorkspaceGrant]]:
    """Open a transaction with the right to change what the workspace has. Raises Forbidden."""
    grant = page.grant_workspace(Scope.ADMIN, page.workspace.workspace_id)
    with page.database.transaction(grant) as db:
        yield db, grant


def _read_versions(page: WorkspacePage, view_id: str) -> list[ViewVersion]:
    grant = page.grant_read()
    with page.database.snapshot(grant) as db:
        return get_versions(db, grant, view_id)


def _show(
    page: WorkspacePage,
    versions: list[ViewVersion],
    error: ServiceError | None = None,
    url: str = "",
) -> Response:
    return page.render(
        "saved_view.html",
        error,
        versions=versions,
        url=url,
        typed={},
        may_save=page.workspace.role is not Role.VIEWER,
        name_chars_max=VIEW_NAME_CHARS_MAX,
    )
