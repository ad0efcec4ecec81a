"""Routes of runs and their curves as tables, for data frames and SQL."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import pyarrow as pa
from fastapi import Query, Request, Response
from pydantic import Field

from tbservice.api.formats.record_tables import RecordTable, TableFormat, make_table_of
from tbservice.api.formats.table_response import FORMAT, TABLE_OPTIONS, respond_table
from tbservice.api.http.dependencies import MayListIn, UsesDatabase
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.routers import make_router
from tbservice.api.v1.runs.curves import CurvesParameters, read_groups
from tbservice.api.v1.runs.runs import RunsSelection
from tbservice.runs import run_values
from tbservice.runs.arrow_columns import encode_column, encode_groups, encode_runs
from tbservice.runs.curves import CurvesPlan, GroupCurve
from tbservice.runs.group_table import list_groups
from tbservice.runs.grouping import RUN_GROUP_ITEMS_MAX, GroupBy
from tbservice.runs.use_cases import RunsQuery, read_table
from tbservice.types.identifiers import Float64s, Int64s

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/runs", tags=["runs"])

_STATISTICS: Final = ("mean", "std", "stderr", "median", "min", "max")


class RunsTableParameters(RunsSelection):
    """Filter, order, columns and groups of a table of runs, and its format."""

    format: TableFormat = Field(default=TableFormat.PARQUET, description=FORMAT)


class CurvesTableParameters(CurvesParameters):
    """A metric, the runs, their groups, the steps of each curve, and the format of the table."""

    format: TableFormat = Field(default=TableFormat.PARQUET, strict=False, description=FORMAT)


@router.get("/table", **TABLE_OPTIONS)
def download_runs(
    grant: MayListIn,
    database: UsesDatabase,
    request: Request,
    query: Annotated[RunsTableParameters, Query()],
) -> Response:
    """Return all runs that a filter selects, or the groups that they form, as a table, a row each.

    The columns of groups are those of `GET …/runs`. A column with values of several types is text,
    several tags lines of one text.

    Needs a token or a session that may read the workspace.
    """
    if query.group_by or query.run_pattern is not None:
        wanted = RunsQuery(query.where, query.sort, query.column, limit=RUN_GROUP_ITEMS_MAX)
        with database.snapshot(grant) as db:
            groups = list_groups(db, grant, wanted, GroupBy(query.group_by, query.run_pattern))
        request.app.state.summaries.enqueue(groups.pending_grants)
        return respond_table(query.format, lambda: make_table_of(encode_groups(groups)))
    with database.snapshot(grant) as db:
        table = read_table(db, grant, RunsQuery(query.where, query.sort, query.column))
    request.app.state.summaries.enqueue(table.pending_grants)
    return respond_table(query.format, lambda: make_table_of(encode_runs(table)))


@get_and_post(router, "/curves/table", post_for="more columns than fit in a URL", **TABLE_OPTIONS)
def download_run_curves(
    grant: MayListIn, query: CurvesTableParameters, database: UsesDatabase, request: Request
) -> Response:
    """Return mean and spread of a metric over groups of runs as a table, a row for each step.

    The columns that runs are grouped by, `runs`, `step`, `count`, `not_finite`, `mean`, `std`,
    `stderr`, `median`, `min`, `max`, and for each quantile one as `quantile_0.9`. What they mean
    is with `GET …/runs/curves`.

    Needs a token or a session that may read the workspace.
    """
    plan, curves = read_groups(grant, query.to_query(), database, request)
    return respond_table(query.format, lambda: _make_curves_table(plan, curves))


def _make_curves_table(plan: CurvesPlan, curves: list[GroupCurve]) -> RecordTable:
    keys = zip(*(curve.key for curve in curves), strict=True) if curves else [()] * len(plan.names)
    index = np.repeat(np.arange(len(curves)), [len(curve.spread.steps) for curve in curves])

    spreads = [curve.spread for curve in curves]
    columns: dict[str, pa.Array] = {
        "runs": pa.array([curve.runs for curve in curves], pa.int64()).take(pa.array(index)),
        "step": _join([spread.steps for spread in spreads], pa.int64()),
        "count": _join([spread.counts for spread in spreads], pa.int64()),
        "not_finite": _join([spread.not_finite for spread in spreads], pa.int64()),
    }
    for name in _STATISTICS:
        columns[name] = _join([getattr(spread, name) for spread in spreads], pa.float64())
    for place, quantile in enumerate(plan.query.quantiles):
        values = [spread.quantiles[place] for spread in spreads]
        columns[f"quantile_{quantile:g}"] = _join(values, pa.float64())
    by = {
        f"hparam.{name}" if name in columns else name: encode_column(
            run_values.of_objects(key), index
        )
        for name, key in zip(plan.names, keys, strict=True)
    }
    return make_table_of(by | columns)


def _join(parts: list[Int64s] | list[Float64s], type_: pa.DataType) -> pa.Array:
    """Return the elements of all arrays; NaN, as what does not exist, is missing."""
    arrays = [pa.array(part, type_, from_pandas=True) for part in parts]
    return pa.concat_arrays([pa.array([], type_), *arrays])
