"""`timeseries/timeSeries`: the points behind the cards of the Time Series dashboard."""

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

from tbservice import limits
from tbservice.errors import MalformedRequest, TooLarge
from tbservice.reading.source import Source
from tbservice.tensorboard.native import json_answers, number_columns, scalars
from tbservice.tensorboard.native.confinement import require_process
from tbservice.tensorboard.provider import as_array
from tbservice.types import BlobSequenceSample, Json, ScalarSample, Selection, TensorSample

_SCALARS: Final = scalar_metadata.PLUGIN_NAME
_HISTOGRAMS: Final = histogram_metadata.PLUGIN_NAME
_IMAGES: Final = image_metadata.PLUGIN_NAME

_HISTOGRAM_POINTS: Final = 51
_IMAGE_POINTS: Final = 10
_BLOBS_BEFORE_IMAGES: Final = 2
"""An image summary's blobs are its width, its height, then one image a sample."""

_POINT: Final = b'{"wallTime":%b,"step":%b,"value":%b}'


@dataclass(frozen=True, slots=True)
class _CardSeries:
    """The series of one card, as the page asks for it; `run` is None for all runs."""

    plugin: str
    tag: str
    run: str | None
    sample: int


def read_cards(source: Source, request: Request) -> Response:
    """The series of each of the requests, in their order; one that cannot be is answered with its error."""
    cards = _parse_requests(request)
    if any(card.get("plugin") == _HISTOGRAMS for card in cards):
        require_process(
            request
        )  # their size is the uploader's choice, and each number becomes an object
    return json_answers.gzip_response(
        request, _list_chunks([_encode_card(source, asked) for asked in cards])
    )


def _parse_requests(request: Request) -> list[Json]:
    text = (request.form if request.method == "POST" else request.args).get("requests")
    if not text:
        raise MalformedRequest("the field 'requests' is missing")
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedRequest("the field 'requests' is no JSON") from error
    if not isinstance(asked, list) or not all(isinstance(one, dict) for one in asked):
        raise MalformedRequest("the field 'requests' is a JSON list of objects")
    if len(asked) > limits.TIME_SERIES_CARDS_ITEMS_MAX:
        raise TooLarge(
            f"one request may ask for at most {limits.TIME_SERIES_CARDS_ITEMS_MAX} cards"
        )
    return asked


def _encode_card(source: Source, asked: Json) -> Iterator[bytes]:
    """One request's answer; its points are read when they are wanted, so that one card's at a time are held."""
    echo = {"plugin": asked.get("plugin"), "tag": asked.get("tag")}
    if isinstance(asked.get("run"), str):
        echo["run"] = asked["run"]
    if isinstance(asked.get("sample"), int):
        echo["sample"] = asked["sample"]
    problem = _find_problem(asked)
    if problem is not None:
        yield json_answers.dumps_sanitized({**echo, "error": problem})
        return
    yield json_answers.dumps_sanitized(echo)[:-1] + b',"runToSeries":'
    yield from json_answers.object_chunks(_series(source, _parse_request(asked)))
    yield b"}"


def _find_problem(asked: Json) -> str | None:
    """What the stock handler says of a request that cannot be, in its words: the page shows them."""
    plugin = asked.get("plugin")
    if not isinstance(asked.get("tag"), str):
        return "Missing tag"
    if plugin not in (_SCALARS, _HISTOGRAMS, _IMAGES):
        return "Invalid plugin"
    if plugin != _SCALARS and not isinstance(asked.get("run"), str):
        return "Missing run"
    if plugin == _IMAGES and not isinstance(asked.get("sample"), int):
        return "Missing sample"
    return None


def _parse_request(asked: Json) -> _CardSeries:
    run = asked.get("run") or None
    if run is not None and not isinstance(run, str):
        raise MalformedRequest("a run is named by a text")
    sample = asked.get("sample") if asked["plugin"] == _IMAGES else 0
    return _CardSeries(asked["plugin"], asked["tag"], run, int(sample or 0))


def _series(source: Source, wanted: _CardSeries) -> dict[str, Iterator[bytes]]:
    runs = None if wanted.run is None else frozenset([wanted.run])
    if wanted.plugin == _SCALARS:
        points = scalars.read_samples(source, wanted.tag, runs)
        return {run: _scalar_points(sample) for run, sample in points.items()}
    selection = Selection(plugin=wanted.plugin, runs=runs, tags=frozenset([wanted.tag]))
    if wanted.plugin == _HISTOGRAMS:
        histograms = source.read_tensors(selection, _HISTOGRAM_POINTS)
        return {run: _histogram_points(by_tag[wanted.tag]) for run, by_tag in histograms.items()}
    images = source.read_blob_sequences(selection, _IMAGE_POINTS)
    shown = {
        run: _image_points(by_tag[wanted.tag], wanted.sample) for run, by_tag in images.items()
    }
    return {
        run: iter([json_answers.dumps_sanitized(points)]) for run, points in shown.items() if points
    }


def _scalar_points(sample: ScalarSample) -> Iterator[bytes]:
    yield number_columns.format_rows(_POINT, sample.wall_times, sample.steps, sample.values)


def _histogram_points(sample: TensorSample) -> Iterator[bytes]:
    """Each step's bins; MalformedRequest when a tensor is none of [bins, 3]."""
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.tensors, strict=True)
    listed = [
        {
            "wallTime": wall_time,
            "step": step,
            "bins": _bins(as_array(value.dtype, value.shape, value.data)),
        }
        for step, wall_time, value in points
    ]
    return iter([json_answers.dumps_sanitized(listed)])


def _bins(histogram: npt.NDArray[Any]) -> list[dict[str, Any]]:
    if histogram.ndim != 2 or histogram.shape[1] < 3 or histogram.dtype.kind not in "fiu":  # noqa: PLR2004 - it is of shape [bins, 3]
        raise MalformedRequest("a histogram of this series has no bins")
    return [{"min": row[0], "max": row[1], "count": row[2]} for row in histogram.tolist()]


def _image_points(sample: BlobSequenceSample, number: int) -> list[Json]:
    """The points that have an image of this number; a negative one counts from the end, as in a Python list."""
    index = _BLOBS_BEFORE_IMAGES + number
    points = zip(sample.steps.tolist(), sample.wall_times.tolist(), sample.sequences, strict=True)
    try:
        return [
            {"step": step, "wallTime": wall_time, "imageId": keys[index]}
            for step, wall_time, keys in points
            if len(keys) > index
        ]
    except IndexError as error:
        raise MalformedRequest("there is no image of this number") from error


def _list_chunks(items: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    yield b"["
    for number, pieces in enumerate(items):
        yield b"," if number else b""
        yield from pieces
    yield b"]"
