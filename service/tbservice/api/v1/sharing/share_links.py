"""Routes for the share links of an experiment: create, list, rename, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import status
from pydantic import BaseModel, Field, StrictBool

from tbservice import limits
from tbservice.api.http.dependencies import (
    MayAdminister,
    MayEndLinks,
    UsesDatabase,
    UsesIngest,
    UsesSettings,
)
from tbservice.api.http.request_models import After, FewFields, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import EndTime, PersonAnswer
from tbservice.experiments import share_links
from tbservice.patterns import PATTERN_CHARS_MAX

router = make_router(prefix="/api/v1/experiments/{experiment_id}/links", tags=["share links"])

Label = Annotated[str, Field(max_length=limits.EXPERIMENT_NAME_CHARS_MAX)]


class NewLink(FewFields):
    """The properties of a share link to create."""

    label: Label = Field(default="", description="A name to recognize the link by")
    expires_at: EndTime = None
    runs: str | None = Field(
        default=None,
        max_length=PATTERN_CHARS_MAX,
        description="RE2 regular expression that the complete name of a run must match; null: all",
    )
    tags: str | None = Field(
        default=None,
        max_length=PATTERN_CHARS_MAX,
        description="RE2 regular expression that the complete name of a tag must match; null: all",
    )
    anonymous: StrictBool = Field(
        default=False, description="Hide who uploaded the experiment, and where it came from"
    )
    frozen: StrictBool = Field(
        default=False,
        description="Show the data of now, also when they change. They are copied: a hundred "
        "million points, the most that is possible, may take half a minute",
    )


class LinkAnswer(BaseModel, from_attributes=True, populate_by_name=True):
    """A share link without its secret."""

    id: str = Field(validation_alias="token_id")
    label: str
    prefix: str = Field(description="The first characters of the secret, to recognize the link by")
    runs: str | None = Field(validation_alias="run_pattern")
    tags: str | None = Field(validation_alias="tag_pattern")
    anonymous: bool = Field(validation_alias="is_anonymous")
    frozen: bool = Field(
        validation_alias="is_frozen", description="It shows the data of `created_at`"
    )
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(
        description="When the link was last used, to the minute; null if it was never used"
    )
    created_by: PersonAnswer | None = Field(
        description="Who made it; null for a machine, and where it was not recorded"
    )


class CreatedLinkAnswer(LinkAnswer):
    """A new share link with its secret."""

    url: str = Field(description="The link, with the secret; store it now: it is not shown again")
    token: str = Field(description="The secret: a token that reads what the link shows")


class LinkPage(BaseModel):
    """A page of an experiment's share links, newest first."""

    links: list[LinkAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


class LinkChanges(FewFields):
    """Fields of a share link that can be changed."""

    label: Label


@router.post("", status_code=status.HTTP_201_CREATED)
def create_link(
    grant: MayAdminister, new: NewLink, ingest: UsesIngest, settings: UsesSettings
) -> CreatedLinkAnswer:
    """Create a link that opens the experiment for everyone who has it.

    With `runs` or `tags` it shows only those, also of what is uploaded later. The response has the
    link's secret, which is stored as a hash and cannot be read again. Repeating the request creates
    another link.
    """
    with share_links.begin_link(ingest.door, grant, is_frozen=new.frozen) as writer:
        link, secret = share_links.create_link(
            writer,
            grant,
            new.label,
            new.expires_at,
            new.runs,
            new.tags,
            is_anonymous=new.anonymous,
            is_frozen=new.frozen,
        )
    url = share_links.make_address(settings.public_url, link, secret)
    shown = LinkAnswer.model_validate(link)
    return CreatedLinkAnswer(**shown.model_dump(), token=secret, url=url)


@router.get("")
def list_links(
    grant: MayEndLinks,
    database: UsesDatabase,
    after: After = None,
    limit: Annotated[int, page_limit("links")] = limits.PAGE_ITEMS_MAX,
) -> LinkPage:
    """List the experiment's share links, newest first.

    Expired and revoked links are listed for 90 days. Frozen ones are not: they are deleted with
    their data.
    """
    with database.snapshot(grant) as db:
        page, following = share_links.list_links(db, grant, after, limit)
    return LinkPage(links=list(map(LinkAnswer.model_validate, page)), next=following)


@router.patch("/{link_id}")
def rename_link(
    grant: MayEndLinks, link_id: str, changes: LinkChanges, database: UsesDatabase
) -> LinkAnswer:
    """Change the label of a share link."""
    with database.transaction(grant) as db:
        link = share_links.rename_link(db, grant, link_id, changes.label)
    return LinkAnswer.model_validate(link)


@router.delete("/{link_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_link(grant: MayEndLinks, link_id: str, database: UsesDatabase) -> None:
    """Revoke a share link, with immediate effect; the data of a frozen link are deleted.

    Live tails that use it end within 5 seconds, downloads at their next part.
    """
    with database.transaction(grant) as db:
        share_links.revoke_link(db, grant, link_id)
