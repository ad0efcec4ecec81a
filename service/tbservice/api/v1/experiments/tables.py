"""Routes of tables: all that an experiment holds besides its points, for data frames and SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import Query, Response
from pydantic import Field

from tbservice import limits
from tbservice.api.formats.record_tables import TableFormat
from tbservice.api.formats.table_response import FORMAT, TABLE_OPTIONS, respond_table
from tbservice.api.http.dependencies import (
    MayRead,
    MayReadByToken,
    UsesDatabase,
    UsesObjects,
    UsesSettings,
)
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.request_models import FewFields, Names
from tbservice.api.http.routers import make_router
from tbservice.api.v1.experiments import table_contents
from tbservice.api.v1.experiments.experiment_schemas import ExperimentAnswer, make_answer
from tbservice.api.v1.points.point_queries import SeriesQuery
from tbservice.db.database import Database
from tbservice.experiment_values import UploadRecord
from tbservice.experiments import lifecycle, uploads
from tbservice.hparams.session_columns import iter_hparams, open_session_columns
from tbservice.reading import catalog
from tbservice.reading.full_scan import stream_all
from tbservice.reading.source import ExperimentReader
from tbservice.types.grants import ReadGrant
from tbwire.points import DATA_CLASSES, DataClass, DataClassName

router = make_router(prefix="/api/v1/experiments/{experiment_id}/tables", tags=["tables"])

_POST_FOR: Final = "more runs and tags than fit in a URL"

_Format = Annotated[TableFormat, Query(alias="format", description=FORMAT)]


class RunsTableQuery(FewFields, strict=True):
    """The selected runs, and the format of their table."""

    run: Names = Field(default=None, description="Name of a run; repeatable")
    format: TableFormat = Field(default=TableFormat.PARQUET, strict=False, description=FORMAT)


class BlobsTableQuery(SeriesQuery):
    """The selected series, and the format of the table."""

    format: TableFormat = Field(default=TableFormat.PARQUET, strict=False, description=FORMAT)


class SeriesTableQuery(BlobsTableQuery):
    """The selected series, of one data class if it is given, and the format of their table."""

    data_class: DataClassName | None = Field(default=None, description="Data class of the series")


@router.get("/experiment", **TABLE_OPTIONS)
def read_experiment_table(
    grant: MayRead,
    database: UsesDatabase,
    settings: UsesSettings,
    format_: _Format = TableFormat.PARQUET,
) -> Response:
    """Return a table of one row: name, description, notes, tags, times and so on.

    Times are ISO 8601 in UTC. Properties and origin are the table `properties`.
    """
    answer = _read_experiment(grant, database, settings)
    return respond_table(format_, lambda: table_contents.experiment_table(answer))


@router.get("/properties", **TABLE_OPTIONS)
def read_properties_table(
    grant: MayRead,
    database: UsesDatabase,
    settings: UsesSettings,
    format_: _Format = TableFormat.PARQUET,
) -> Response:
    """Return a table of properties and origin: kind ("property" or "origin"), name, value."""
    answer = _read_experiment(grant, database, settings)
    return respond_table(format_, lambda: table_contents.properties_table(answer))


@router.get("/uploads", **TABLE_OPTIONS)
def read_uploads_table(
    grant: MayReadByToken, database: UsesDatabase, format_: _Format = TableFormat.PARQUET
) -> Response:
    """Return a table of the recorded uploads, newest first, as `GET …/uploads` has them.

    `origin` is JSON, times are ISO 8601 in UTC. It takes a token, also if everyone may read the
    experiment.
    """
    return respond_table(
        format_, lambda: table_contents.uploads_table(_iter_uploads(grant, database))
    )


def _iter_uploads(grant: ReadGrant, database: Database) -> Iterator[UploadRecord]:
    after: str | None = None
    while True:
        with database.snapshot(grant) as db:
            # Raises NotFound for a deleted experiment: else the table would only look complete.
            lifecycle.get_experiment(db, grant)
            page, after = uploads.list_uploads(db, grant, after, limits.UPLOADS_PAGE_ITEMS_MAX)
        yield from page
        if after is None:
            return


@get_and_post(router, "/runs", post_for=_POST_FOR, **TABLE_OPTIONS)
def read_runs_table(grant: MayRead, query: RunsTableQuery, database: UsesDatabase) -> Response:
    """Return a table of runs: run, start_time (seconds since the epoch, or missing)."""
    with database.snapshot(grant) as db:
        lifecycle.get_experiment(db, grant)
        runs = catalog.list_runs(db, grant)
    if query.run is not None:
        selected = frozenset(query.run)
        runs = [run for run in runs if run.name in selected]
    return respond_table(query.format, lambda: table_contents.runs_table(runs))


@get_and_post(router, "/series", post_for=_POST_FOR, **TABLE_OPTIONS)
def read_series_table(grant: MayRead, query: SeriesTableQuery, database: UsesDatabase) -> Response:
    """Return a table of series, with their summary metadata.

    run, tag, data_class, plugin, display_name, description, plugin_content (bytes as the plugin
    wrote them), summary_metadata (all of it, TensorBoard's message `SummaryMetadata`), points,
    max_step, max_wall_time. Bytes are base64 in CSV.
    """
    data_class = None if query.data_class is None else DATA_CLASSES[query.data_class]
    selection = query.to_selection(data_class)
    return respond_table(
        query.format, lambda: table_contents.series_table(database, grant, selection)
    )


@router.get("/sessions", **TABLE_OPTIONS)
def read_sessions_table(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    format_: _Format = TableFormat.PARQUET,
) -> Response:
    """Return a table of sessions (runs with hyperparameters), by name.

    run, group, status, start_time, end_time, model_uri, monitor_url; `hparams.NAME` for each
    hyperparameter, and `metrics.TAG` or `metrics.GROUP/TAG` for the last value of each metric. A
    column with values of several types is text. Over 20,000 columns, there are the first seven
    only: the hyperparameters are in the table `hparams`, too.
    """
    reader = ExperimentReader(grant, database, objects)
    return respond_table(
        format_, lambda: table_contents.sessions_table(open_session_columns(reader))
    )


@router.get("/hparams", **TABLE_OPTIONS)
def read_hparams_table(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    format_: _Format = TableFormat.PARQUET,
) -> Response:
    """Return a table of hyperparameters: run, name, type, and the value by its type.

    `type` is "number", "string" or "bool", and the value in the column number, text or flag.
    """
    reader = ExperimentReader(grant, database, objects)
    return respond_table(format_, lambda: table_contents.hparams_table(iter_hparams(reader)))


@get_and_post(router, "/blobs", post_for=_POST_FOR, **TABLE_OPTIONS)
def read_blobs_table(grant: MayRead, query: BlobsTableQuery, database: UsesDatabase) -> Response:
    """Return a table of the blobs of all points, a row each.

    run, tag, step, wall_time, index, key, sha256, size, content_type, logged_content_type, file
    (the path of its bytes in an export). Fetch the bytes at `/api/v1/blobs/{key}`.
    """
    selection = query.to_selection()
    return respond_table(
        query.format,
        lambda: table_contents.blobs_table(
            stream_all(database, grant, selection, DataClass.BLOB_SEQUENCE)
        ),
    )


def _read_experiment(
    grant: MayRead, database: UsesDatabase, settings: UsesSettings
) -> ExperimentAnswer:
    with database.snapshot(grant) as db:
        experiment = lifecycle.get_experiment(db, grant)
        notes = lifecycle.get_notes(db, experiment, grant)
        status = uploads.find_status(db, grant, experiment)
    return make_answer(settings, experiment, notes, status)
