"""Routes of views: the state of the page of runs under a name."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import status
from pydantic import BaseModel, Field, StrictBool

from tbservice.api.http.dependencies import (
    MayListIn,
    MayManageIn,
    Secret,
    UsesDatabase,
    UsesIngest,
    UsesSettings,
)
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import EndTime
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.experiments import share_links
from tbservice.runs import view_links
from tbservice.runs.views import (
    VIEW_NAME_CHARS_MAX,
    VIEW_QUERY_CHARS_MAX,
    ViewChange,
    ViewVersion,
    delete_view,
    get_versions,
    list_views,
    save_view,
)
from tbservice.types.grants import AdminGrant
from tbservice.types.identifiers import ExperimentId, UserId

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/views", tags=["runs"])

_PageName = Literal["runs", "compare"]


class ViewChanges(FewFields):
    """Changes of a view; what is absent stays."""

    name: str | None = Field(default=None, min_length=1, max_length=VIEW_NAME_CHARS_MAX)
    page: _PageName | None = Field(
        default=None, description="The table of runs, or a comparison of runs"
    )
    query: str | None = Field(
        default=None,
        max_length=VIEW_QUERY_CHARS_MAX,
        description="Query of the address of that page, as `where=lr%20%3C%200.01&columns=lr,loss`",
    )


class NewView(ViewChanges):
    """A view to save."""

    name: str = Field(min_length=1, max_length=VIEW_NAME_CHARS_MAX)
    page: _PageName = Field(
        default="runs", description="The table of runs, or a comparison of runs"
    )
    query: str = Field(
        max_length=VIEW_QUERY_CHARS_MAX,
        description="Query of the address of that page, as `where=lr%20%3C%200.01&columns=lr,loss`",
    )


class ViewAnswer(BaseModel):
    """A version of a view."""

    id: str
    version: int = Field(description="From 1")
    name: str
    page: _PageName
    query: str
    url: str = Field(description="The address that opens the last version, for members")
    saved_by: UserId | None = Field(description="null for a machine")
    saved_at: datetime


class ViewsAnswer(BaseModel):
    """The views of a workspace, by name."""

    views: list[ViewAnswer]


class ViewHistory(BaseModel):
    """The versions of a view, the last one first; 50 are kept."""

    versions: list[ViewAnswer]


class NewViewLink(FewFields):
    """Options of a link of a view."""

    hparams: StrictBool = Field(
        default=False, description="Show all hyperparameters of the runs, too"
    )
    expires_at: EndTime = None


class LinkOfExperiment(BaseModel):
    """The share link of one experiment."""

    experiment_id: ExperimentId
    id: str
    runs: str | None
    tags: str | None


class ViewLinkAnswer(BaseModel):
    """The address that opens what a view shows, and the share links that it is made of."""

    url: str = Field(description="Store it now: it is not shown again")
    links: list[LinkOfExperiment]


@router.get("")
def list_workspace_views(
    grant: MayListIn, database: UsesDatabase, settings: UsesSettings
) -> ViewsAnswer:
    """List the views of a workspace. Needs a token or a session that may read it."""
    with database.snapshot(grant) as db:
        views = list_views(db, grant)
    return ViewsAnswer(views=[_answer(grant.workspace_id, view, settings) for view in views])


@router.post("", status_code=status.HTTP_201_CREATED)
def create_view(
    grant: MayManageIn, new: NewView, database: UsesDatabase, settings: UsesSettings
) -> ViewAnswer:
    """Save the state of a page of runs under a name. Needs the scope admin.

    A name that another view has is refused with 409. Of the query, parameters that the page does
    not have are left out.
    """
    with database.transaction(grant) as db:
        view = save_view(db, grant, ViewChange(new.name, new.page, new.query))
    return _answer(grant.workspace_id, view, settings)


@router.get("/{view_id}")
def show_view(
    grant: MayListIn, view_id: str, database: UsesDatabase, settings: UsesSettings
) -> ViewHistory:
    """Return the versions of a view. Needs a token or a session that may read the workspace."""
    with database.snapshot(grant) as db:
        versions = get_versions(db, grant, view_id)
    return ViewHistory(versions=[_answer(grant.workspace_id, each, settings) for each in versions])


@router.patch("/{view_id}")
def change_view(
    grant: MayManageIn,
    view_id: str,
    changes: ViewChanges,
    database: UsesDatabase,
    settings: UsesSettings,
) -> ViewAnswer:
    """Save the next version of a view, which may have another name. Needs the scope admin."""
    with database.transaction(grant) as db:
        view = save_view(db, grant, ViewChange(changes.name, changes.page, changes.query), view_id)
    return _answer(grant.workspace_id, view, settings)


@router.delete("/{view_id}", status_code=status.HTTP_204_NO_CONTENT)
def remove_view(grant: MayManageIn, view_id: str, database: UsesDatabase) -> None:
    """Delete a view with its history; its links stay. Needs the scope admin."""
    with database.transaction(grant) as db:
        delete_view(db, grant, view_id)


@router.post("/{view_id}/links", status_code=status.HTTP_201_CREATED)
def share_view(
    grant: MayManageIn,
    view_id: str,
    new: NewViewLink,
    secret: Secret,
    ingest: UsesIngest,
    settings: UsesSettings,
) -> ViewLinkAnswer:
    """Create an address that shows others, without an account, what the view shows now.

    It is made of a share link of each experiment (at most 10): of the runs that the view selects
    (without a filter: all, also later ones), and the metrics of its columns. They are listed and
    revoked with the other links of their experiments. Needs the scope admin.
    """
    with ingest.database.snapshot(grant) as db:
        view = get_versions(db, grant, view_id)[0]
        shown = view_links.list_shown(db, grant, view, with_hparams=new.hparams)
    links = share_links.create_links(
        ingest.door,
        [
            (_grant_admin(ingest.database, each.experiment_id, secret), each.runs, each.tags)
            for each in shown
        ],
        f"view: {view.name}",
        new.expires_at,
    )
    secrets = [secret for _, secret in links]
    return ViewLinkAnswer(
        url=view_links.make_address(settings.public_url, shown, secrets),
        links=[
            LinkOfExperiment(
                experiment_id=each.experiment_id, id=link.token_id, runs=each.runs, tags=each.tags
            )
            for each, (link, _) in zip(shown, links, strict=True)
        ],
    )


def _grant_admin(database: Database, experiment_id: str, secret: str | None) -> AdminGrant:
    with database.without_transaction() as db:
        return grants.grant_admin(db, experiment_id, secret)


def _answer(workspace_id: int, view: ViewVersion, settings: UsesSettings) -> ViewAnswer:
    server = settings.public_url.rstrip("/")
    return ViewAnswer.model_validate(
        {
            "id": view.view_id,
            "version": view.version,
            "name": view.name,
            "page": view.page,
            "query": view.query,
            "url": f"{server}/workspace/{workspace_id}/view/{view.view_id}",
            "saved_by": view.saved_by,
            "saved_at": view.saved_at,
        }
    )
