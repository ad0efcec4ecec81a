"""Responses of the HParams API as proto3 JSON.

The same text as `MessageToJson(…, always_print_fields_with_no_presence=True)` of TensorBoard's
handlers, less spaces: names in camelCase, every field without presence, enums by name. Written
without messages: those of 10,000 sessions take a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tbservice.hparams.requests import MetricId
from tbservice.hparams.schema import Schema
from tbservice.hparams.values import to_json
from tbservice.types.identifiers import Json
from tbwire.hparams import DeclaredHparam, DeclaredMetric, HparamValue, Interval, Status

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)
_GROUPS_PER_CHUNK: Final = 256
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The last value of a metric; the wall time is in seconds since the epoch."""

    metric: MetricId
    value: float
    step: int
    wall_time: float


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is returned; times in seconds since the epoch, 0 if unknown."""

    name: str
    start_time: float
    end_time: float
    status: Status
    model_uri: str
    metric_values: Sequence[MetricValue]
    monitor_url: str


@dataclass(frozen=True, slots=True)
class SessionGroupRow:
    """A session group as it is returned."""

    name: str
    hparams: Mapping[str, HparamValue]
    metric_values: Sequence[MetricValue]
    sessions: Sequence[SessionRow]
    monitor_url: str


def encode_schema(schema: Schema) -> bytes:
    """Return an `Experiment`."""
    return orjson.dumps(
        {
            "name": schema.name,
            "description": schema.description,
            "user": schema.user,
            "timeCreatedSecs": to_json(schema.time_created),
            "hparamInfos": [_hparam_info(column) for column in schema.hparams],
            "metricInfos": [_metric_info(metric) for metric in schema.metrics],
        },
        option=_OPTIONS,
    )


def _hparam_info(column: DeclaredHparam) -> Json:
    info: Json = {
        "name": column.name,
        "displayName": column.display_name,
        "description": column.description,
        "type": column.type.name,
        "differs": column.differs,
    }
    if isinstance(column.domain, Interval):
        interval = column.domain
        info["domainInterval"] = {
            "minValue": to_json(interval.min_value),
            "maxValue": to_json(interval.max_value),
        }
    elif column.domain is not None:
        info["domainDiscrete"] = [to_json(value) for value in column.domain]
    return info


def _metric_info(metric: DeclaredMetric) -> Json:
    return {
        "name": {"group": metric.group, "tag": metric.tag},
        "displayName": metric.display_name,
        "description": metric.description,
        "datasetType": metric.dataset_type.name,
    }


def encode_session_groups(groups: Sequence[SessionGroupRow], total_size: int) -> bytes:
    """Return a `ListSessionGroupsResponse`; `total_size` counts all pages."""
    return b"".join(_encode_chunks(groups, total_size))


def _encode_chunks(groups: Sequence[SessionGroupRow], total_size: int) -> Iterator[bytes]:
    """Yield the response in parts: the dictionaries of all groups would be ten times its size."""
    yield b'{"sessionGroups":['
    for start in range(0, len(groups), _GROUPS_PER_CHUNK):
        chunk = [_group(group) for group in groups[start : start + _GROUPS_PER_CHUNK]]
        encoded = orjson.dumps(chunk, option=_OPTIONS)[1:-1]
        yield encoded if not start else b"," + encoded
    yield b'],"totalSize":%d}' % min(total_size, INT32_MAX)


def _group(group: SessionGroupRow) -> Json:
    return {
        "name": group.name,
        "hparams": {name: to_json(value) for name, value in group.hparams.items()},
        "metricValues": [_metric_value(value) for value in group.metric_values],
        "sessions": [_session(session) for session in group.sessions],
        "monitorUrl": group.monitor_url,
    }


def _session(session: SessionRow) -> Json:
    return {
        "name": session.name,
        "startTimeSecs": to_json(session.start_time),
        "endTimeSecs": to_json(session.end_time),
        "status": session.status.name,
        "modelUri": session.model_uri,
        "metricValues": [_metric_value(value) for value in session.metric_values],
        "monitorUrl": session.monitor_url,
    }


def _metric_value(value: MetricValue) -> Json:
    number = value.value
    return {
        "name": {"group": value.metric.group, "tag": value.metric.tag},
        "value": number if math.isfinite(number) else to_json(number),
        "trainingStep": to_int32(value.step),
        "wallTimeSecs": value.wall_time,
    }


def to_int32(step: int) -> int:
    """Return a step as the nearest int32: the field has no more bits."""
    return max(INT32_MIN, min(step, INT32_MAX))


def encode_metric_evals(points: Sequence[tuple[float, int, float]]) -> bytes:
    """Return points as `[[wall_time, step, value], …]`; steps are complete, as in no message."""
    rows: list[list[Any]] = [[wall_time, step, to_json(value)] for wall_time, step, value in points]
    return orjson.dumps(rows)
