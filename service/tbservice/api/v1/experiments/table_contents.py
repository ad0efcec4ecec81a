"""The tables of an experiment besides its points: their columns and rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa

from tbservice.api.formats.record_tables import RecordTable, make_batch, make_table
from tbservice.api.formats.values.dictionaries import DICTIONARY
from tbservice.api.v1.experiments.experiment_schemas import ExperimentAnswer
from tbservice.db.database import Database
from tbservice.experiment_values import UploadRecord
from tbservice.experiments import lifecycle
from tbservice.hparams.session_columns import SessionColumns
from tbservice.reading import catalog
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import BlobSequenceSample
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbservice.types.series import Run, Series
from tbwire.hparams import HparamValue
from tbwire.media_types import blob_file
from tbwire.tensorboard_pb2 import SummaryMetadata

_T = TypeVar("_T")

_ROWS_PER_BATCH: Final = 65_536

_SERIES_PER_PAGE: Final = 1_000
"""Series in memory at once: their metadata may be long."""


def _texts(*names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.string()) for name in names]


_EXPERIMENT: Final = pa.schema(
    [
        *_texts("experiment_id", "url", "name", "description", "notes", "visibility"),
        ("tags", pa.list_(pa.string())),
        *_texts("created_by", "created_at", "updated_at", "data_at", "status"),
        ("points", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
_PROPERTIES: Final = pa.schema(_texts("kind", "name", "value"))
_UPLOADS: Final = pa.schema(
    [
        *_texts("upload_id", "status", "status_of", "detail", "started_at", "ended_at"),
        *_texts("created_at", "seen_at", "origin"),
        ("packages", pa.list_(pa.string())),
    ]
)
_RUNS: Final = pa.schema([("run", pa.string()), ("start_time", pa.float64())])
_SERIES: Final = pa.schema(
    [
        ("run", DICTIONARY),
        ("tag", DICTIONARY),
        ("data_class", DICTIONARY),
        ("plugin", DICTIONARY),
        ("display_name", pa.string()),
        ("description", pa.string()),
        ("plugin_content", pa.binary()),
        ("summary_metadata", pa.binary()),
        ("points", pa.int64()),
        ("max_step", pa.int64()),
        ("max_wall_time", pa.float64()),
    ]
)
_HPARAMS: Final = pa.schema(
    [
        ("run", DICTIONARY),
        ("name", DICTIONARY),
        ("type", DICTIONARY),
        ("number", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
    ]
)
_BLOBS: Final = pa.schema(
    [
        ("run", DICTIONARY),
        ("tag", DICTIONARY),
        ("step", pa.int64()),
        ("wall_time", pa.float64()),
        ("index", pa.int64()),
        ("key", pa.string()),
        ("sha256", pa.string()),
        ("size", pa.int64()),
        ("content_type", pa.string()),
        ("logged_content_type", pa.string()),
        ("file", pa.string()),
    ]
)


def experiment_table(experiment: ExperimentAnswer) -> RecordTable:
    """Return the table of one row: the experiment without properties and origin.

    Times are ISO 8601 in UTC.
    """
    fields = experiment.model_dump()
    row = tuple(_plain(fields[name]) for name in _EXPERIMENT.names)
    return RecordTable(_EXPERIMENT, [make_batch(_EXPERIMENT, [row])])


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return value


def properties_table(experiment: ExperimentAnswer) -> RecordTable:
    """Return the table of properties and origin, a row each, by name."""
    rows = [
        (kind, name, value)
        for kind, pairs in (("property", experiment.properties), ("origin", experiment.origin))
        for name, value in sorted(pairs.items())
    ]
    return RecordTable(_PROPERTIES, [make_batch(_PROPERTIES, rows)])


def uploads_table(uploads: Iterable[UploadRecord]) -> RecordTable:
    """Return the table of recorded uploads, with their origin as JSON, and ISO 8601 times."""
    return _in_batches(_UPLOADS, map(_upload_row, uploads))


def _upload_row(upload: UploadRecord) -> tuple[Any, ...]:
    origin = json.dumps(upload.origin, ensure_ascii=False, sort_keys=True)
    row = {name: _plain(getattr(upload, name)) for name in _UPLOADS.names} | {"origin": origin}
    return tuple(row.values())


def runs_table(runs: Iterable[Run]) -> RecordTable:
    """Return the table of these runs; a start time is in seconds since the epoch, or missing."""
    return _in_batches(_RUNS, ((run.name, run.start_time) for run in runs))


def series_table(database: Database, grant: ReadGrant, selection: Selection) -> RecordTable:
    """Return the table of the selected series, which are read a page at a time."""
    pages = _read_series(database, grant, selection)
    return RecordTable(_SERIES, (make_batch(_SERIES, map(_series_row, page)) for page in pages))


def _read_series(
    database: Database, grant: ReadGrant, selection: Selection
) -> Iterator[list[Series]]:
    """Yield the series in pages, each in a snapshot of its own."""
    with database.snapshot(grant) as db:
        resolved = catalog.resolve_series(db, grant, selection)
    after = 0
    while True:
        with database.snapshot(grant) as db:
            # Raises NotFound for a deleted experiment: else the table would only look complete.
            lifecycle.get_experiment(db, grant)
            page = catalog.list_series_after(db, grant, resolved, after, _SERIES_PER_PAGE)
        if not page:
            return
        yield page
        after = page[-1].series_id


def _series_row(series: Series) -> tuple[Any, ...]:
    metadata = SummaryMetadata.FromString(series.summary_metadata)
    return (
        series.run,
        series.tag,
        series.data_class.label,
        series.plugin,
        metadata.display_name,
        metadata.summary_description,
        metadata.plugin_data.content,
        series.summary_metadata,
        series.count,
        series.last_step,
        series.max_wall_time,
    )


def sessions_table(sessions: SessionColumns) -> RecordTable:
    """Return the table of sessions; metrics are read while it is encoded."""
    return make_table(sessions.types, sessions.read_chunks())


def hparams_table(hparams: Iterable[tuple[str, str, HparamValue]]) -> RecordTable:
    """Return the table of hyperparameters, a row each: the value is in the column of its type."""
    return _in_batches(_HPARAMS, (_hparam_row(*each) for each in hparams))


def _hparam_row(run: str, name: str, value: HparamValue) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return run, name, "bool", None, None, value
    if isinstance(value, str):
        return run, name, "string", None, value, None
    return run, name, "number", value, None, None


def blobs_table(chunks: Iterable[SeriesChunk]) -> RecordTable:
    """Return the table of blobs, a row for each blob of each point."""
    return _in_batches(_BLOBS, (row for chunk in chunks for row in _blob_rows(chunk)))


def _blob_rows(chunk: SeriesChunk) -> Iterator[tuple[Any, ...]]:
    sample = chunk.sample
    assert isinstance(sample, BlobSequenceSample)  # noqa: S101 - the caller reads this class
    points = zip(
        sample.steps.tolist(),
        sample.wall_times.tolist(),
        sample.sequences,
        sample.digests,
        sample.logged_content_types,
        strict=True,
    )
    names = chunk.series.run, chunk.series.tag
    for step, wall_time, keys, digests, logged in points:
        for index, (key, digest) in enumerate(zip(keys, digests, strict=True)):
            blob = chunk.blobs[digest]
            described = (blob.size, blob.content_type, logged, blob_file(digest, blob.content_type))
            yield *names, step, wall_time, index, key, blob.sha256, *described


def _in_batches(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> RecordTable:
    return RecordTable(schema, (make_batch(schema, batch) for batch in _batched(rows)))


def _batched(rows: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, _ROWS_PER_BATCH)):
        yield batch
