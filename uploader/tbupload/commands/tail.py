"""`tbupload tail`: prints an experiment's new points."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any, Final

from tbupload.commands.connect import (
    progress_from_options,
    reading_policy,
    series_filter_from_options,
    transport_from_options,
)
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.stored_series import explain_filters_of
from tbupload.console.output import print_json, print_line
from tbupload.console.texts import counted, wall_time_text
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.tail import follow_points
from tbupload.http.client import Client
from tbupload.http.response_schema import Json

_TEXT_CHARS: Final = 100
"""Longest text of a tensor or a blob sequence."""


def tail(options: argparse.Namespace) -> int:
    """Run `tbupload tail`: print new points until Ctrl-C, and return 0 then."""
    progress = progress_from_options(options)
    policy = reading_policy(math.inf, options.retry_timeout)
    transport = transport_from_options(options, policy, progress)
    experiment_id = resolve_experiment_id(options.experiment, Client(transport))
    query = {"start": "beginning" if options.from_start else "now"}
    print_point = print_json if options.json else _print_point
    series_filter = series_filter_from_options(options)

    try:
        client = ExportClient(transport, experiment_id)
        place = f"the {options.kind} of experiment {experiment_id}"
        if sentence := explain_filters_of(client, series_filter, [options.kind], place):
            progress.warn(f"{sentence}; waiting for others")
        for changes in follow_points(transport, experiment_id, options.kind, query):
            for point in _points(changes, series_filter):
                print_point(point)
    except KeyboardInterrupt:
        return 0
    raise AssertionError("follow_points never returns")


def _points(changes: Json, series_filter: SeriesFilter) -> Iterator[dict[str, Any]]:
    """Yield the points of accepted series, by series and then by step."""
    for run, tags in changes["points"].items():
        for tag, new in tags.items():
            if not series_filter.accepts_run(run):
                continue
            if not series_filter.accepts_series(tag, new["plugin"]):
                continue
            for step, wall_time, value in zip(new["steps"], new["wall_times"], new["values"]):
                yield {"run": run, "tag": tag, "step": step, "wall_time": wall_time, "value": value}


def _print_point(point: dict[str, Any]) -> None:
    """Print a point on one line."""
    time, value = wall_time_text(point["wall_time"]), _value_text(point["value"])
    print_line(f"{time}  {point['run']}  {point['tag']}  step {point['step']:,}  {value}")


def _value_text(value: Any) -> str:
    """Return a short text: a number, a tensor's dtype, shape and data, or the keys of blobs."""
    if isinstance(value, list):
        keys = " ".join(_field_text(blob, "key") for blob in value)
        return f"{counted(len(value), 'blob')}: {keys}"[:_TEXT_CHARS]
    if isinstance(value, dict):
        sizes = value.get("shape")
        shape = "x".join(map(str, sizes)) if isinstance(sizes, list) and sizes else "scalar"
        return f"{_field_text(value, 'dtype')} {shape} {_field_text(value, 'data')}"[:_TEXT_CHARS]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _field_text(content: Any, name: str) -> str:
    return str(content.get(name, "?") if isinstance(content, dict) else content)
