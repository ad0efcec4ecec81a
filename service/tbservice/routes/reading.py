"""Reading an experiment over HTTP: runs, plugins, series, and samples of their points."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from tbservice.domain import reading
from tbservice.routes import answers
from tbservice.routes.conditional import ConditionalRoute
from tbservice.routes.requests import MayRead, UsesDatabase
from tbservice.types import DataClass, Json, ReadGrant, Selection, Series

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute)


class SeriesQuery(BaseModel):
    """Which series: the cross product of runs and tags, of one plugin. What is absent does not narrow it."""

    model_config = ConfigDict(extra="forbid")

    run: list[str] | None = Field(default=None, description="Repeatable")
    tag: list[str] | None = Field(default=None, description="Repeatable")
    plugin: str | None = None

    def selection(self, data_class: DataClass | None = None) -> Selection:
        """The same as a plain value."""
        runs = None if self.run is None else frozenset(self.run)
        tags = None if self.tag is None else frozenset(self.tag)
        return Selection(self.plugin, runs, tags, data_class)


class SampleQuery(SeriesQuery):
    """Which series, and how many points of each."""

    downsample: int = Field(
        default=1000,
        ge=0,
        le=2**31 - 1,
        description="Points of each series, exactly, or all when it has fewer: the last, the first, and a uniform "
        "choice that depends on the steps alone. 0 gives none, 1 the last.",
    )


SeriesInUrl = Annotated[SeriesQuery, Query()]
SampleInUrl = Annotated[SampleQuery, Query()]


@router.get("/runs")
def list_runs(grant: MayRead, database: UsesDatabase) -> Response:
    """`{"runs": [{"run", "start_time"}]}`, in the order in which they came; start_time in seconds, or null."""
    with database.snapshot(grant.workspace_id) as db:
        runs = reading.list_runs(db, grant)
    return answers.json_response({"runs": [{"run": run.name, "start_time": run.start_time} for run in runs]})


@router.get("/plugins")
def list_plugins(grant: MayRead, database: UsesDatabase, plugin: str | None = None) -> Response:
    """`{"plugins": […]}`; with `?plugin=`, `{run: {tag: …}}` of its series, with data class and summary metadata."""
    with database.snapshot(grant.workspace_id) as db:
        if plugin is None:
            return answers.json_response({"plugins": reading.list_plugins(db, grant)})
        return _series_response(reading.list_series_counted(db, grant, Selection(plugin)))


@router.get("/scalars")
def list_scalars(grant: MayRead, query: SeriesInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {count, max_step, max_wall_time, last_value, summary_metadata, …}}}` of scalar series."""
    return _list(grant, database, query.selection(DataClass.SCALAR))


@router.get("/tensors")
def list_tensors(grant: MayRead, query: SeriesInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {count, max_step, max_wall_time, summary_metadata, …}}}` of tensor series."""
    return _list(grant, database, query.selection(DataClass.TENSOR))


@router.get("/blob_sequences")
def list_blob_sequences(grant: MayRead, query: SeriesInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {count, max_step, max_wall_time, max_length, summary_metadata, …}}}` of blob sequence series."""
    return _list(grant, database, query.selection(DataClass.BLOB_SEQUENCE))


@router.get("/scalars/data")
def read_scalars(grant: MayRead, query: SampleInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {steps, wall_times, values, total, sampling}}}`; values are numbers, or "NaN", "±Infinity"."""
    return _read_scalars(grant, query, database)


@router.post("/scalars/data")
def read_scalars_by_post(grant: MayRead, query: SampleQuery, database: UsesDatabase) -> Response:
    """As GET, for more runs and tags than a URL holds."""
    return _read_scalars(grant, query, database)


@router.get("/tensors/data")
def read_tensors(grant: MayRead, query: SampleInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {steps, wall_times, values, total, sampling}}}`; values are {dtype, shape, data}, row-major."""
    return _read_tensors(grant, query, database)


@router.post("/tensors/data")
def read_tensors_by_post(grant: MayRead, query: SampleQuery, database: UsesDatabase) -> Response:
    """As GET, for more runs and tags than a URL holds."""
    return _read_tensors(grant, query, database)


@router.get("/blob_sequences/data")
def read_blob_sequences(grant: MayRead, query: SampleInUrl, database: UsesDatabase) -> Response:
    """`{run: {tag: {steps, wall_times, values, total, sampling}}}`; values are lists of {key}."""
    return _read_blob_sequences(grant, query, database)


@router.post("/blob_sequences/data")
def read_blob_sequences_by_post(grant: MayRead, query: SampleQuery, database: UsesDatabase) -> Response:
    """As GET, for more runs and tags than a URL holds."""
    return _read_blob_sequences(grant, query, database)


def _list(grant: ReadGrant, database: UsesDatabase, selection: Selection) -> Response:
    with database.snapshot(grant.workspace_id) as db:
        return _series_response(reading.list_series_counted(db, grant, selection))


def _series_response(found: list[Series]) -> Response:
    nested: Json = {}
    for series in found:
        nested.setdefault(series.run, {})[series.tag] = answers.series_metadata(series)
    return answers.json_response(nested)


def _read_scalars(grant: ReadGrant, query: SampleQuery, database: UsesDatabase) -> Response:
    with database.snapshot(grant.workspace_id) as db:
        samples = reading.read_scalars(db, grant, query.selection(), query.downsample)
    return answers.json_response(answers.by_run_and_tag(samples, answers.scalar_sample))


def _read_tensors(grant: ReadGrant, query: SampleQuery, database: UsesDatabase) -> Response:
    with database.snapshot(grant.workspace_id) as db:
        samples = reading.read_tensors(db, grant, query.selection(), query.downsample)
    return answers.json_response(answers.by_run_and_tag(samples, answers.tensor_sample))


def _read_blob_sequences(grant: ReadGrant, query: SampleQuery, database: UsesDatabase) -> Response:
    with database.snapshot(grant.workspace_id) as db:
        samples = reading.read_blob_sequences(db, grant, query.selection(), query.downsample)
    return answers.json_response(answers.by_run_and_tag(samples, answers.blob_sequence_sample))
