"""Descriptions of the HParams API's bodies for the OpenAPI document.

Their schema is `tensorboard/plugins/hparams/api.proto`; this is its proto3 JSON.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from tbservice import limits
from tbservice.hparams.requests import AggregationType, SortOrder
from tbwire.hparams import DatasetType, HparamType, Status

_Schema = dict[str, Any]


def _object(description: str, properties: _Schema, *, required: tuple[str, ...] = ()) -> _Schema:
    schema: _Schema = {
        "type": "object",
        "description": description,
        "properties": properties,
        "additionalProperties": False,
    }
    return schema | ({"required": list(required)} if required else {})


def _array(items: _Schema, description: str, **more: Any) -> _Schema:
    return {"type": "array", "items": items, "description": description, **more}


def _text(description: str) -> _Schema:
    return {"type": "string", "description": description}


def _flag(description: str) -> _Schema:
    return {"type": "boolean", "description": description}


def _count(description: str) -> _Schema:
    return {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": description}


def _member(members: type[enum.IntEnum], description: str) -> _Schema:
    names = [member.name for member in members]
    return {"type": "string", "enum": names, "description": description}


def _number(description: str) -> _Schema:
    not_finite = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}
    return {"anyOf": [{"type": "number"}, not_finite], "description": description}


_VALUE: Final[_Schema] = {
    "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}],
    "description": "A value; NaN and infinities are strings",
}
_VALUES: Final = _array(_VALUE, "Values of any type")

_METRIC: Final = _object(
    "A metric",
    {
        "group": _text("Path of its run below the session; empty for the session's own run"),
        "tag": _text("Tag of the scalar series"),
    },
)
_INTERVAL: Final = _object(
    "A closed interval",
    {"minValue": _number("Least value"), "maxValue": _number("Greatest value")},
)
_EXPERIMENT_NAME: Final = _text("The experiment's id, as in the path")
_INCLUDE_METRICS: Final = _flag("Whether to return metrics; true by default")

_COLUMN: Final = _object(
    "A column, `metric` or `hparam`, and how to filter and sort by it; one filter at most",
    {
        "metric": _METRIC,
        "hparam": _text("Name of a hyperparameter"),
        "order": _member(SortOrder, "Order; columns that come first are more significant"),
        "missingValuesFirst": _flag("Whether missing values come first, else last"),
        "filterRegexp": _text("RE2 pattern with a match anywhere; for columns of strings"),
        "filterInterval": _INTERVAL,
        "filterDiscrete": _VALUES,
        "excludeMissingValues": _flag("Whether to exclude groups without a value"),
        "includeInResult": _flag("Whether to return the hyperparameter; if any column says so"),
    },
)

REQUESTS: Final[dict[str, _Schema]] = {
    "GetExperimentRequest": _object(
        "A GetExperimentRequest",
        {
            "experimentName": _EXPERIMENT_NAME,
            "includeMetrics": _INCLUDE_METRICS,
            "hparamsLimit": _count("Maximum hyperparameters; 0, the default, for all"),
        },
        required=("experimentName",),
    ),
    "ListSessionGroupsRequest": _object(
        "A ListSessionGroupsRequest",
        {
            "experimentName": _EXPERIMENT_NAME,
            "allowedStatuses": _array(
                _member(Status, "A status"), "Statuses of the sessions to use; none by default"
            ),
            "colParams": _array(
                _COLUMN, "Filters and orders", maxItems=limits.HPARAMS_COLUMN_ITEMS_MAX
            ),
            "aggregationType": _member(
                AggregationType, "How a group's metrics follow from its sessions'; means by default"
            ),
            "aggregationMetric": _METRIC,
            "startIndex": _count("Index of the first group to return"),
            "sliceSize": _count("Maximum groups to return; 0 by default"),
            "includeMetrics": _INCLUDE_METRICS,
        },
    ),
    "ListMetricEvalsRequest": _object(
        "A ListMetricEvalsRequest",
        {
            "experimentName": _EXPERIMENT_NAME,
            "sessionName": _text("Name of the session"),
            "metricName": _METRIC,
        },
        required=("metricName",),
    ),
}
"""Bodies of requests by message. Names in snake_case and enum numbers are accepted, too."""

EXPERIMENT: Final = _object(
    "An Experiment",
    {
        "name": _text("The experiment's id"),
        "description": _text("Description that was logged; Markdown"),
        "user": _text("Id of the user or group that was logged"),
        "timeCreatedSecs": _number("Time that was logged, in seconds since the epoch, or 0"),
        "hparamInfos": _array(
            _object(
                "A hyperparameter",
                {
                    "name": _text("Its name"),
                    "displayName": _text("Name to show, if not empty"),
                    "description": _text("Description; Markdown"),
                    "type": _member(HparamType, "Type of its values"),
                    "differs": _flag("Whether sessions have different values"),
                    "domainDiscrete": _VALUES,
                    "domainInterval": _INTERVAL,
                },
            ),
            "Hyperparameters",
        ),
        "metricInfos": _array(
            _object(
                "A metric",
                {
                    "name": _METRIC,
                    "displayName": _text("Name to show, if not empty"),
                    "description": _text("Description; Markdown"),
                    "datasetType": _member(DatasetType, "Data that it is computed on"),
                },
            ),
            "Metrics",
        ),
    },
)

_METRIC_VALUES: Final = _array(
    _object(
        "The last value of a metric",
        {
            "name": _METRIC,
            "value": _number("The value"),
            "trainingStep": {
                "type": "integer",
                "description": "Its step; steps beyond int32 are the nearest int32",
            },
            "wallTimeSecs": _number("Its wall time, in seconds since the epoch"),
        },
    ),
    "Last values of metrics",
)

_SESSION: Final = _object(
    "A session",
    {
        "name": _text("The session's run"),
        "startTimeSecs": _number("Start, in seconds since the epoch, or 0"),
        "endTimeSecs": _number("End, in seconds since the epoch, or 0"),
        "status": _member(Status, "Status"),
        "modelUri": _text("URI of the model that was logged"),
        "metricValues": _METRIC_VALUES,
        "monitorUrl": _text("Link that was logged"),
    },
)

SESSION_GROUPS: Final = _object(
    "A ListSessionGroupsResponse",
    {
        "sessionGroups": _array(
            _object(
                "A session group",
                {
                    "name": _text("Name of the group, or of its only session"),
                    "hparams": {
                        "type": "object",
                        "description": "Values that the sessions agree on, by hyperparameter",
                        "additionalProperties": _VALUE,
                    },
                    "metricValues": _METRIC_VALUES,
                    "sessions": _array(_SESSION, "Sessions by name"),
                    "monitorUrl": _text("The first link of the sessions"),
                },
            ),
            "The requested slice",
        ),
        "totalSize": _count("Number of groups that pass the filters"),
    },
)

METRIC_EVALS: Final = _array(
    _array(_number("A number"), "Wall time in seconds, step, value", minItems=3, maxItems=3),
    "Points of the metric by step",
)
