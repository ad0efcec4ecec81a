"""Sessions of the HParams plugin: their hyperparameters, and the last values of their metrics.

The messages are those of `tensorboard/plugins/hparams/plugin_data.proto`.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.struct_pb2 import Value

from tbupload.http.response_schema import mapping, plain, record, string
from tbwire.hparams_pb2 import HParamsPluginData, SessionStartInfo

_STATUSES: Final = {1: "success", 2: "failure", 3: "running"}
"""Enum `Status` of `tensorboard/plugins/hparams/api.proto`; 0 is unknown."""

SESSIONS: Final = mapping(mapping(record({"summary_metadata": record({"content": string})})))
SCALARS: Final = mapping(mapping(record({"last_value": plain})))

_SeriesListing = Mapping[str, Mapping[str, Any]]
"""{run: {tag: series}}, as the server lists them."""


@dataclass(slots=True)
class Session:
    """A run with hyperparameters; times in seconds since the epoch, None if unknown."""

    run: str
    group: str = ""
    status: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    hparams: dict[str, Any] = field(default_factory=dict)


def read_sessions(listed: _SeriesListing) -> list[Session]:
    """Return the sessions of the HParams plugin's series, in the order of their runs."""
    sessions: dict[str, Session] = {}
    ends: dict[str, HParamsPluginData] = {}
    for run, tags in listed.items():
        for series in tags.values():
            content = base64.b64decode(series["summary_metadata"]["content"])
            data = HParamsPluginData.FromString(content)
            if data.HasField("session_start_info"):
                sessions[run] = _session(run, data.session_start_info)
            elif data.HasField("session_end_info"):
                ends[run] = data

    for run, data in ends.items():
        if run in sessions:
            sessions[run].status = _STATUSES.get(data.session_end_info.status)
            sessions[run].end_time = data.session_end_info.end_time_secs or None
    return list(sessions.values())


def _session(run: str, info: SessionStartInfo) -> Session:
    hparams = {entry.key: _plain(entry.value) for entry in info.hparams}
    return Session(run, info.group_name, None, info.start_time_secs or None, None, hparams)


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    return getattr(value, kind) if kind in {"number_value", "string_value", "bool_value"} else None


def metrics_by_session(
    sessions: Sequence[Session], scalars: _SeriesListing
) -> dict[str, dict[str, float]]:
    """Return the last value of each session's scalars, by run and metric name.

    A scalar of the session's own run is named by its tag, one of a run below it GROUP/TAG, where
    GROUP is the relative path: the rule of `tensorboard/plugins/hparams/metrics.py`.
    """
    runs = {session.run for session in sessions}
    metrics: dict[str, dict[str, float]] = {run: {} for run in runs}

    for run, tags in scalars.items():
        owner = _find_session(run, runs)
        if owner is None:
            continue
        group = posixpath.relpath(run, owner or ".")
        for tag, series in tags.items():
            name = tag if group == "." else f"{group}/{tag}"
            metrics[owner][name] = _last_value(series["last_value"])

    return metrics


def _last_value(value: Any) -> float:
    """Return a number from JSON, where "NaN" and infinities are strings. Raise ValueError."""
    if not isinstance(value, float | int | str):
        raise ValueError("last_value is not a number")  # noqa: TRY004 - a malformed response
    return float(value)


def _find_session(run: str, sessions: set[str]) -> str | None:
    """Return the session that a run belongs to: itself, or its nearest ancestor directory."""
    path = run
    while path not in sessions:
        parent = posixpath.dirname(path) or "."
        if path in {"", "."} or parent == path:  # "/" and "//" are their own parents
            return None
        path = parent
    return path


def as_columns(
    sessions: Sequence[Session], metrics: Mapping[str, Mapping[str, float]]
) -> dict[str, list[Any]]:
    """Return columns with one row per session; a value that a session lacks is None."""
    columns: dict[str, list[Any]] = {
        "run": [session.run for session in sessions],
        "group": [session.group for session in sessions],
        "status": [session.status for session in sessions],
        "start_time": [session.start_time for session in sessions],
        "end_time": [session.end_time for session in sessions],
    }
    for name in dict.fromkeys(name for session in sessions for name in session.hparams):
        columns[f"hparams.{name}"] = _unify_types(
            [session.hparams.get(name) for session in sessions]
        )
    for name in dict.fromkeys(name for session in sessions for name in metrics[session.run]):
        columns[f"metrics.{name}"] = [metrics[session.run].get(name) for session in sessions]
    return columns


def _unify_types(values: list[Any]) -> list[Any]:
    """Return values of one type, as a column requires: mixed types become strings."""
    kinds = {type(value) for value in values if value is not None}
    return (
        values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]
    )
