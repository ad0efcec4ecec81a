"""Native `timeseries/timeSeries`: the points of cards of the Time Series dashboard.

The stock one is `_serve_time_series` in `tensorboard/plugins/metrics/metrics_plugin.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy.typing as npt
from starlette.responses import Response
from tensorboard.plugins.histogram import metadata as histogram_metadata
from tensorboard.plugins.image import metadata as image_metadata
from tensorboard.plugins.scalar import metadata as scalar_metadata
from werkzeug.wrappers import Request

from tbservice.errors import MalformedRequest, TooLarge
from tbservice.reading.comparison import Source
from tbservice.samples import BlobSequenceSample, ScalarSample, TensorSample
from tbservice.tensorboard.native import json_answers, number_columns, scalars
from tbservice.tensorboard.native.confinement import require_process
from tbservice.tensorboard.provider import as_array
from tbservice.types.identifiers import Json
from tbservice.types.sampling import Selection

TIME_SERIES_CARDS_ITEMS_MAX: Final = 10
"""Items of one request of the Time Series dashboard (it sends one): the series of a card."""

_SCALARS: Final = scalar_metadata.PLUGIN_NAME
_HISTOGRAMS: Final = histogram_metadata.PLUGIN_NAME
_IMAGES: Final = image_metadata.PLUGIN_NAME

_HISTOGRAM_POINTS: Final = 51
"""Points per histogram series, as in `metrics_plugin.py`."""

_IMAGE_POINTS: Final = 10
"""Points per image series, as in `metrics_plugin.py`."""

_BLOBS_BEFORE_IMAGES: Final = 2
"""The first blobs of an image summary are width and height: `plugins/image/summary_v2.py`."""

_POINT: Final = b'{"wallTime":%b,"step":%b,"value":%b}'


@dataclass(frozen=True, slots=True)
class _CardSeries:
    """The series of one card; `run` is None for all runs, `sample` the index of an image."""

    plugin: str
    tag: str
    run: str | None
    sample: int


def read_cards(source: Source, request: Request) -> Response:
    """Answer with the series of each card in `requests`, in order.

    An invalid card is answered with its own `error`. Raises MalformedRequest if `requests` is
    not a JSON list of objects, TooLarge for too many cards, and NeedsProcess outside a handler
    process for histograms.
    """
    cards = _parse_requests(request)
    if any(card.get("plugin") == _HISTOGRAMS for card in cards):
        # Uploaders choose the size of histograms, and each number becomes a Python object.
        require_process(request)
    return json_answers.compressed_response(
        request, _list_chunks([_encode_card(source, card) for card in cards])
    )


def _parse_requests(request: Request) -> list[Json]:
    text = (request.form if request.method == "POST" else request.args).get("requests")
    if not text:
        raise MalformedRequest("the field 'requests' is missing")
    try:
        cards = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedRequest("the field 'requests' is not valid JSON") from error

    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        raise MalformedRequest("the field 'requests' must be a JSON list of objects")
    if len(cards) > TIME_SERIES_CARDS_ITEMS_MAX:
        raise TooLarge(f"a request may contain at most {TIME_SERIES_CARDS_ITEMS_MAX} cards")
    return cards


def _encode_card(source: Source, card: Json) -> Iterator[bytes]:
    """Yield the JSON of one card in chunks.

    Reads its points only when it is iterated, so that one card's are in memory at a time.
    """
    echo = {"plugin": card.get("plugin"), "tag": card.get("tag")}
    if isinstance(card.get("run"), str):
        echo["run"] = card["run"]
    if isinstance(card.get("sample"), int):
        echo["sample"] = card["sample"]

    problem = _find_problem(card)
    if problem is not None:
        yield json_answers.dumps_sanitized({**echo, "error": problem})
        return

    yield json_answers.dumps_sanitized(echo)[:-1] + b',"runToSeries":'
    yield from json_answers.object_chunks(_read_series(source, _parse_card(card)))
    yield b"}"


def _find_problem(card: Json) -> str | None:
    """Return the stock error text for an invalid card, or None: the page shows this text.

    As `_get_invalid_request_error` of `metrics_plugin.py`.
    """
    plugin = card.get("plugin")
    if not isinstance(card.get("tag"), str):
        return "Missing tag"
    if plugin not in (_SCALARS, _HISTOGRAMS, _IMAGES):
        return "Invalid plugin"
    if plugin != _SCALARS and not isinstance(card.get("run"), str):
        return "Missing run"
    if plugin == _IMAGES and not isinstance(card.get("sample"), int):
        return "Missing sample"
    return None


def _parse_card(card: Json) -> _CardSeries:
    run = card.get("run") or None
    if run is not None and not isinstance(run, str):
        raise MalformedRequest("the field 'run' of a card must be a string")
    sample = card.get("sample") if card["plugin"] == _IMAGES else 0
    return _CardSeries(card["plugin"], card["tag"], run, int(sample or 0))


def _read_series(source: Source, card: _CardSeries) -> dict[str, Iterator[bytes]]:
    """Return {run: JSON list of its points, in chunks}; runs without the tag are left out."""
    runs = None if card.run is None else frozenset([card.run])
    if card.plugin == _SCALARS:
        points = scalars.read_samples(source, card.tag, runs)
        return {run: _scalar_points(sample) for run, sample in points.items()}

    selection = Selection(plugin=card.plugin, runs=runs, tags=frozenset([card.tag]))
    if card.plugin == _HISTOGRAMS:
        histograms = source.read_tensors(selection, _HISTOGRAM_POINTS)
        return {series.run: _histogram_points(sample) for series, sample in histograms}

    samples = source.read_blob_sequences(selection, _IMAGE_POINTS)
    images = {series.run: _image_points(sample, card.sample) for series, sample in samples}
    return {
        run: iter([json_answers.dumps_sanitized(points)])
        for run, points in images.items()
        if points
    }


def _scalar_points(sample: ScalarSample) -> Iterator[bytes]:
    yield number_columns.format_rows(_POINT, sample.wall_times, sample.steps, sample.values)


def _histogram_points(sample: TensorSample) -> Iterator[bytes]:
    """Return a JSON list of the points; raises MalformedRequest if a tensor is not [bins, 3]."""
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.tensors, strict=True)
    histograms = [
        {
            "wallTime": wall_time,
            "step": step,
            "bins": _bins(as_array(value.dtype, value.shape, value.data)),
        }
        for step, wall_time, value in points
    ]
    return iter([json_answers.dumps_sanitized(histograms)])


def _bins(histogram: npt.NDArray[Any]) -> list[dict[str, Any]]:
    # Shape [bins, 3] of (left edge, right edge, count): `plugins/histogram/summary_v2.py`.
    if histogram.ndim != 2 or histogram.shape[1] < 3 or histogram.dtype.kind not in "fiu":  # noqa: PLR2004 - the shape
        raise MalformedRequest(
            "a tensor of this series is not a histogram: its shape must be [bins, 3]"
        )
    return [{"min": row[0], "max": row[1], "count": row[2]} for row in histogram.tolist()]


def _image_points(sample: BlobSequenceSample, image_index: int) -> list[Json]:
    """Return the points that have an image at this index; negative ones count from the end."""
    index = _BLOBS_BEFORE_IMAGES + image_index
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.sequences, strict=True)
    try:
        return [
            {"step": step, "wallTime": wall_time, "imageId": keys[index]}
            for step, wall_time, keys in points
            if len(keys) > index
        ]
    except IndexError as error:
        raise MalformedRequest("a point has no image with this 'sample' index") from error


def _list_chunks(items: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    yield b"["
    for index, chunks in enumerate(items):
        yield b"," if index else b""
        yield from chunks
    yield b"]"
