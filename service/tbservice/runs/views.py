"""Views: the state of the page of runs under a name, for all members of a workspace."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, urlencode

from sqlalchemy import Connection

from tbservice.errors import Conflict, Invalid, NotFound
from tbservice.experiments.metadata import check_text
from tbservice.experiments.tables import saved_views
from tbservice.experiments.tables.saved_views import ViewVersion
from tbservice.types.grants import WorkspaceGrant

__all__ = [
    "ViewChange",
    "ViewVersion",
    "delete_view",
    "get_versions",
    "list_views",
    "save_view",
]

VIEW_ITEMS_MAX: Final = 200
"""Views (items) of a workspace."""

VIEW_VERSION_ITEMS_MAX: Final = 50
"""Versions (items) of a view that are kept: the last ones."""

VIEW_NAME_CHARS_MAX: Final = 60
"""Characters of the name of a view."""

VIEW_QUERY_CHARS_MAX: Final = 16_000
"""Characters of what a view keeps, as in the query of an address."""

RUNS_PAGE: Final = "runs"
COMPARE_PAGE: Final = "compare"
VIEW_PARAMETERS: Final = {
    RUNS_PAGE: ("where", "sort", "columns", "pin", "group", "pattern"),
    COMPARE_PAGE: (
        *("id", "where", "sort", "group", "pattern", "band"),
        *("tag", "run", "axis", "log", "logx", "outliers", "smoothing"),
    ),
}
"""The parameters of each page that a view keeps; it ignores others."""

_ID_BYTES: Final = 5
_NOT_FOUND: Final = "there is no such view: it was deleted"


@dataclass(frozen=True, slots=True)
class ViewChange:
    """Fields of a new version: None for what stays. `query` is that of the address of `page`."""

    name: str | None = None
    page: str | None = None
    query: str | None = None


def list_views(db: Connection, grant: WorkspaceGrant) -> list[ViewVersion]:
    """Return the last version of each view of the workspace, by name."""
    return saved_views.list_current(db, grant.workspace_id) if saved_views.exist(db) else []


def get_versions(db: Connection, grant: WorkspaceGrant, view_id: str) -> list[ViewVersion]:
    """Return the versions of a view, the last one first. Raises NotFound."""
    found: list[ViewVersion] = []
    if saved_views.exist(db):
        found = saved_views.list_versions(db, grant.workspace_id, view_id.replace("\0", ""))
    if not found:
        raise NotFound(_NOT_FOUND)
    return found


def save_view(
    db: Connection, grant: WorkspaceGrant, change: ViewChange, view_id: str | None = None
) -> ViewVersion:
    """Save a new view, or with `view_id` the next version of that one; return it.

    The grant permits to change the workspace's experiments. Deletes versions beyond
    VIEW_VERSION_ITEMS_MAX.

    Raises:
        Invalid: The name, the page or the query is not valid.
        NotFound: There is no such view.
        Conflict: Another view has the name, or there are too many.
    """
    _check_schema(db)
    if view_id is None:
        last = ViewVersion(secrets.token_hex(_ID_BYTES), 0, "", RUNS_PAGE, "")
    else:
        found = saved_views.supersede(db, grant.workspace_id, view_id.replace("\0", ""))
        if found is None:
            raise NotFound(_NOT_FOUND)
        last = found
    name = last.name if change.name is None else _clean_name(change.name)
    page = change.page or last.page
    query = last.query if change.query is None else clean_query(page, change.query)
    view = replace(
        last, version=last.version + 1, name=name, page=page, query=query, saved_by=grant.user_id
    )
    if not saved_views.insert(db, grant.workspace_id, view):
        raise Conflict(f"there is a view {name!r}: choose another name, or change that one")

    saved_views.delete_until(
        db, grant.workspace_id, view.view_id, view.version - VIEW_VERSION_ITEMS_MAX
    )
    if view.version == 1 and len(saved_views.list_current(db, grant.workspace_id)) > VIEW_ITEMS_MAX:
        raise Conflict(f"a workspace has {VIEW_ITEMS_MAX} views: delete another one")
    return saved_views.list_versions(db, grant.workspace_id, view.view_id)[0]


def delete_view(db: Connection, grant: WorkspaceGrant, view_id: str) -> None:
    """Delete a view with its history. Raises NotFound."""
    _check_schema(db)
    last = saved_views.supersede(db, grant.workspace_id, view_id.replace("\0", ""))
    if last is None:
        raise NotFound(_NOT_FOUND)
    saved_views.delete_until(db, grant.workspace_id, view_id, last.version)


def clean_query(page: str, query: str) -> str:
    """Return what a view keeps of the query of an address. Raises Invalid."""
    if page not in VIEW_PARAMETERS:
        raise Invalid(f"a view is of the page {' or '.join(VIEW_PARAMETERS)}")
    # Before it is parsed: the text may be anything.
    check_text("a view", query, VIEW_QUERY_CHARS_MAX)
    try:
        pairs = parse_qsl(query.removeprefix("?"), errors="strict")
    except ValueError as error:
        raise Invalid("the query of a view is no query of an address") from error
    if any("\0" in value for _, value in pairs):
        raise Invalid("the query of a view has a NUL character")
    return urlencode([pair for pair in pairs if pair[0] in VIEW_PARAMETERS[page] and pair[1]])


def _clean_name(name: str) -> str:
    cleaned = " ".join(name.split())
    check_text("the name of a view", cleaned, VIEW_NAME_CHARS_MAX)
    if not cleaned:
        raise Invalid("give the view a name")
    return cleaned


def _check_schema(db: Connection) -> None:
    if not saved_views.exist(db):
        raise Conflict("the database is being upgraded: try again later")
