"""`scalars/scalars` and `scalars/scalars_multirun`: the points of one tag, of one run or of several."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final

from starlette.responses import Response
from tensorboard.plugins.scalar import metadata
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.wrappers import Request

from tbservice.errors import MalformedRequest, NotFound
from tbservice.reading.source import Source
from tbservice.tensorboard.native import json_answers, number_columns
from tbservice.types import ScalarSample, Selection

SAMPLE_POINTS: Final = 1_000
"""Points of a series in one chart, as TensorBoard has it."""

_ROW: Final = b"[%b,%b,%b]"


def read_runs(source: Source, request: Request) -> Response:
    """`scalars_multirun`: {run: [[wall time, step, value]]} of those of the runs that have the tag."""
    if request.method != "POST":
        raise MethodNotAllowed(["POST"])
    tags = request.form.getlist("tag")
    if len(tags) != 1:
        raise MalformedRequest("tag must be specified exactly once")
    samples = read_samples(source, tags[0], frozenset(request.form.getlist("runs")))
    return json_answers.gzip_response(
        request, json_answers.object_chunks({run: _rows(sample) for run, sample in samples.items()})
    )


def read_run(source: Source, request: Request) -> Response:
    """`scalars`: [[wall time, step, value]], or the same as CSV; NotFound when the run has no such tag."""
    tag, run = request.args.get("tag"), request.args.get("run")
    if tag is None or run is None:
        raise MalformedRequest("both run and tag must be specified")
    sample = read_samples(source, tag, frozenset([run])).get(run)
    if sample is None:
        raise NotFound("the run has no scalars of this tag")
    if request.args.get("format") == "csv":
        return json_answers.gzip_response(request, [_csv(sample)], "text/csv; charset=utf-8")
    return json_answers.gzip_response(request, _rows(sample))


def read_samples(source: Source, tag: str, runs: frozenset[str] | None) -> dict[str, ScalarSample]:
    """A sample of each run's series of the tag, in the order of the runs; None selects all runs."""
    selection = Selection(plugin=metadata.PLUGIN_NAME, runs=runs, tags=frozenset([tag]))
    found = source.read_scalars(selection, SAMPLE_POINTS)
    return {run: by_tag[tag] for run, by_tag in found.items()}


def _rows(sample: ScalarSample) -> Iterator[bytes]:
    yield number_columns.format_rows(_ROW, sample.wall_times, sample.steps, sample.values)


def _csv(sample: ScalarSample) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["Wall time", "Step", "Value"])
    writer.writerows(
        zip(sample.wall_times.tolist(), sample.steps.tolist(), sample.values.tolist(), strict=True)
    )
    return text.getvalue().encode()
