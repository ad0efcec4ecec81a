"""Routes for listing the content of an experiment: runs, plugins, names, series metadata."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Response
from pydantic import BaseModel, Field

from tbservice.api.formats import json_encoding
from tbservice.api.http.dependencies import MayRead, UsesDatabase
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.routers import make_router
from tbservice.api.v1.points.point_queries import (
    ScalarSeriesPageQuery,
    SeriesPageQuery,
)
from tbservice.errors import Invalid
from tbservice.reading import attempts, catalog, tag_groups
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Json
from tbservice.types.sampling import Selection
from tbservice.types.series import Run, Series
from tbwire.points import DataClass

RUNS_PAGE_ITEMS_MAX: Final = 10_000
"""Runs on one page of their list, if it is read in pages."""

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute
)

_LIMIT: Final = "Maximum runs per page. Without it, all runs are returned"
_AFTER: Final = "`next` of the previous page; requires `limit`"
_POST_FOR: Final = "more runs and tags than fit in a URL"


@router.get("/runs")
def list_runs(
    grant: MayRead,
    database: UsesDatabase,
    limit: Annotated[int | None, Query(ge=1, le=RUNS_PAGE_ITEMS_MAX, description=_LIMIT)] = None,
    after: Annotated[str, Query(description=_AFTER)] = "",
) -> Response:
    """List the runs in the order of their first upload.

    `{"runs": [{"run", "start_time"}]}`; `start_time` is in seconds since the epoch, or null. With
    `limit`, a page of them and `next`.
    """
    _check_page(limit, after)
    with database.snapshot(grant) as db:
        if limit is None:
            return json_encoding.json_response({"runs": _runs(catalog.list_runs(db, grant))})
        page, following = catalog.list_runs_page(db, grant, after, limit)
    return json_encoding.json_response({"runs": _runs(page), "next": following})


def _runs(runs: list[Run]) -> list[Json]:
    return [{"run": run.name, "start_time": run.start_time} for run in runs]


def _check_page(limit: int | None, after: str) -> None:
    if limit is None and after:
        raise Invalid("'after' requires 'limit'")


@router.get("/names")
def list_names(grant: MayRead, database: UsesDatabase) -> Response:
    """List the names of all series: `{run: [tag, …]}`, both in the order of their first upload."""
    with database.snapshot(grant) as db:
        tags_by_run = catalog.require(db, grant, tag_groups.list_tags_by_run(db, grant))
    return json_encoding.json_response(json_encoding.encode_shared(tags_by_run))


@router.get("/plugins")
def list_plugins(grant: MayRead, database: UsesDatabase, plugin: str | None = None) -> Response:
    """List the plugins that own series; with `plugin`, list the series of that plugin.

    `{"plugins": [name, …]}`; with `plugin`, `{run: {tag: {data_class, summary_metadata, …}}}`.
    """
    with database.snapshot(grant) as db:
        if plugin is None:
            return json_encoding.json_response({"plugins": catalog.list_plugins(db, grant)})
        return json_encoding.json_response(
            _nested(catalog.list_series_with_counts(db, grant, Selection(plugin)))
        )


@get_and_post(router, "/scalars", post_for=_POST_FOR)
def list_scalars(grant: MayRead, query: ScalarSeriesPageQuery, database: UsesDatabase) -> Response:
    """List scalar series, without points.

    `{run: {tag: {count, max_step, max_wall_time, last_value, summary_metadata, …}}}`
    """
    return _list(grant, database, query, DataClass.SCALAR)


@get_and_post(router, "/tensors", post_for=_POST_FOR)
def list_tensors(grant: MayRead, query: SeriesPageQuery, database: UsesDatabase) -> Response:
    """List tensor series, without points.

    `{run: {tag: {count, max_step, max_wall_time, summary_metadata, …}}}`
    """
    return _list(grant, database, query, DataClass.TENSOR)


@get_and_post(router, "/blob_sequences", post_for=_POST_FOR)
def list_blob_sequences(grant: MayRead, query: SeriesPageQuery, database: UsesDatabase) -> Response:
    """List blob sequence series, without points.

    `{run: {tag: {count, max_step, max_wall_time, max_length, summary_metadata, …}}}`; `max_length`
    is the largest number of blobs at a step.
    """
    return _list(grant, database, query, DataClass.BLOB_SEQUENCE)


def _list(
    grant: ReadGrant, database: UsesDatabase, query: SeriesPageQuery, data_class: DataClass
) -> Response:
    selection = query.to_selection(data_class)
    _check_page(query.limit, query.after)
    if query.limit is None:
        with database.snapshot(grant) as db:
            return json_encoding.json_response(
                _nested(catalog.list_series_with_counts(db, grant, selection))
            )

    with database.snapshot(grant) as db:
        page, following = catalog.list_series_page(db, grant, selection, query.after, query.limit)
    return json_encoding.json_response({"series": _nested(page), "next": following})


def _nested(listed: list[Series]) -> Json:
    nested: Json = {}
    for series in listed:
        nested.setdefault(series.run, {})[series.tag] = json_encoding.series_metadata(series)
    return nested


class AttemptAnswer(BaseModel, from_attributes=True):
    """An attempt of a run."""

    attempt: int = Field(validation_alias="number", description="Number of the attempt, from 1")
    started_at: float = Field(
        description="Wall time of the first record of the file that it began with, in seconds "
        "since the epoch"
    )
    superseded_points: int = Field(
        description="Points of this attempt that later ones superseded; 0 for the newest"
    )


class RunAttemptsAnswer(BaseModel, from_attributes=True):
    """The attempts of a run, the oldest first."""

    run: str = Field(description="Name of the run")
    attempts: list[AttemptAnswer]


class AttemptsAnswer(BaseModel):
    """The runs that have several attempts."""

    runs: list[RunAttemptsAnswer]


@router.get("/attempts")
def list_attempts(grant: MayRead, database: UsesDatabase) -> AttemptsAnswer:
    """List the attempts of each run that was restarted and repeated steps.

    Shown is the newest; an earlier one is read with `attempt` at the routes of points. Runs with
    one attempt are left out.
    """
    with database.snapshot(grant) as db:
        runs = attempts.list_attempts(db, grant)
    return AttemptsAnswer(runs=list(map(RunAttemptsAnswer.model_validate, runs)))
