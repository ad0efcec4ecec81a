"""The start page of those who are signed in: the experiments of a workspace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from fastapi import APIRouter, Request
from markupsafe import Markup
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.dependencies import UsesDatabase, get_settings
from tbservice.auth import people
from tbservice.db.database import Database
from tbservice.errors import MalformedRequest, NotFound, ServiceError
from tbservice.experiment_values import SavedSearch, UploadStatus
from tbservice.experiments import bookmarks, listing, uploads
from tbservice.pages.base.frame import render
from tbservice.pages.base.person_page import PersonPage
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import MaybeSignedIn
from tbservice.pages.experiments.experiment_reader import list_live_sources
from tbservice.pages.experiments.list_address import NO_CHART, ListAddress, parse_address
from tbservice.pages.experiments.sparkline import draw_chart, last_value
from tbservice.pages.people.workspace_view import parse_workspace_id
from tbservice.reading import curves
from tbservice.reading.curves import Chart
from tbservice.types.experiments import Experiment
from tbservice.types.grants import Scope, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, UserId
from tbservice.types.people import Membership

LIST_FILTER_ITEMS_MAX: Final = 200
"""Tags and people (items) that the list for people offers as filters."""

LIST_COUNTED_ITEMS_MAX: Final = 1_000
"""Experiments (items) up to which the list says how many there are."""

router = APIRouter(include_in_schema=False)


class Row(NamedTuple):
    """An experiment in the list; `curve` is an image of its chart, "" for none."""

    experiment: Experiment
    creator: str
    status: UploadStatus | None
    curve: Markup
    chart: Chart | None
    value: str
    is_starred: bool


class RowEdit(NamedTuple):
    """A row that is edited in the list: what its fields say."""

    experiment_id: str
    name: str
    tags: str


class _Found(NamedTuple):
    """A page of the list; the count is None for more than LIST_COUNTED_ITEMS_MAX experiments."""

    rows: list[Row]
    experiment_count: int | None
    next: str | None
    tags: list[str]
    creators: dict[UserId, str]
    chart_tags: list[str]
    saved: list[SavedSearch]


@router.get("/")
def show_start(request: Request, session: MaybeSignedIn, database: UsesDatabase) -> Response:
    """Show the experiments of a workspace; to those who are not signed in, what this is."""
    if session is None:
        return _show_landing(request)
    page = PersonPage(request, session, database)
    membership = find_workspace(request.query_params, session)
    if membership is None:
        return page.render("experiments_none.html")
    return show_list(page, membership, request.query_params)


def show_list(
    page: PersonPage,
    membership: Membership,
    query: Mapping[str, str],
    error: ServiceError | None = None,
    selected: Collection[str] = (),
    edit: RowEdit | None = None,
) -> Response:
    """Return the list that an address's query describes.

    With `error`, the reason why a form of it was refused, the ids that were `selected` in it, and
    the row that was edited.
    """
    address = parse_address(query, membership.workspace_id)
    grant = page.grant_workspace(Scope.READ, membership.workspace_id)
    found = _find(page.database, grant, address)
    may_change = Scope.ADMIN in membership.role.scopes
    if edit is None and may_change:
        edit = next(
            (
                RowEdit(each.experiment_id, each.name, ", ".join(each.tags))
                for each in (row.experiment for row in found.rows)
                if each.experiment_id == query.get("edit")
            ),
            None,
        )
    running = [
        row.experiment.experiment_id for row in found.rows if row.status is UploadStatus.RUNNING
    ]
    deleted = [each for each in query.get("deleted", "").split(",") if each]
    return page.render(
        "experiments.html",
        error,
        selected=selected,
        workspace=membership,
        address=address,
        found=found,
        live=list_live_sources(page.database, page.session, running),
        running=len(running),
        may_change=may_change,
        edit=edit,
        deleted=deleted[: limits.LIST_PAGE_ITEMS],
        server=get_settings(page.request).public_url.rstrip("/"),
        counted_max=LIST_COUNTED_ITEMS_MAX,
        no_chart=NO_CHART,
        name_chars_max=limits.EXPERIMENT_NAME_CHARS_MAX,
    )


def find_workspace(query: Mapping[str, str], session: PersonSession) -> Membership | None:
    """Return the workspace in the query, else the one used last; None if they have none.

    Raises NotFound for one that is not the person's.
    """
    text = query.get("workspace")
    if text is None:
        return session.current_membership
    number = parse_workspace_id(text)
    membership = None if number is None else session.find_membership(number)
    if membership is None:
        raise NotFound("there is no such workspace, or it is not yours")
    return membership


def _find(database: Database, grant: WorkspaceGrant, address: ListAddress) -> _Found:
    """Read the page of the list; its first one if the page token is of another list."""
    with database.snapshot(grant) as db:
        items = limits.LIST_PAGE_ITEMS
        search = address.to_search(grant.user_id)
        try:
            page = listing.list_experiments(db, grant, search, address.after or None, items)
        except MalformedRequest:
            page = listing.list_experiments(db, grant, search, None, items)
        creators = {
            user_id: _name(db, user_id)
            for user_id in dict.fromkeys(
                [
                    *(each.created_by for each in page.experiments if each.created_by),
                    *listing.list_creators(db, grant, LIST_FILTER_ITEMS_MAX),
                ]
            )
        }
        chart_tags = curves.list_tags(db, grant, page.experiments)
        drawn = curves.read_charts(db, grant, _choose_tags(page.experiments, chart_tags, address))
        tags = listing.list_tags(db, grant, LIST_FILTER_ITEMS_MAX, is_archived=search.is_archived)
        starred = bookmarks.find_starred(db, grant, page.experiments)
        saved = bookmarks.list_searches(db, grant)
        count = len(page.experiments)
        if page.next or address.after:
            count = listing.count_experiments(db, grant, search, LIST_COUNTED_ITEMS_MAX + 1)
        statuses = uploads.find_statuses(db, grant, page.experiments)
    rows = [
        Row(
            each,
            creators[each.created_by] if each.created_by else "",
            statuses.get(each.experiment_id),
            draw_chart(chart) if chart else Markup(""),
            chart,
            last_value(chart) if chart else "",
            each.experiment_id in starred,
        )
        for each in page.experiments
        for chart in (drawn.get(each.experiment_id),)
    ]
    shown = count if count <= LIST_COUNTED_ITEMS_MAX else None
    return _Found(
        rows, shown, page.next, tags, creators, curves.list_common_tags(chart_tags), saved
    )


def _choose_tags(
    experiments: Sequence[Experiment],
    chart_tags: Mapping[ExperimentId, Sequence[str]],
    address: ListAddress,
) -> dict[ExperimentId, str]:
    """Return the tag to draw of each experiment: the one in the address, else one that it has."""
    if address.chart == NO_CHART:
        return {}
    if address.chart:
        return {each.experiment_id: address.chart for each in experiments}
    return {experiment_id: tags[0] for experiment_id, tags in chart_tags.items()}


def _name(db: Connection, user_id: UserId) -> str:
    person = people.find_person(db, user_id)
    return person.name.strip() or person.email or "Unnamed person"


def _show_landing(request: Request) -> Response:
    """Return the start page for a browser that is not signed in."""
    server = get_settings(request).public_url.rstrip("/")
    return render(request, "landing.html", server=server)
