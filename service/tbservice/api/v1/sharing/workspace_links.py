"""Route for the share links of a whole workspace: list them, also those of former members."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayManage, UsesDatabase
from tbservice.api.http.request_models import After, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.sharing.share_links import LinkAnswer
from tbservice.experiments import share_links
from tbservice.types.identifiers import UserId

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/links", tags=["workspaces"])


class PlacedLinkAnswer(LinkAnswer):
    """A share link, and the experiment that it was made for."""

    experiment_id: str
    experiment_name: str


class PlacedLinkPage(BaseModel):
    """A page of the share links of a workspace, newest first."""

    links: list[PlacedLinkAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@router.get("")
def list_workspace_links(
    grant: MayManage,
    database: UsesDatabase,
    created_by: Annotated[
        str | None, Query(description="Only links that the user with this id made")
    ] = None,
    after: After = None,
    limit: Annotated[int, page_limit("links")] = limits.PAGE_ITEMS_MAX,
) -> PlacedLinkPage:
    """List the valid share links to the workspace's experiments, newest first.

    Needs the scope admin, and of a person, the role owner. Links outlast the membership of who made
    them: `created_by` finds those of a person who has left. Links of experiments in the trash are
    not listed.
    """
    creator = None if created_by is None else UserId(created_by)
    with database.snapshot(grant) as db:
        page, following = share_links.list_workspace_links(db, grant, creator, after, limit)
    links = [
        PlacedLinkAnswer(
            **LinkAnswer.model_validate(placed.link).model_dump(),
            experiment_id=placed.experiment_id,
            experiment_name=placed.experiment_name,
        )
        for placed in page
    ]
    return PlacedLinkPage(links=links, next=following)
