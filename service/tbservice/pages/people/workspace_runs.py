"""The page with the runs of all experiments of a workspace."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.formats.record_tables import TableFormat, make_table_of
from tbservice.api.formats.table_response import respond_table
from tbservice.auth.secrets import is_experiment_id
from tbservice.errors import Invalid, MalformedRequest, NotFound, ServiceError, TooLarge
from tbservice.experiment_values import UploadStatus
from tbservice.pages.experiments.experiment_reader import list_live_sources
from tbservice.pages.people.saved_views import VIEW_ID_CHARS_MAX, read_shown_views
from tbservice.pages.people.workspace_view import OwnPage, WorkspacePage
from tbservice.runs.arrow_columns import encode_groups, encode_runs
from tbservice.runs.columns import RUN_COLUMNS, RunColumn, join_names, split_names
from tbservice.runs.comparison import ChosenRun, choose_run
from tbservice.runs.filters import FILTER_CHARS_MAX, quote
from tbservice.runs.group_table import RUNS_COLUMN, GroupsPage, MeanValue, list_groups
from tbservice.runs.grouped_reader import GroupsQuery, format_value, groups_address
from tbservice.runs.grouping import RUN_GROUP_ITEMS_MAX, GroupBy
from tbservice.runs.use_cases import RunsPage, RunsQuery, list_runs, read_table
from tbservice.runs.views import RUNS_PAGE
from tbservice.types.grants import Scope
from tbservice.types.identifiers import ExperimentId
from tbwire.document_tables import latex_lines, markdown_lines
from tbwire.hparams import HparamValue
from tbwire.mean_text import format_mean, format_short

router = APIRouter(include_in_schema=False)

_ALWAYS: Final = ("experiment", "experiment_name", "run")
"""Columns that the page reads for the name of a run, whatever is chosen."""

_READ: Final = (*_ALWAYS, "training", "tags")
"""Columns that the page reads: with those whether the run's experiment is running, and tags."""

PINNED_ITEMS_MAX: Final = 3
"""Columns (items) that stay in sight when a table is scrolled: a window has no more room."""

OFFERED_ITEMS_MAX: Final = 100
"""Columns (items) that the page offers to add; others are typed."""

_FILES: Final = {f"runs.{each.value}": each for each in TableFormat}
"""Files with the table: their names and formats."""

_COLUMNS_CHARS_MAX: Final = 4_000
_SECONDS_MAX: Final = 253_402_300_800
"""Seconds from the epoch to the year 10000, which datetime does not have."""

_DOCUMENTS: Final = {"Markdown": markdown_lines, "LaTeX": latex_lines}
"""Forms of the table as text to copy into a document."""

_STATE: Final = ("where", "sort", "columns", "pin", "group", "pattern", "after", "view")
"""Parameters of the address."""


@dataclass(frozen=True, slots=True)
class RunsAddress:
    """Parameters in the address of the page; "" for absent ones."""

    path: str
    where: str = ""
    sort: str = ""
    columns: str = ""
    pin: str = ""
    group: str = ""
    pattern: str = ""
    after: str = ""
    view: str = ""

    @property
    def query(self) -> str:
        """Return what a view keeps of the address."""
        return self.link(view="").partition("?")[2]

    @property
    def state(self) -> str:
        """Return the query of this very page, with which forms return to it."""
        return self.link(after=self.after).partition("?")[2]

    @property
    def column_names(self) -> list[str]:
        """Return the columns that are chosen."""
        return split_names(self.columns)

    @property
    def pinned_names(self) -> list[str]:
        """Return the columns that stay in sight beside the names of runs."""
        return split_names(self.pin)

    @property
    def group_names(self) -> list[str]:
        """Return the columns that runs are grouped by."""
        return split_names(self.group)

    @property
    def group_by(self) -> GroupBy | None:
        """Return what runs are grouped by; None for single runs."""
        group_by = GroupBy(self.group_names, self.pattern or None)
        return group_by if self.group_names or self.pattern else None

    @property
    def curves_link(self) -> str:
        """Return the address of a comparison with the groups as curves."""
        where = self.where or "run is not missing"
        query = {"where": where, "group": self.group, "pattern": self.pattern}
        shown = {name: value for name, value in query.items() if value}
        return f"{self.path}/compare?{urlencode(shown)}"

    def to_query(self, **options: Any) -> RunsQuery:
        """Return the query for the runs of the table, with other fields of a RunsQuery."""
        sort = [self.sort] if self.sort else []
        return RunsQuery(
            self.where, sort, self.column_names, skips_unknown=bool(self.view), **options
        )

    def link(self, **changes: str) -> str:
        """Return the address with some values changed, of the first page."""
        changed = replace(self, **{"after": "", **changes})
        pairs = {name: getattr(changed, name) for name in _STATE}
        query = urlencode({name: value for name, value in pairs.items() if value})
        return f"{self.path}?{query}" if query else self.path

    def download_link(self, file: str) -> str:
        """Return the address of a file with all rows of the table."""
        return f"{self.path}/download/{file}?{self.query}"

    def tag_link(self, tag: str) -> str:
        """Return the address of the runs with a tag, of those that the filter selects."""
        where = f"tags = {quote(tag)}"
        return self.link(where=f"({self.where}) and {where}" if self.where else where)

    def sort_link(self, column: str) -> str:
        """Return the address sorted by a column: descending if it is sorted by it already."""
        return self.link(sort=f"-{column}" if self.sort == column else column)

    def sort_state(self, column: str) -> str:
        """Return the `aria-sort` of a column."""
        if self.sort.removeprefix("-") != column:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"


def read_state(query: str) -> dict[str, str]:
    """Return the parameters of the page of a query, as `RunsAddress.state` has them."""
    return {name: value for name, value in parse_qsl(query) if name in _STATE}


@router.get("/workspace/{workspace_id}/runs")
def show_runs(page: OwnPage, request: Request) -> Response:
    """Show a page of the runs; for a filter that cannot be used, what is wrong with it."""
    return render_runs(page, request.query_params)


@router.get("/workspace/{workspace_id}/runs/download/{file}")
def download_table(page: OwnPage, request: Request, file: str) -> Response:
    """Return all rows of the table of an address as a file, the chosen columns or most runs' ones.

    Raises NotFound for another file, and as `list_runs` and `list_groups`.
    """
    if file not in _FILES:
        raise NotFound(f"there is no such file to download; the files are {', '.join(_FILES)}")
    address = _read_address(page, request.query_params)
    if address.group_by:
        groups = _find_groups(page, address)
        return respond_table(_FILES[file], lambda: make_table_of(encode_groups(groups)), file)
    grant = page.grant_read()
    query = address.to_query(always=(*_ALWAYS, *address.pinned_names))
    with page.database.snapshot(grant) as db:
        table = read_table(db, grant, query)
    request.app.state.summaries.enqueue(table.pending_grants)
    return respond_table(_FILES[file], lambda: make_table_of(encode_runs(table)), file)


def render_runs(
    page: WorkspacePage,
    query: Mapping[str, str],
    error: ServiceError | None = None,
    selected: Collection[str] = (),
) -> Response:
    """Return the page of an address with this query; with the error of a form, and a selection."""
    address = _read_address(page, query)
    views = read_shown_views(page, RUNS_PAGE, address.view, address.query)
    shown: dict[str, Any] = {"address": address, "views": views, "found": None, "groups": None}
    try:
        shown |= _show_groups(page, address) if address.group_by else _show_runs(page, address)
    except (Invalid, TooLarge) as problem:
        error, shown["equal"] = problem, {}
    return page.render("workspace_runs.html", error, selected=selected, show=show_value, **shown)


def _read_address(page: WorkspacePage, query: Mapping[str, str]) -> RunsAddress:
    """Return what the query of the page says."""
    return RunsAddress(
        f"{page.address}/runs",
        query.get("where", "").strip()[: FILTER_CHARS_MAX + 1],
        query.get("sort", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("columns", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("pin", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("group", "").strip()[:_COLUMNS_CHARS_MAX],
        query.get("pattern", "")[:_COLUMNS_CHARS_MAX],
        query.get("after", ""),
        query.get("view", "")[:VIEW_ID_CHARS_MAX],
    )


def _show_groups(page: WorkspacePage, address: RunsAddress) -> dict[str, Any]:
    """Return what the template has of groups. Raises Invalid and TooLarge."""
    groups = _find_groups(page, address)
    if not address.column_names:
        groups = _leave_out_empty(groups)
    equal = _find_equal(address, groups)
    return {
        "groups": groups,
        "equal": equal,
        "files": _FILES,
        "documents": _write_groups(groups, equal),
        "tensorboard": _find_tensorboard(address, groups),
        "experiments_max": limits.COMPARISON_ITEMS_MAX,
    }


def _show_runs(page: WorkspacePage, address: RunsAddress) -> dict[str, Any]:
    """Return what the template has of single runs. Raises Invalid and TooLarge."""
    found = _find_runs(page, address)
    running = [str(row[0]) for row in found.rows if row[len(_ALWAYS)] == UploadStatus.RUNNING]
    names = _list_shown(found, address)
    return {
        "found": found,
        "tags": [(str(row[_READ.index("tags")] or "").split("\n")) for row in found.rows],
        "may_change": Scope.ADMIN in page.workspace.role.scopes,
        "equal": found.equal,
        "shown": names,
        "pinned": [name for name in address.pinned_names if name in found.columns],
        "offered": _list_offered(found, [name for _, name in names], address),
        "files": _FILES,
        "documents": _write_runs(found, [(found.columns.index("run"), "run"), *names]),
        "numbers": {name for index, name in names if _has_numbers(found, index)},
        "refer": refer_to_run,
        "live": list_live_sources(page.database, page.session, running),
        "running": len(set(running)),
    }


def _list_shown(found: RunsPage, address: RunsAddress) -> list[tuple[int, str]]:
    """Return position and name of the columns that the page has beside the name of a run."""
    named = {*address.column_names, *address.pinned_names}
    hidden = {*_ALWAYS, *({"started", "training", "tags"} - named)}
    return [(index, name) for index, name in enumerate(found.columns) if name not in hidden]


def _list_offered(
    found: RunsPage, shown: Sequence[str], address: RunsAddress
) -> list[tuple[str, str]]:
    """Return the columns that are there and not shown, each with the address that adds it."""
    known = found.known
    names = [name for name in RUN_COLUMNS if name not in _ALWAYS]
    names += [known.name_of(RunColumn("hparam", name)) for name in sorted(known.hparams)]
    for tag in sorted(known.metrics):
        names += [known.name_of(RunColumn("metric", tag, each)) for each in ("last", "min", "max")]
    others = [name for name in names if name not in shown and name not in found.equal]
    return [
        (name, address.link(columns=join_names([*shown, name])))
        for name in others[:OFFERED_ITEMS_MAX]
    ]


def _has_numbers(found: RunsPage, index: int) -> bool:
    """Return whether the first value of a column is a number."""
    value = next((row[index] for row in found.rows if row[index] is not None), None)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _find_groups(page: WorkspacePage, address: RunsAddress) -> GroupsPage:
    """Read the groups of the runs, all on one page. Raises as `list_groups`."""
    grant = page.grant_read()
    query = address.to_query(limit=RUN_GROUP_ITEMS_MAX)
    with page.database.snapshot(grant) as db:
        groups = list_groups(db, grant, query, address.group_by or GroupBy())
    page.request.app.state.summaries.enqueue(groups.pending_grants)
    return groups


def _leave_out_empty(groups: GroupsPage) -> GroupsPage:
    """Return the groups without the columns of which none of them has a value."""
    kept = [
        index
        for index in range(len(groups.columns))
        if any(row.means[index].count for row in groups.rows)
    ]
    rows = [replace(row, means=[row.means[index] for index in kept]) for row in groups.rows]
    return replace(groups, columns=[groups.columns[index] for index in kept], rows=rows)


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
    query = GroupsQuery(tuple(address.group_names), address.where, address.pattern or None)
    return groups_address(groups.experiments, query)


def _find_runs(page: WorkspacePage, address: RunsAddress) -> RunsPage:
    """Read the page; the first one if the page token is of another table. Raises as `list_runs`."""
    grant = page.grant_read()
    pinned = address.pinned_names
    if len(pinned) > PINNED_ITEMS_MAX:
        raise Invalid(f"pin: {len(pinned)} columns are over the limit of {PINNED_ITEMS_MAX}")
    query = address.to_query(
        after=address.after or None,
        limit=limits.LIST_PAGE_ITEMS,
        always=(*_READ, *pinned),
        folds_equal=True,
    )
    with page.database.snapshot(grant) as db:
        try:
            found = list_runs(db, grant, query)
        except MalformedRequest:
            found = list_runs(db, grant, replace(query, after=None))
    page.request.app.state.summaries.enqueue(found.pending_grants)
    return found


def refer_to_run(experiment_id: str, name: str) -> str:
    """Return how the address of a comparison names a run."""
    run = choose_run(experiment_id, name)
    return f"{run.experiment_id}:{run.digest}"


def parse_references(texts: Iterable[str]) -> list[ChosenRun]:
    """Return the runs that these name, as `refer_to_run` does; what names none is left out."""
    pairs = (text.partition(":") for text in texts)
    return [
        ChosenRun(ExperimentId(id_), digest) for id_, _, digest in pairs if is_experiment_id(id_)
    ]


def show_value(column: str, value: HparamValue | MeanValue | None) -> str:
    """Return a value for people: short numbers, times in UTC, means with deviations."""
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
    return f"{format_short(value)} s" if column == "duration" else format_short(value)


def _write_groups(groups: GroupsPage, left_out: Collection[str]) -> dict[str, str]:
    """Return the table of all groups in each form, without some columns that name them."""
    shown = [(index, name) for index, name in enumerate(groups.names) if name not in left_out]
    rows = [
        [
            *(show_value(name, row.key[index]) for index, name in shown),
            str(row.runs),
            *(show_value(name, mean) for name, mean in zip(groups.columns, row.means, strict=True)),
        ]
        for row in groups.rows
    ]
    return _write([*(name for _, name in shown), RUNS_COLUMN, *groups.columns], rows)


def _write_runs(found: RunsPage, shown: Sequence[tuple[int, str]]) -> dict[str, str]:
    """Return the table of the runs of a page in each form: some columns, by their positions."""
    rows = [[show_value(name, row[index]) for index, name in shown] for row in found.rows]
    return _write([name for _, name in shown], rows)


def _write(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    return {form: "\n".join(lines(columns, rows)) for form, lines in _DOCUMENTS.items()}


def show_different(column: str, values: Sequence[HparamValue | None]) -> list[str]:
    """Return values for people; as in the name of a group, where different ones would look alike.

    These are 1 and "1", and numbers that differ in their seventh digit.
    """
    texts = [show_value(column, value) for value in values]
    if column in RUN_COLUMNS or len(set(texts)) == len({repr(value) for value in values}):
        return texts
    return [format_value(value) for value in values]
