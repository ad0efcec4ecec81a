"""Route of the curves of groups of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import orjson
from fastapi import Request, Response
from pydantic import Field

from tbservice.api.http.dependencies import MayListIn, UsesDatabase
from tbservice.api.http.etag import ConditionalRoute, answer_if_current, is_conditional
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.openapi_errors import Responses
from tbservice.api.http.request_models import StepRangeFields
from tbservice.api.http.routers import make_router
from tbservice.api.http.streaming import refuse_unread
from tbservice.db.database import Database
from tbservice.hparams.values import to_json
from tbservice.runs.curves import (
    CURVE_STEPS_MAX,
    CurvesPlan,
    CurvesQuery,
    GroupCurve,
    plan_curves,
    read_curves,
)
from tbservice.runs.grouping import GroupBy
from tbservice.types.grants import WorkspaceGrant
from tbservice.types.identifiers import Json
from tbservice.types.sampling import ALL_STEPS

router = make_router(
    prefix="/api/v1/workspaces/{workspace_id}/runs", tags=["runs"], route_class=ConditionalRoute
)

_NUMBER_BYTES: Final = 20
"""Bytes of a number as JSON, about."""

_RESPONSES: Final[Responses] = {
    200: {
        "description": "The curves.",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class CurvesParameters(StepRangeFields, strict=True):
    """A metric, the runs, their groups, and the steps of each curve."""

    metric: str = Field(description="Scalar tag; runs without it are left out")
    where: str = Field(default="", description="Filter of the runs, as in the table of runs")
    group_by: list[str] = Field(
        default=[],
        description="Column to group by, as in the table of runs; repeatable. `*` means all "
        "hyperparameters of the selected runs, `-NAME` all but this one. Runs without a value are "
        "a group of their own. Without it, all runs are one group",
    )
    run_pattern: str | None = Field(
        default=None,
        description="RE2 expression, searched in the names of the runs: what its group `(…)` "
        "matches is one more value to group by",
    )
    quantile: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        default=[], description="Quantile at each step, from 0 to 1; repeatable"
    )
    downsample: int = Field(
        default=1_000,
        ge=1,
        le=CURVE_STEPS_MAX,
        description="Steps of a group at most: of more, as many at equal distances in their order. "
        "The statistics at a step are always of all points",
    )
    every: int | None = Field(
        default=None,
        ge=1,
        le=ALL_STEPS.last,
        description="Return the multiples of this number instead of all steps of the runs",
    )

    def to_query(self) -> CurvesQuery:
        """Return the query; raises Invalid for an empty range of steps."""
        return CurvesQuery(
            self.metric,
            self.where,
            GroupBy(self.group_by, self.run_pattern),
            list(dict.fromkeys(self.quantile)),
            self.downsample,
            self.every,
            self.to_range(),
        )


@get_and_post(
    router,
    "/curves",
    post_for="more columns than fit in a URL",
    responses=_RESPONSES,
    response_class=Response,
)
def read_run_curves(
    grant: MayListIn, query: CurvesParameters, database: UsesDatabase, request: Request
) -> Response:
    """Return mean and spread of a metric over groups of runs, at each step.

    `{metric, columns, groups, pending, left_out}`. Of each of `groups`: `group`, its value of each
    of `columns`; `runs`, how many have the metric; `total`, the number of its steps; and arrays
    with an element for each chosen step: `steps`, `count` (the runs with a value there),
    `not_finite` (those whose value is NaN or infinite, which are not counted), `mean`, `std`
    (sample standard deviation), `stderr`, `median`, `min`, `max`, and `quantiles`, by quantile.
    A number that does not exist is null: the deviation of one run, or all where none is counted.

    A run has a value from its first to its last step, interpolated linearly between its points; it
    is never extrapolated. `pending` and `left_out` are those of the table of runs.

    Needs a token or a session that may read the workspace.
    """
    plan, curves = read_groups(grant, query.to_query(), database, request)
    return Response(b"".join(_encode(plan, curves)), media_type="application/json")


def read_groups(
    grant: WorkspaceGrant, query: CurvesQuery, database: Database, request: Request
) -> tuple[CurvesPlan, list[GroupCurve]]:
    """Return the curves of groups of runs.

    Raises NotModified if the client has them, TooManyRequests if it does not read its answers, and
    what `plan_curves` raises.
    """
    with database.snapshot(grant) as db:
        plan = plan_curves(db, grant, query)
        request.app.state.summaries.enqueue(plan.pending_grants)
        if is_conditional(request):
            answer_if_current(request, grant, plan.state)
        curves = list(read_curves(db, plan))
    arrays = 9 + len(query.quantiles)
    refuse_unread(sum(len(curve.spread.steps) for curve in curves) * arrays * _NUMBER_BYTES)
    return plan, curves


def _encode(plan: CurvesPlan, curves: list[GroupCurve]) -> Iterator[bytes]:
    """Yield the answer, group by group: orjson holds Python's lock while it encodes one."""
    head = {"metric": plan.query.metric, "columns": plan.names}
    yield orjson.dumps(head)[:-1] + b',"groups":['
    for index, curve in enumerate(curves):
        spread = curve.spread
        fields: Json = {
            "group": {
                name: None if value is None else to_json(value)
                for name, value in zip(plan.names, curve.key, strict=True)
            },
            "runs": curve.runs,
            "total": curve.total,
            "steps": spread.steps,
            "count": spread.counts,
            **{
                name: getattr(spread, name)
                for name in ("not_finite", "mean", "std", "stderr", "median", "min", "max")
            },
            "quantiles": {
                f"{quantile:g}": values
                for quantile, values in zip(plan.query.quantiles, spread.quantiles, strict=True)
            },
        }
        yield (b"," if index else b"") + orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    rest = {"pending": plan.pending, "left_out": plan.left_out}
    yield b"]," + orjson.dumps(rest)[1:]
