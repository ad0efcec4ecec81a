"""Classic API: runs, scalars and histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Response

from tbservice.api.formats import json_encoding
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects, UsesSettings
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.api.http.routers import make_router
from tbservice.api.v0_classic import histograms
from tbservice.api.v0_classic.parameters import PREFIX, WANTS_RUN_AND_TAG, RunAndTag, parse_integer
from tbservice.errors import MalformedRequest
from tbservice.reading import catalog, reservoir, tensor_objects
from tbservice.samples import ScalarSample
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Json
from tbservice.types.sampling import Selection
from tbservice.types.series import Series
from tbwire.points import DataClass

router = make_router(
    ignores_unknown_query=True, prefix=PREFIX, tags=["classic"], route_class=ConditionalRoute
)

_SAMPLE_COUNT: Final = 10
_SAMPLE_COUNT_MIN: Final = 2
_GRAPH: Final = "graphs"
_TAG_TYPES_BY_PLUGIN: Final = {
    "histograms": ("histograms", "compressedHistograms"),
    "images": ("images",),
    "audio": ("audio",),
    "graph_run_metadata": ("run_metadata",),
    "graph_tagged_run_metadata": ("run_metadata",),
}


@router.get("/data/runs")
def list_classic_runs(grant: MayRead, database: UsesDatabase) -> Response:
    """Return all runs with their tags by type, and whether they have a graph.

    `{run: {"scalars": [tag], "histograms": [tag], "compressedHistograms": [tag], "images": [tag],
    "audio": [tag], "run_metadata": [tag], "graph": true}}`
    """
    with database.snapshot(grant) as db:
        runs = catalog.list_runs(db, grant)
        listed = catalog.list_series(db, grant, Selection())

    index: dict[str, Json] = {run.name: _no_tags() for run in runs}
    for series in listed:
        tags = index[series.run]
        tags["graph"] = tags["graph"] or series.plugin == _GRAPH
        for name in _tag_types_of(series):
            tags[name].append(series.tag)
    return json_encoding.json_response(index)


@router.get("/data/scalars")
def read_classic_scalars(
    grant: MayRead,
    database: UsesDatabase,
    settings: UsesSettings,
    run: Annotated[str | None, Query(description="Name of the run")] = None,
    tag: Annotated[str | None, Query(description="Name of the tag")] = None,
    sample_count: Annotated[
        str | None,
        Query(description="Maximum points per series, equally spaced by index; at least 2"),
    ] = None,
    format: Annotated[  # noqa: A002 - the parameter's name in the original API
        str | None, Query(description="`csv` for CSV; requires `run` and `tag`")
    ] = None,
) -> Response:
    """Return `[[wall_time, step, value]]` of a run and tag, or a sample of all series.

    Without `run` and `tag`, return `{run: {tag: [[wall_time, step, value]]}}` with 10 points per
    series, or `sample_count`. Points are sorted by wall time, then by step: the order in which they
    were written is not stored.
    """
    if (run is None) != (tag is None):
        raise MalformedRequest("give both 'run' and 'tag', or neither for a sample of all series")
    if run is None or tag is None:
        if format == "csv":
            raise MalformedRequest("'format=csv' requires 'run' and 'tag'")
        return _sample_all(grant, database, _parse_sample_count(sample_count))

    positions = reservoir.reservoir(settings.reservoir_sizes.scalars)
    if sample_count is not None:
        positions = _parse_sample_count(sample_count)
    with database.snapshot(grant) as db:
        series = reservoir.get_scalar_series(db, grant, run, tag)
        ((_series, sample),) = reservoir.read_scalars(db, grant, [series], positions)

    if format == "csv":
        return Response(_csv(sample), media_type="text/csv")
    return json_encoding.json_response(_rows(sample))


@router.get("/data/histograms", openapi_extra=WANTS_RUN_AND_TAG, responses=OBJECT_MISSING)
def read_histograms(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTag,
) -> Response:
    """Return `[[wall_time, step, [min, max, num, sum, sum_squares, [bucket_limit], [bucket]]]]`.

    Histograms that TensorFlow 1 writers logged are returned unchanged. For histograms logged as
    tensors, `sum` and `sum_squares` are estimates, as if values were distributed evenly within each
    bucket. Points are in the order of `data/scalars`.
    """
    return _read_histograms(
        grant, database, objects, run_and_tag, settings.reservoir_sizes.histograms, _histogram_value
    )


@router.get("/data/compressedHistograms", openapi_extra=WANTS_RUN_AND_TAG, responses=OBJECT_MISSING)
def read_compressed_histograms(
    grant: MayRead,
    database: UsesDatabase,
    objects: UsesObjects,
    settings: UsesSettings,
    run_and_tag: RunAndTag,
) -> Response:
    """Return `[[wall_time, step, [[basis_points, value]]]]`: quantiles of each histogram.

    They are at 0, 668, 1587, 3085, 5000, 6915, 8413, 9332 and 10000 basis points: minimum, maximum,
    median, and 0.5, 1 and 1.5 standard deviations of a normal distribution to each side. Points are
    in the order of `data/scalars`.
    """
    size = settings.reservoir_sizes.compressedHistograms
    return _read_histograms(grant, database, objects, run_and_tag, size, _compressed_value)


def _no_tags() -> Json:
    lists: Json = {name: [] for names in _TAG_TYPES_BY_PLUGIN.values() for name in names}
    return {"scalars": [], **lists, "graph": False}


def _tag_types_of(series: Series) -> Sequence[str]:
    """Return the keys of `data/runs` under which a series is listed."""
    if series.data_class is DataClass.SCALAR:
        return ("scalars",)
    return _TAG_TYPES_BY_PLUGIN.get(series.plugin, ())


def _parse_sample_count(sample_count: str | None) -> reservoir.PositionSampler:
    return reservoir.equally_spaced(
        _SAMPLE_COUNT
        if sample_count is None
        else parse_integer("sample_count", sample_count, _SAMPLE_COUNT_MIN)
    )


def _sample_all(
    grant: ReadGrant, database: UsesDatabase, positions: reservoir.PositionSampler
) -> Response:
    index: dict[str, Json] = {}
    with database.snapshot(grant) as db:
        listed = catalog.list_series(db, grant, Selection(data_class=DataClass.SCALAR))
        for series, sample in reservoir.read_scalars(db, grant, listed, positions):
            index.setdefault(series.run, {})[series.tag] = _rows(sample)
    return json_encoding.json_response(index)


def _rows(sample: ScalarSample) -> list[tuple[float, int, Any]]:
    values = json_encoding.encode_plain_numbers(sample.values.tolist())
    return list(zip(sample.wall_times.tolist(), sample.steps.tolist(), values, strict=True))


def _csv(sample: ScalarSample) -> str:
    rows = (f"{wall_time!r},{step},{value}" for wall_time, step, value in _rows(sample))
    return "\r\n".join(("Wall time,step,value", *rows, ""))


def _read_histograms(
    grant: ReadGrant,
    database: UsesDatabase,
    objects: UsesObjects,
    run_and_tag: tuple[str, str],
    size: int,
    encode: Callable[[histograms.Histogram], list[Any]],
) -> Response:
    run, tag = run_and_tag
    with database.snapshot(grant) as db:
        series = reservoir.get_series(db, grant, run, tag, ["histograms"], DataClass.TENSOR)
        sample = reservoir.read_tensors(db, grant, series, reservoir.reservoir(size))

    # Outside the transaction: reading objects from S3 must not hold a database connection.
    sample = tensor_objects.load_sample(objects, sample)
    points = zip(sample.wall_times.tolist(), sample.steps.tolist(), sample.tensors, strict=True)
    return json_encoding.json_response(
        [[wall, step, encode(histograms.from_tensor(value))] for wall, step, value in points]
    )


def _histogram_value(histogram: histograms.Histogram) -> list[Any]:
    single = (
        histogram.minimum,
        histogram.maximum,
        histogram.count,
        histogram.total,
        histogram.sum_of_squares,
    )
    return [
        *json_encoding.encode_plain_numbers(single),
        json_encoding.encode_numbers(histogram.limits),
        json_encoding.encode_numbers(histogram.counts),
    ]


def _compressed_value(histogram: histograms.Histogram) -> list[Any]:
    points, values = zip(*histograms.compress(histogram), strict=True)
    return list(zip(points, json_encoding.encode_plain_numbers(values), strict=True))
