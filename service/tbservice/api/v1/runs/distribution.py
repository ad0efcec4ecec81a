"""Routes of the distribution of a scalar tag over runs of an experiment."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Response
from pydantic import Field

from tbservice.api.formats.json_encoding import json_response
from tbservice.api.http.dependencies import MayRead, UsesDatabase
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.openapi_errors import Responses
from tbservice.api.http.request_models import StepRangeFields
from tbservice.api.http.routers import make_router
from tbservice.runs.distribution import (
    QUANTILES,
    DistributionQuery,
    find_nearest,
    read_distribution,
)
from tbservice.runs.filters import FILTER_CHARS_MAX
from tbservice.types.sampling import ALL_STEPS

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}/scalars",
    tags=["runs"],
    route_class=ConditionalRoute,
)

_RESPONSES: Final[Responses] = {
    200: {"description": "JSON.", "content": {"application/json": {"schema": {"type": "object"}}}}
}


class DistributionParameters(StepRangeFields):
    """A scalar tag, a filter of runs, and a range of steps."""

    tag: str = Field(description="Scalar tag; runs without it are left out")
    where: str = Field(
        default="",
        max_length=FILTER_CHARS_MAX,
        description="Filter of the runs, as in the table of runs",
    )

    def to_query(self) -> DistributionQuery:
        """Return the query; raises Invalid for an empty range of steps."""
        return DistributionQuery(self.tag, self.where, self.to_range())


class ShownParameters(DistributionParameters):
    """A tag, a range of steps, and the range of the density."""

    skip_outliers: bool = Field(
        default=False,
        description="Whether the density leaves out values that are further from the quantiles "
        "than the least and the greatest of these are apart",
    )


class NearestParameters(DistributionParameters):
    """A tag, a range of steps, and a place."""

    step: int = Field(ge=ALL_STEPS.first, le=ALL_STEPS.last, description="Step of the place")
    value: float = Field(allow_inf_nan=False, description="Value of the place")


@router.get("/distribution", responses=_RESPONSES, response_class=Response)
def read_scalar_distribution(
    grant: MayRead, query: Annotated[ShownParameters, Query()], database: UsesDatabase
) -> Response:
    """Return quantiles and density of a scalar tag over runs, for more than can be drawn.

    `{runs, points, steps, count, quantiles, density}`: the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95
    at up to 200 steps, by the rule of the curves of groups of runs; `count` runs have a finite
    value there. `density` has the numbers of all points in a grid: `counts` by column and row;
    a column begins at its step of `edges`, whose last element is the last step; rows are equal
    parts of the range from `low` to `high`, beyond which `outside` points are.
    """
    with database.snapshot(grant) as db:
        found = read_distribution(db, grant, query.to_query(), skips_outliers=query.skip_outliers)
    density = found.density
    content = {
        "runs": found.runs,
        "points": found.points,
        "steps": found.spread.steps,
        "count": found.spread.counts,
        "quantiles": {
            f"{quantile:g}": values
            for quantile, values in zip(QUANTILES, found.spread.quantiles, strict=True)
        },
        "density": {
            "edges": density.edges,
            "low": density.low,
            "high": density.high,
            "counts": density.counts,
            "outside": density.outside,
        },
    }
    return json_response(content)


@router.get("/nearest", responses=_RESPONSES, response_class=Response)
def find_nearest_run(
    grant: MayRead, query: Annotated[NearestParameters, Query()], database: UsesDatabase
) -> Response:
    """Return the run that is nearest to a place among the runs of the experiment.

    `{run, step, value}`: its value at that of the steps of the distribution that is nearest.
    404 if no run has a finite value there.
    """
    place = (query.step, query.value)
    with database.snapshot(grant) as db:
        found = find_nearest(db, grant, query.to_query(), place)
    return json_response({"run": found.run, "step": found.step, "value": found.value})
