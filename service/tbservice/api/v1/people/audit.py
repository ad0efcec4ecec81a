"""Route for the audit log of a workspace: who did what, when and from where."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayManage, UsesDatabase
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.audit.acts import Act
from tbservice.audit.log import list_records
from tbservice.types.audit import AuditFilter

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/audit", tags=["workspaces"])


class AuditParameters(FewFields):
    """Filter and page of the audit log."""

    act: Act | None = Field(default=None, description="Only records of this act")
    actor: str | None = Field(
        default=None, description="Only acts of this user, token, link or browser session"
    )
    object: str | None = Field(default=None, description="Only acts on the object with this id")
    since: AwareDatetime | None = Field(default=None, description="Only acts from then on")
    until: AwareDatetime | None = Field(default=None, description="Only acts before")
    after: str | None = Field(default=None, description="`next` of the previous page")
    limit: int = Field(
        default=limits.PAGE_ITEMS_MAX,
        ge=1,
        le=limits.PAGE_ITEMS_MAX,
        description="Maximum records per page",
    )


class AuditRecordAnswer(BaseModel):
    """A recorded act."""

    number: int = Field(description="1, 2, … in the order of the commits")
    recorded_at: datetime
    act: str
    user_id: str | None = Field(description="The person who acted; null for a machine")
    means: str | None = Field(
        description="By what: `session`, `token`, `link`, `invitation` or `command`"
    )
    means_id: str | None = Field(
        description="The id of that session, token or link, or the administrator's command"
    )
    network: str | None = Field(description="IPv4 address or IPv6 network of the client")
    request_id: str | None = Field(description="`X-Request-ID` of the request")
    object_id: str | None = Field(description="What it was done to")
    details: dict[str, Any]
    digest: str = Field(description="SHA-256 of this record and of the digest before it")


class AuditPage(BaseModel):
    """A page of the audit log, newest first."""

    records: list[AuditRecordAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@router.get("")
def list_audit(
    grant: MayManage, database: UsesDatabase, query: Annotated[AuditParameters, Query()]
) -> AuditPage:
    """List who did what in the workspace, when, and from where, newest first.

    Needs the scope admin, and of a person, the role owner. Records cannot be changed.
    """
    wanted = AuditFilter(query.act, query.actor, query.object, query.since, query.until)
    with database.snapshot(grant) as db:
        page, following = list_records(db, grant, wanted, query.after, query.limit)
    records = [AuditRecordAnswer(**record.to_json()) for record in page]
    return AuditPage(records=records, next=following)
