"""The page that compares chosen runs of a workspace: their curves, then what differs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from sqlalchemy import Connection
from starlette.datastructures import QueryParams
from starlette.responses import Response

from tbservice import limits
from tbservice.auth import grants
from tbservice.errors import Invalid, TooLarge
from tbservice.experiment_values import UploadStatus
from tbservice.pages.base.signed_in import answer_script
from tbservice.pages.experiments.chart_cards import (
    CARD_CURVES_ITEMS_MAX,
    CARD_ITEMS,
    ChartRun,
    Charts,
    ChartsAddress,
    ChartSource,
    PictureAddress,
    make_charts,
    parse_charts_address,
)
from tbservice.pages.experiments.experiment_reader import (
    LIVE_EXPERIMENTS_ITEMS_MAX,
    list_live_sources,
    make_script_token,
)
from tbservice.pages.experiments.group_cards import (
    encode_groups,
    make_group_charts,
    parse_steps,
)
from tbservice.pages.people.saved_views import (
    VIEW_ID_CHARS_MAX,
    ShownViews,
    read_shown_views,
)
from tbservice.pages.people.workspace_runs import parse_references, show_different, show_value
from tbservice.pages.people.workspace_view import OwnPage, OwnScript, WorkspacePage
from tbservice.reading.changes import list_statuses
from tbservice.reading.comparison import name_in_comparison
from tbservice.reading.comparison_spec import ComparedExperiment, make_name, make_spec
from tbservice.reading.curves import rank_tags
from tbservice.runs.columns import RUN_COLUMNS, split_names
from tbservice.runs.comparison import (
    COMPARED_EXPERIMENTS_ITEMS_MAX,
    COMPARED_RUNS_ITEMS_MAX,
    ChosenRuns,
    RunComparison,
    choose_filtered,
    choose_named,
    compare_runs,
)
from tbservice.runs.curves import make_scan
from tbservice.runs.filters import FILTER_CHARS_MAX
from tbservice.runs.group_bands import BAND_KINDS, DEFAULT_BAND, group_selected, read_bands
from tbservice.runs.grouped_reader import GroupsQuery, groups_address
from tbservice.runs.grouping import GroupBy
from tbservice.runs.shared_work import SharedWork
from tbservice.runs.use_cases import RunsQuery
from tbservice.runs.views import COMPARE_PAGE
from tbservice.types.experiments import Experiment
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId

router = APIRouter(include_in_schema=False)

TABLE_RUNS_ITEMS_MAX: Final = 25
"""Runs (items) that have a column in the table of differences, which lists all others' names."""

_GROUPED_CHARS_MAX: Final = 2_000
"""Characters of a filter in the address of groups: of 4,000, servers refuse the encoded address."""

_GROUPINGS_MAX: Final = 10
"""Hyperparameters that a comparison offers to group by."""

_GROUP_CHARS_MAX: Final = 4_000
_SORT_CHARS_MAX: Final = 4_000
_CHOSEN: Final = "id"
_GROUPS: Final = ("group", "pattern", "band")
"""Parameters of the address with what is drawn in place of runs."""

_READS: Final = SharedWork[tuple[WorkspaceId, str], dict[str, Any]]()
"""Groups that scripts of pages ask for, by workspace and by what they ask."""


@router.get("/workspace/{workspace_id}/runs/compare")
def show_comparison(page: OwnPage, request: Request) -> Response:
    """Compare the runs that `id` names, each as `EXPERIMENT:DIGEST`, or that `where` selects."""
    query = request.query_params
    view = query.get("view", "")[:VIEW_ID_CHARS_MAX]
    views = read_shown_views(page, COMPARE_PAGE, view, request.url.query)
    others = _parse_address(query)
    if view:
        others = {**others, "view": [view]}
    try:
        return _show(page, request, others, views)
    except (Invalid, TooLarge) as error:
        return page.render("workspace_runs_compare.html", error, comparison=None, views=views)


@router.get("/workspace/{workspace_id}/runs/compare/groups")
def read_groups(page: OwnScript, request: Request) -> Response:
    """Return the groups of a comparison's page as they are now: `names`, and `cards` of `metric`s.

    The rest of the query is that of the page, with the range of steps of a zoom, `step_min` and
    `step_max`. For the script of this version of the page; no part of the API. All readers of a
    page ask at once, when its runs have new points: the answer is computed for them together.
    """
    query = request.query_params
    others = _parse_address(query)
    group_by = _group_by(others)
    if group_by is None:
        raise Invalid("name what the runs are grouped by: group or pattern")
    metrics = query.getlist("metric")[:CARD_ITEMS]
    steps = parse_steps(query)
    grant = page.grant_read()

    def read() -> dict[str, Any]:
        with page.database.snapshot(grant) as db:
            chosen = _choose(db, grant, others)
            drawn = group_selected(chosen.selected, group_by)
            found = read_bands(make_scan(db), drawn, metrics, others["band"][0], steps)
        return encode_groups(drawn, found, metrics)

    asked = repr([others, metrics, steps])
    return answer_script(_READS.run((grant.workspace_id, asked), read))


def _parse_address(query: QueryParams) -> dict[str, Sequence[str]]:
    """Return which runs the address of a comparison names, and what they are grouped by."""
    others: dict[str, Sequence[str]] = {
        name: [value] for name in ("where", "sort") if (value := query.get(name, "").strip())
    }
    if ids := query.getlist(_CHOSEN):
        others = {_CHOSEN: ids}
    named = {
        "group": query.get("group", "").strip()[:_GROUP_CHARS_MAX],
        "pattern": query.get("pattern", "")[:_GROUP_CHARS_MAX],
    }
    if any(named.values()):
        band = query.get("band", "")
        named["band"] = band if band in BAND_KINDS else DEFAULT_BAND
        others = {**others, **{name: [value] for name, value in named.items() if value}}
    return others


def _choose(
    db: Connection, grant: WorkspaceGrant, others: Mapping[str, Sequence[str]]
) -> ChosenRuns:
    """Return the runs that the address names. Raises as `list_runs`."""
    if _CHOSEN in others:
        return choose_named(db, grant, parse_references(others[_CHOSEN]))
    if "where" not in others:
        raise Invalid("select the runs to compare, in the table of runs")
    sort = [each[:_SORT_CHARS_MAX] for each in others.get("sort", [])]
    where = others["where"][0][: FILTER_CHARS_MAX + 1]
    return choose_filtered(db, grant, RunsQuery(where, sort, skips_unknown="view" in others))


def _group_by(others: Mapping[str, Sequence[str]]) -> GroupBy | None:
    """Return what the runs are grouped by; None for single runs."""
    names, pattern = others.get("group", [""])[0], others.get("pattern", [None])[0]
    return GroupBy(split_names(names), pattern) if names or pattern else None


def _show(
    page: WorkspacePage,
    request: Request,
    others: Mapping[str, Sequence[str]],
    views: ShownViews,
) -> Response:
    grant = page.grant_read()
    error = charts = None
    with page.database.snapshot(grant) as db:
        chosen = _choose(db, grant, others)
        comparison = compare_runs(db, grant, chosen)
        if not comparison.runs:
            raise Invalid(
                "none of these runs is there any more: select others in the table of runs"
            )
        address, tags, tags_total = _choose_tags(page, request, others, comparison)
        if (group_by := _group_by(others)) is not None:
            try:
                drawn = group_selected(chosen.selected, group_by)
                band = others["band"][0]
                found = read_bands(make_scan(db), drawn, tags, band)
                charts = make_group_charts(drawn, found, (tags, tags_total), band, address)
            except (Invalid, TooLarge) as problem:  # the runs are shown, and the form
                error = problem
    shares = chosen.count_by_experiment() if chosen.left_out and "where" in others else []
    runs = _list_runs(comparison)
    if charts is None:
        totals = tags_total, chosen.total
        charts = _make_charts(page, grant, comparison, (runs, tags, totals), address)
        if len(shares) == 1:
            charts.config.update(is_distribution=True, where=others["where"][0])
    _follow(page, grant, charts, comparison)
    shown = others if charts.groups else _leave_groups(others)
    if charts.is_distribution:
        shown = {**shown, "band": ["quartiles"]}
    charts.pictures = _find_pictures(shown, comparison)
    shows_all = charts.is_distribution or (charts.groups is not None and "where" in others)
    return page.render(
        "workspace_runs_compare.html",
        error,
        comparison=comparison,
        missing=chosen.missing,
        unknown=chosen.unknown,
        live_max=LIVE_EXPERIMENTS_ITEMS_MAX,
        views=views,
        charts=charts,
        runs=runs,
        runs_cut=bool(chosen.left_out),
        left_out=0 if shows_all else chosen.left_out,
        shares=_link_shares(page, others, shares),
        groupings=_list_groupings(others, comparison),
        columns_to_group=_list_columns(comparison),
        bands=BAND_KINDS,
        runs_address=replace(charts.address, others=_leave_groups(others)).link(),
        runs_max=COMPARED_RUNS_ITEMS_MAX,
        experiments_max=COMPARED_EXPERIMENTS_ITEMS_MAX,
        columns_max=TABLE_RUNS_ITEMS_MAX,
        show=show_value,
        show_different=show_different,
    )


def _find_pictures(
    others: Mapping[str, Sequence[str]], comparison: RunComparison
) -> PictureAddress | None:
    """Return where the cards of the page are as pictures; None for too many experiments."""
    if len(comparison.experiments) > limits.COMPARISON_ITEMS_MAX:
        return None
    names: list[str] = []
    for each in comparison.experiments:
        names.append(make_name(each.name, each.experiment_id, names))
    ids = [each.experiment_id for each in comparison.experiments]
    query = {name: others[name] for name in ("where", *_GROUPS) if name in others}
    if len(ids) == 1:
        path = f"/experiment/{ids[0]}"
    else:
        path = f"/compare/{make_spec(map(ComparedExperiment, names, ids))}"
    if "where" not in others:
        if _group_by(others) is not None:
            query["where"] = [_name_runs(comparison)]
        elif len(comparison.runs) > CARD_CURVES_ITEMS_MAX:
            return None
        else:
            query["run"] = [
                run.name if len(ids) == 1 else name_in_comparison(names[run.experiment], run.name)
                for run in comparison.runs
            ]
    return PictureAddress(path, query)


def _link_shares(
    page: WorkspacePage,
    others: Mapping[str, Sequence[str]],
    shares: Sequence[tuple[Experiment, int]],
) -> list[tuple[str, str, int]]:
    """Return name, address and number of runs of each experiment of a comparison that is cut."""
    if len(shares) < 2:  # noqa: PLR2004 - that of one shows all of its runs
        return []
    links = []
    for experiment, runs in shares[:COMPARED_EXPERIMENTS_ITEMS_MAX]:
        where = f'({others["where"][0]}) and experiment = "{experiment.experiment_id}"'
        address = f"{page.address}/runs/compare?{urlencode({**others, 'where': where}, doseq=True)}"
        links.append((experiment.name.strip() or experiment.experiment_id, address, runs))
    return links


def _list_groupings(
    others: Mapping[str, Sequence[str]], comparison: RunComparison
) -> dict[str, str]:
    """Return addresses of TensorBoard's page with groups of the runs, by what they are grouped by.

    None for runs of more experiments than it shows, or whose names make too long an address.
    """
    where = others["where"][0] if "where" in others else _name_runs(comparison)
    ids = [each.experiment_id for each in comparison.experiments]
    if len(ids) > limits.COMPARISON_ITEMS_MAX or len(where) > _GROUPED_CHARS_MAX:
        return {}
    (hparams, *_) = comparison.groups
    names = list(hparams.different)[:_GROUPINGS_MAX]
    addresses = {
        f"by {name}": groups_address(ids, GroupsQuery((f"hparam.{name}",), where)) for name in names
    }
    if len(names) > 1:
        addresses |= {
            f"by all but {name}": groups_address(ids, GroupsQuery((f"-hparam.{name}",), where))
            for name in names
        }
    return addresses


def _leave_groups(others: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the parameters of the same page with runs in place of groups."""
    return {name: each for name, each in others.items() if name not in _GROUPS}


def _list_columns(comparison: RunComparison) -> list[str]:
    """Return what the page suggests to group by, as its field takes it."""
    (hparams, *_) = comparison.groups
    # Without those that the field takes in backticks only, or takes for another column.
    names = [
        name
        for name in hparams.different
        if name not in RUN_COLUMNS and not {*name} & {*"`,"} and name == name.strip()
    ][:_GROUPINGS_MAX]
    return [*names, *(f"-{name}" for name in names if len(names) > 1)]


def _name_runs(comparison: RunComparison) -> str:
    """Return a filter that selects the runs of a comparison."""
    quoted = (re.sub(r'(["\\])', r"\\\1", run.name) for run in comparison.runs)
    return " or ".join(
        f'experiment = "{comparison.experiments[run.experiment].experiment_id}" and run = "{name}"'
        for run, name in zip(comparison.runs, quoted, strict=True)
    )


def _list_runs(comparison: RunComparison) -> list[ChartRun]:
    names = [each.name.strip() or each.experiment_id[:6] for each in comparison.experiments]
    return [
        ChartRun(
            run.experiment,
            run.name,
            run.name if len(names) == 1 else f"{names[run.experiment]} / {run.name}",
        )
        for run in comparison.runs
    ]


def _make_charts(
    page: WorkspacePage,
    grant: WorkspaceGrant,
    comparison: RunComparison,
    drawn: tuple[list[ChartRun], list[str], tuple[int, int]],
    address: ChartsAddress,
) -> Charts:
    """Return cards of runs: `drawn` has these, their tags, and the numbers of tags and runs."""
    sources = [_make_source(page, each) for each in comparison.experiments]
    runs, tags, totals = drawn
    with page.database.snapshot(grant) as db:
        return make_charts(lambda _: nullcontext(db), sources, runs, tags, address, totals)


def _follow(
    page: WorkspacePage, grant: WorkspaceGrant, charts: Charts, comparison: RunComparison
) -> None:
    """Have the script of the cards follow the experiments, running ones first."""
    ids = [each.experiment_id for each in comparison.experiments]
    with page.database.transaction(grant) as db:
        statuses = list_statuses(db, ids)
    is_running = [statuses.get(id_) is UploadStatus.RUNNING for id_ in ids]
    order = sorted(range(len(ids)), key=lambda index: not is_running[index])
    if charts.groups is not None:
        by_order = [ids[index] for index in order]
        charts.config["sources"] = list_live_sources(page.database, page.session, by_order)
    else:
        charts.config["live"] = order[:LIVE_EXPERIMENTS_ITEMS_MAX]
    charts.running = sum(is_running)


def _choose_tags(
    page: WorkspacePage,
    request: Request,
    others: Mapping[str, Sequence[str]],
    comparison: RunComparison,
) -> tuple[ChartsAddress, list[str], int]:
    """Return the address of the page, the tags of its cards, and how many tags are searched."""
    address = parse_charts_address(f"{page.address}/runs/compare", request.query_params, others)
    text = address.tag.lower()
    tags = rank_tags(tag for tag in comparison.tags if text in tag.lower())
    return address, tags[address.first : address.first + CARD_ITEMS], len(tags)


def _make_source(page: WorkspacePage, experiment: Experiment) -> ChartSource:
    with page.database.without_transaction() as db:
        grant = grants.grant_read(db, experiment.experiment_id, page.session.secret)
    return ChartSource(grant, make_script_token(page.database, grant, page.session))
