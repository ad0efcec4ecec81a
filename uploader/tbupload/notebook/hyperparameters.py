"""Sessions: what the hparams plugin keeps of each run, and the last values of the scalars that belong to it."""

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

SESSIONS: Final = mapping(mapping(record({"summary_metadata": record({"content": string})})))
SCALARS: Final = mapping(mapping(record({"last_value": plain})))

_SeriesListing = Mapping[str, Mapping[str, Any]]
"""Series by run and tag, as the server lists them."""


@dataclass(slots=True)
class Session:
    """A run with hyperparameters; times in seconds since the epoch, None where they are not known."""

    run: str
    group: str = ""
    status: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    hparams: dict[str, Any] = field(default_factory=dict)


def read_sessions(listed: _SeriesListing) -> list[Session]:
    """The sessions among the series of the hparams plugin, in the order of their runs."""
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
    hparams = {one.key: _plain(one.value) for one in info.hparams}
    return Session(run, info.group_name, None, info.start_time_secs or None, None, hparams)


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    return getattr(value, kind) if kind in {"number_value", "string_value", "bool_value"} else None


def metrics_by_session(
    sessions: Sequence[Session], scalars: _SeriesListing
) -> dict[str, dict[str, float]]:
    """The last values of each session's scalars: of its own run by their tags, of runs below it by GROUP/TAG."""
    runs = {session.run for session in sessions}
    found: dict[str, dict[str, float]] = {run: {} for run in runs}
    for run, tags in scalars.items():
        owner = _find_session(run, runs)
        if owner is None:
            continue
        group = posixpath.relpath(run, owner or ".")
        for tag, series in tags.items():
            name = tag if group == "." else f"{group}/{tag}"
            found[owner][name] = _last_value(series["last_value"])
    return found


def _last_value(value: Any) -> float:
    """A number, or the text that stands for one that is not finite. Raises ValueError."""
    if not isinstance(value, float | int | str):
        raise ValueError("no number where one should be")  # noqa: TRY004 - of an answer, as all that is wrong with one
    return float(value)


def _find_session(run: str, sessions: set[str]) -> str | None:
    """The session that a run belongs to: itself, or the nearest directory above it."""
    place = run
    while place not in sessions:
        above = posixpath.dirname(place) or "."
        if place in {"", "."} or above == place:  # "/" and "//" are their own directories
            return None
        place = above
    return place


def as_columns(
    sessions: Sequence[Session], metrics: Mapping[str, Mapping[str, float]]
) -> dict[str, list[Any]]:
    """A row a session."""
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
    """Values of one type, as a column has: those of several types are written out."""
    kinds = {type(value) for value in values if value is not None}
    return (
        values if len(kinds) <= 1 else [None if value is None else str(value) for value in values]
    )
