"""The audit log of a workspace: `/workspace/{id}/audit`, for owners."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.audit.acts import Act
from tbservice.audit.log import list_records
from tbservice.auth import people
from tbservice.errors import MalformedRequest
from tbservice.pages.people.workspace_view import OwnPage
from tbservice.types.audit import AuditFilter

_PAGE_ITEMS: Final = 100

router = APIRouter(prefix="/workspace/{workspace_id}", include_in_schema=False)


@router.get("/audit")
def show_audit(
    page: OwnPage,
    act: str = "",
    actor: str = "",
    object: str = "",  # noqa: A002 - the parameter of the address
    after: str = "",
) -> Response:
    """Show who did what, when and from where, the newest first, in pages."""
    if "\0" in f"{actor}{object}":
        raise MalformedRequest("an id has no NUL")
    chosen = act if act in set(Act) else ""
    wanted = AuditFilter(chosen or None, actor or None, object or None)
    with page.owner_transaction() as (db, grant):
        records, next_page = list_records(db, grant, wanted, after or None, _PAGE_ITEMS)
        names = people.find_people(db, (each.user_id for each in records))
    return page.render(
        "workspace_audit.html",
        records=[each.to_json() | {"recorded_at": each.recorded_at} for each in records],
        people=names,
        acts=list(Act),
        filters={"act": chosen, "actor": actor, "object": object},
        next_page=next_page,
    )
