"""Route of the table of runs of a workspace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import MayListIn, UsesDatabase
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.hparams.values import to_json
from tbservice.runs.columns import RUN_COLUMNS, KnownColumns
from tbservice.runs.group_table import GroupsPage, list_group_rows, list_groups
from tbservice.runs.grouping import GroupBy
from tbservice.runs.use_cases import RunsQuery, list_runs
from tbwire.hparams import HparamValue

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/runs", tags=["runs"])

RUNS_PAGE_ITEMS_MAX: Final = 1_000
"""Runs (items) of a page."""


class RunsSelection(FewFields):
    """Filter, order, columns and groups of a table of runs."""

    where: str = Field(
        default="",
        description='Filter, as `lr < 0.01 and optimizer = "adam" and loss.min < 0.3`',
    )
    sort: list[str] = Field(
        default=[], description="Column to sort by, with `-` before it descending; repeatable"
    )
    column: list[str] = Field(
        default=[],
        description="Column to return; repeatable. Without it, those that most runs have",
    )
    group_by: list[str] = Field(
        default=[],
        description="Column to group by; repeatable: a row for each group, with `runs`, their "
        "number, and `.mean`, `.std` and `.count` of each column. `*` means all hyperparameters of "
        "the selected runs, `-NAME` all but this one",
    )
    run_pattern: str | None = Field(
        default=None,
        description="RE2 expression, searched in the names of the runs: what its group `(…)` "
        "matches is one more value to group by",
    )


class RunsParameters(RunsSelection):
    """Filter, order, columns, groups and page of a table of runs."""

    available: bool = Field(default=False, description="List the columns that runs have")
    after: str | None = Field(default=None, description="`next` of the previous page")
    limit: int = Field(
        default=100, ge=1, le=RUNS_PAGE_ITEMS_MAX, description="Maximum runs per page"
    )


class AvailableColumns(BaseModel):
    """The columns that runs have."""

    run: list[str] = Field(description="Columns of every run")
    hparams: dict[str, int] = Field(description="Hyperparameters, with the number of runs")
    metrics: dict[str, int] = Field(description="Scalar tags, with the number of runs")
    packages: dict[str, int] = Field(
        description="Packages, whose versions are `package.NAME`, with the number of runs"
    )


class GroupedColumns(BaseModel):
    """The columns of a table of groups."""

    by: list[str] = Field(description="Columns that runs are grouped by")
    of: list[str] = Field(
        description="Columns over the runs of each group: with the suffixes `.mean`, `.std` "
        "(sample standard deviation; null of one run) and `.count` (runs with a finite number)"
    )


class RunsAnswer(BaseModel):
    """A page of runs, or of groups of runs."""

    runs: list[dict[str, bool | int | float | str | None]] = Field(
        description="Values by column; null for none. NaN and infinities are the strings `NaN`, "
        "`Infinity` and `-Infinity`, several tags lines of one text"
    )
    columns: list[str] = Field(description="The columns, in order")
    total: int = Field(
        description="Number of runs that the filter selects, or of the groups that they form"
    )
    pending: int = Field(
        description="Number of series of the workspace whose minimum and maximum are still "
        "computed in the background: null until then"
    )
    left_out: bool = Field(
        description="Whether there are more experiments than the table has, the newest: select "
        "others by `experiment`"
    )
    available: AvailableColumns | None = None
    grouped: GroupedColumns | None = Field(
        default=None, description="For a table of groups: which columns are what"
    )
    next: str | None = Field(description="Page token; null on the last page")


@router.get("")
def list_workspace_runs(
    grant: MayListIn,
    database: UsesDatabase,
    request: Request,
    query: Annotated[RunsParameters, Query()],
) -> RunsAnswer:
    """List the runs of all experiments of a workspace, with hyperparameters and metrics.

    With `group_by` or `run_pattern`, list groups of runs on one page: `sort` and `column` then
    name columns of which the means are sorted and returned.

    Needs a token or a session that may read the workspace.
    """
    wanted = RunsQuery(query.where, query.sort, query.column, query.after, query.limit)
    if query.group_by or query.run_pattern is not None:
        group_by = GroupBy(query.group_by, query.run_pattern)
        with database.snapshot(grant) as db:
            groups = list_groups(db, grant, wanted, group_by)
        request.app.state.summaries.enqueue(groups.pending_grants)
        return _make_groups_answer(groups, with_available=query.available)
    with database.snapshot(grant) as db:
        page = list_runs(db, grant, wanted)
    request.app.state.summaries.enqueue(page.pending_grants)
    return RunsAnswer(
        runs=[_to_json(page.columns, row) for row in page.rows],
        columns=page.columns,
        total=page.total,
        pending=page.pending,
        left_out=page.left_out,
        available=_list_available(page.known) if query.available else None,
        next=page.next,
    )


def _make_groups_answer(page: GroupsPage, *, with_available: bool) -> RunsAnswer:
    by, columns, rows = list_group_rows(page)
    return RunsAnswer(
        runs=[_to_json(columns, row) for row in rows],
        columns=columns,
        total=page.total,
        pending=page.pending,
        left_out=page.left_out,
        available=_list_available(page.known) if with_available else None,
        grouped=GroupedColumns(by=by, of=page.columns),
        next=None,
    )


def _to_json(
    columns: Sequence[str], row: Sequence[HparamValue | None]
) -> dict[str, HparamValue | None]:
    return {
        name: None if value is None else to_json(value)
        for name, value in zip(columns, row, strict=True)
    }


def _list_available(known: KnownColumns) -> AvailableColumns:
    return AvailableColumns(
        run=list(RUN_COLUMNS),
        hparams=dict(sorted(known.hparams.items())),
        metrics=dict(sorted(known.metrics.items())),
        packages=dict(sorted(known.count_packages().items())),
    )
