"""The page with the runs of all experiments of a workspace."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, TooLarge
from tbservice.experiment_values import UploadStatus
from tbservice.pages.experiments.live_rows import list_live_sources
from tbservice.pages.people.saved_views import VIEW_ID_CHARS_MAX, read_shown_views
from tbservice.pages.people.workspace_view import OwnPage
from tbservice.runs.columns import split_names
from tbservice.runs.comparison import choose_run
from tbservice.runs.filters import FILTER_CHARS_MAX
from tbservice.runs.group_table import GroupsPage, MeanValue, list_groups
from tbservice.runs.grouped_reader import GroupsQuery, groups_address
from tbservice.runs.grouping import RUN_GROUP_ITEMS_MAX, GroupBy
from tbservice.runs.use_cases import RunsPage, RunsQuery, list_runs
from tbservice.runs.views import RUNS_PAGE
from tbservice.types.grants import ReadGrant
from tbwire.hparams import HparamValue
from tbwire.mean_text import format_mean

router = APIRouter(include_in_schema=False)

_ALWAYS: Final = ("experiment", "experiment_name", "run")
"""Columns that the page reads for the name of a run, whatever is chosen."""

_READ: Final = (*_ALWAYS, "training")
"""Columns that the page reads: with those whether the run's experiment is running."""

_COLUMNS_CHARS_MAX: Final = 4_000
_SECONDS_MAX: Final = 253_402_300_800
"""Seconds from the epoch to the year 10000, which datetime does not have."""


@dataclass(frozen=True, slots=True)
class RunsAddress:
    """Parameters in the address of the page; "" for absent ones."""

    path: str
    where: str = ""
    sort: str = ""
    columns: str = ""
    group: str = ""
    after: str = ""
    view: str = ""

    @property
    def query(self) -> str:
        """Return what a view keeps of the address."""
        return self.link(view="").partition("?")[2]

    @property
    def column_names(self) -> list[str]:
        """Return the columns that are chosen."""
        return split_names(self.columns)

    @property
    def group_names(self) -> list[str]:
        """Return the columns that runs are grouped by."""
        return split_names(self.group)

    def link(self, **changes: str) -> str:
        """Return the address with some values changed, of the first page."""
        changed = replace(self, **{"after": "", **changes})
        fields = ("where", "sort", "columns", "group", "after", "view")
        pairs = {name: getattr(changed, name) for name in fields}
        query = urlencode({name: value for name, value in pairs.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def sort_link(self, column: str) -> str:
        """Return the address sorted by a column: descending if it is sorted by it already."""
        return self.link(sort=f"-{column}" if self.sort == column else column)

    def sort_state(self, column: str) -> str:
        """Return the `aria-sort` of a column."""
        if self.sort.removeprefix("-") != column:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"


@router.get("/workspace/{workspace_id}/runs")
def show_runs(page: OwnPage, request: Request) -> Response:
    """Show a page of the runs; for a filter that cannot be used, what is wrong with it."""
    query = request.query_params
    address = RunsAddress(
        f"{page.address}/runs",
        query.get("where", "").strip()[: FILTER_CHARS_MAX + 1],
        query.get("sort", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("columns", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("group", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("after", ""),
        query.get("view", "")[:VIEW_ID_CHARS_MAX],
    )
    views = read_shown_views(page, RUNS_PAGE, address.view, address.query)
    try:
        if address.group_names:
            groups = _find_groups(page, request, address)
            return page.render(
                "workspace_runs.html",
                address=address,
                views=views,
                found=None,
                groups=groups,
                equal=_find_equal(address, groups),
                tensorboard=_find_tensorboard(address, groups),
                experiments_max=limits.COMPARISON_ITEMS_MAX,
                show=show_value,
            )
        found = _find(page, request, address)
    except (Invalid, TooLarge) as error:
        return page.render(
            "workspace_runs.html",
            error,
            address=address,
            views=views,
            found=None,
            groups=None,
            equal={},
        )
    hidden = {*_ALWAYS, *({"started", "training"} - set(address.column_names))}
    running = [str(row[0]) for row in found.rows if row[len(_ALWAYS)] == UploadStatus.RUNNING]
    shown = [(index, name) for index, name in enumerate(found.columns) if name not in hidden]
    return page.render(
        "workspace_runs.html",
        address=address,
        views=views,
        found=found,
        groups=None,
        equal=found.equal,
        shown=shown,
        show=show_value,
        refer=refer_to_run,
        live=list_live_sources(page.database, page.session, running),
    )


def _find_groups(page: OwnPage, request: Request, address: RunsAddress) -> GroupsPage:
    """Read the groups of the runs, all on one page."""
    grant = page.grant_read()
    sort = [address.sort] if address.sort else []
    query = RunsQuery(
        address.where,
        sort,
        address.column_names,
        limit=RUN_GROUP_ITEMS_MAX,
        skips_unknown=bool(address.view),
    )
    with page.database.snapshot(grant) as db:
        groups = list_groups(db, grant, query, GroupBy(address.group_names))
    _fill_summaries(request, groups.pending_grants)
    return groups


def _find_equal(address: RunsAddress, groups: GroupsPage) -> dict[str, HparamValue | None]:
    """Return what all groups have one value of, of columns that the address does not name."""
    if len(groups.rows) < 2:  # noqa: PLR2004 - nothing is compared
        return {}
    return {
        name: values[0]
        for name, *values in zip(groups.names, *(row.key for row in groups.rows), strict=True)
        if name not in address.group_names and len({(type(value), value) for value in values}) == 1
    }


def _find_tensorboard(address: RunsAddress, groups: GroupsPage) -> str:
    """Return the address of TensorBoard's page with the groups; "" for too many experiments."""
    if not groups.rows or len(groups.experiments) > limits.COMPARISON_ITEMS_MAX:
        return ""
    query = GroupsQuery(tuple(address.group_names), address.where)
    return groups_address(groups.experiments, query)


def _find(page: OwnPage, request: Request, address: RunsAddress) -> RunsPage:
    """Read the page; the first one if the page token is of another table."""
    grant = page.grant_read()
    chosen = address.column_names
    sort = [address.sort] if address.sort else []
    query = RunsQuery(
        address.where,
        sort,
        chosen,
        address.after or None,
        limits.LIST_PAGE_ITEMS,
        _READ,
        skips_unknown=bool(address.view),
        folds_equal=True,
    )
    with page.database.snapshot(grant) as db:
        try:
            found = list_runs(db, grant, query)
        except MalformedRequest:
            found = list_runs(db, grant, replace(query, after=None))
    _fill_summaries(request, found.pending_grants)
    return found


def refer_to_run(experiment_id: str, name: str) -> str:
    """Return how the address of a comparison names a run."""
    run = choose_run(experiment_id, name)
    return f"{run.experiment_id}:{run.digest}"


def _fill_summaries(request: Request, grants: Iterable[ReadGrant]) -> None:
    for grant in grants:
        request.app.state.summaries.enqueue(grant)


def show_value(column: str, value: HparamValue | MeanValue | None) -> str:
    """Return a value for people: numbers with six digits, times in UTC, means with deviations."""
    if isinstance(value, MeanValue):
        return format_mean(*value)
    if column == "started" and isinstance(value, float) and 0 <= value < _SECONDS_MAX:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M")
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.replace("\n", ", ")
    return f"{value:.6g}" if math.isfinite(value) else str(value)
