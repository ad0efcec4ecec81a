"""Native `scalars/scalars` and `scalars/scalars_multirun`: points of a tag in one or more runs.

The stock ones are in `tensorboard/plugins/scalar/scalars_plugin.py`.
"""

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
from tbservice.reading.comparison import Source
from tbservice.samples import ScalarSample
from tbservice.tensorboard.native import json_answers, number_columns
from tbservice.types.sampling import Selection

SAMPLE_POINTS: Final = 1_000
"""Points per series in a chart: `_DEFAULT_DOWNSAMPLING` of `scalars_plugin.py`."""

_ROW: Final = b"[%b,%b,%b]"


def read_runs(source: Source, request: Request) -> Response:
    """Answer `scalars_multirun` with {run: [[wall time, step, value]]}.

    Runs without the tag are left out.
    """
    if request.method != "POST":
        raise MethodNotAllowed(["POST"])
    tags = request.form.getlist("tag")
    if len(tags) != 1:
        raise MalformedRequest("tag must be specified exactly once")
    samples = read_samples(source, tags[0], frozenset(request.form.getlist("runs")))
    return json_answers.compressed_response(
        request, json_answers.object_chunks({run: _rows(sample) for run, sample in samples.items()})
    )


def read_run(source: Source, request: Request) -> Response:
    """Answer `scalars` with [[wall time, step, value]], or with the same as CSV.

    Raises NotFound if the run has no scalars with this tag.
    """
    tag, run = request.args.get("tag"), request.args.get("run")
    if tag is None or run is None:
        raise MalformedRequest("both run and tag must be specified")
    sample = read_samples(source, tag, frozenset([run])).get(run)
    if sample is None:
        raise NotFound("the run has no scalars with this tag")
    if request.args.get("format") == "csv":
        return json_answers.compressed_response(request, [_csv(sample)], "text/csv; charset=utf-8")
    return json_answers.compressed_response(request, _rows(sample))


def read_samples(source: Source, tag: str, runs: frozenset[str] | None) -> dict[str, ScalarSample]:
    """Return a sample of the tag's series by run, in the order of the runs; None selects all."""
    selection = Selection(plugin=metadata.PLUGIN_NAME, runs=runs, tags=frozenset([tag]))
    samples = source.read_scalars(selection, SAMPLE_POINTS)
    return {series.run: sample for series, sample in samples}


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
