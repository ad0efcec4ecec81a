"""Route of the table of runs of a workspace."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Request
from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import MayListIn, UsesDatabase
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.hparams.values import to_json
from tbservice.runs.columns import RUN_COLUMNS
from tbservice.runs.use_cases import RunsPage, RunsQuery, list_runs

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/runs", tags=["runs"])

RUNS_PAGE_ITEMS_MAX: Final = 1_000
"""Runs (items) of a page."""


class RunsParameters(FewFields):
    """Filter, order, columns and page of a table of runs."""

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


class RunsAnswer(BaseModel):
    """A page of runs."""

    runs: list[dict[str, bool | float | str | None]] = Field(
        description="Values by column; null for none. NaN and infinities are the strings `NaN`, "
        "`Infinity` and `-Infinity`, several tags lines of one text"
    )
    columns: list[str] = Field(description="The columns, in order")
    total: int = Field(description="Number of runs that the filter selects")
    pending: int = Field(
        description="Number of series of the workspace whose minimum and maximum are still "
        "computed in the background: null until then"
    )
    left_out: bool = Field(
        description="Whether there are more experiments than the table has, the newest: select "
        "others by `experiment`"
    )
    available: AvailableColumns | None = None
    next: str | None = Field(description="Page token; null on the last page")


@router.get("")
def list_workspace_runs(
    grant: MayListIn,
    database: UsesDatabase,
    request: Request,
    query: Annotated[RunsParameters, Query()],
) -> RunsAnswer:
    """List the runs of all experiments of a workspace, with hyperparameters and metrics.

    Needs a token or a session that may read the workspace.
    """
    with database.snapshot(grant) as db:
        page = list_runs(
            db, grant, RunsQuery(query.where, query.sort, query.column, query.after, query.limit)
        )
    for pending in page.pending_grants:
        request.app.state.summaries.enqueue(pending)
    return RunsAnswer(
        runs=[
            {
                name: None if value is None else to_json(value)
                for name, value in zip(page.columns, row, strict=True)
            }
            for row in page.rows
        ],
        columns=page.columns,
        total=page.total,
        pending=page.pending,
        left_out=page.left_out,
        available=_list_available(page) if query.available else None,
        next=page.next,
    )


def _list_available(page: RunsPage) -> AvailableColumns:
    return AvailableColumns(
        run=list(RUN_COLUMNS),
        hparams=dict(sorted(page.known.hparams.items())),
        metrics=dict(sorted(page.known.metrics.items())),
    )
