"""Requests of the HParams API as plain values, parsed from proto3 JSON and checked.

TensorBoard's own messages say which fields, enums and defaults there are, and `json_format` which
JSON encodes them: names in camelCase or snake_case, enums by name or number, unknown fields
refused (https://protobuf.dev/programming-guides/json).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from tensorboard.plugins.hparams import api_pb2

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, TooLarge
from tbservice.patterns import compile_pattern
from tbwire.hparams import HparamValue, Interval, Status, plain_values

HPARAMS_PATTERN_ITEMS_MAX: Final = 100
"""Regular expressions in one request for session groups: compiled, one may have 0.5 MiB."""

_DETAIL_CHARS_MAX: Final = 500
_Message = TypeVar("_Message", bound=Message)
_Enum = TypeVar("_Enum", bound=enum.IntEnum)


class MetricId(NamedTuple):
    """A metric: the run's path below its session (the group), and the tag."""

    group: str
    tag: str


_NO_METRIC: Final = MetricId("", "")


class SortOrder(enum.IntEnum):
    """Enum `SortOrder` of `tensorboard/plugins/hparams/api.proto`."""

    ORDER_UNSPECIFIED = 0
    ORDER_ASC = 1
    ORDER_DESC = 2


class AggregationType(enum.IntEnum):
    """Enum `AggregationType` of `tensorboard/plugins/hparams/api.proto`."""

    AGGREGATION_UNSET = 0
    AGGREGATION_AVG = 1
    AGGREGATION_MEDIAN = 2
    AGGREGATION_MIN = 3
    AGGREGATION_MAX = 4


@dataclass(frozen=True, slots=True)
class RegexpFilter:
    """Strings with a match of this compiled pattern anywhere."""

    pattern: Any


@dataclass(frozen=True, slots=True)
class DiscreteFilter:
    """Filter that passes these values."""

    values: tuple[HparamValue, ...]


Filter = RegexpFilter | DiscreteFilter | Interval | None


@dataclass(frozen=True, slots=True)
class ColumnParams:
    """How to filter and sort by a column, a metric or the hyperparameter of this name.

    `path` is the place in the request, for errors. `is_included` is None if the request does not
    say whether the column is returned.
    """

    path: str
    column: MetricId | str
    order: SortOrder = SortOrder.ORDER_UNSPECIFIED
    is_missing_first: bool = False
    filter: Filter = None
    excludes_missing: bool = False
    is_included: bool | None = None

    @property
    def is_filter(self) -> bool:
        """Whether groups can fail to pass."""
        return self.filter is not None or self.excludes_missing


@dataclass(frozen=True, slots=True)
class ExperimentRequest:
    """A request for the columns.

    Hyperparameters are returned in their order until there are `hparams_limit` of them, or the
    values of all groups are more than `values_max`; None for all.
    """

    experiment_name: str
    includes_metrics: bool = True
    hparams_limit: int | None = None
    values_max: int | None = None


@dataclass(frozen=True, slots=True)
class SessionGroupsRequest:
    """A request for session groups; `experiment_name` is "" if it names none.

    `hparams` are the hyperparameters to return, None for all. With `is_per_session` each session is
    a group of its own. With `is_finite_only`, hyperparameters that are NaN or infinite are missing.
    """

    allowed_statuses: frozenset[Status]
    columns: Sequence[ColumnParams] = ()
    aggregation: AggregationType = AggregationType.AGGREGATION_AVG
    aggregation_metric: MetricId = _NO_METRIC
    start_index: int = 0
    slice_size: int = 0
    includes_metrics: bool = True
    hparams: frozenset[str] | None = None
    experiment_name: str = ""
    is_per_session: bool = False
    is_finite_only: bool = False


@dataclass(frozen=True, slots=True)
class MetricEvalsRequest:
    """A request for the points of a session's metric."""

    session_name: str
    metric: MetricId
    experiment_name: str = ""


def parse_experiment_request(body: bytes, *, is_name_required: bool = True) -> ExperimentRequest:
    """Parse a GetExperimentRequest.

    Raises MalformedRequest if the body is none, Invalid for a field that is out of range.
    """
    message = _parse(body, api_pb2.GetExperimentRequest())
    if is_name_required and not message.experiment_name:
        raise Invalid("experiment_name: is required")
    if message.hparams_limit < 0:
        raise Invalid("hparams_limit: must not be negative")
    return ExperimentRequest(
        message.experiment_name, _includes_metrics(message), message.hparams_limit or None
    )


def parse_session_groups_request(body: bytes) -> SessionGroupsRequest:
    """Parse a ListSessionGroupsRequest. Raises as `parse_experiment_request`, and TooLarge."""
    return read_session_groups_request(_parse(body, api_pb2.ListSessionGroupsRequest()))


def read_session_groups_request(message: Any) -> SessionGroupsRequest:
    """Check a ListSessionGroupsRequest and return it as plain values.

    Raises Invalid for a field that is out of range, TooLarge over `HPARAMS_COLUMN_ITEMS_MAX`
    columns or `HPARAMS_PATTERN_ITEMS_MAX` regular expressions.
    """
    _check_counts(message.col_params)
    for name in ("start_index", "slice_size"):
        if getattr(message, name) < 0:
            raise Invalid(f"{name}: must not be negative")

    columns = [
        _column(f"col_params[{index}]", params) for index, params in enumerate(message.col_params)
    ]
    aggregation = _member(AggregationType, message.aggregation_type, "aggregation_type")
    if aggregation is AggregationType.AGGREGATION_UNSET:
        aggregation = AggregationType.AGGREGATION_AVG
    metric = _metric(message.aggregation_metric)
    if aggregation is not AggregationType.AGGREGATION_AVG and not any(metric):
        raise Invalid(f"aggregation_metric: is required with {aggregation.name}")
    return SessionGroupsRequest(
        frozenset(
            _member(Status, number, f"allowed_statuses[{index}]")
            for index, number in enumerate(message.allowed_statuses)
        ),
        columns,
        aggregation,
        metric,
        message.start_index,
        message.slice_size,
        _includes_metrics(message),
        _included_hparams(columns),
        message.experiment_name,
    )


def _check_counts(columns: Sequence[Any]) -> None:
    if len(columns) > limits.HPARAMS_COLUMN_ITEMS_MAX:
        limit = f"the limit of {limits.HPARAMS_COLUMN_ITEMS_MAX} (hparams_column_items_max)"
        raise TooLarge(f"col_params has {len(columns)} columns, over {limit}")
    patterns = sum(params.HasField("filter_regexp") for params in columns)
    if patterns > HPARAMS_PATTERN_ITEMS_MAX:
        limit = f"the limit of {HPARAMS_PATTERN_ITEMS_MAX} (hparams_pattern_items_max)"
        raise TooLarge(f"col_params has {patterns} regular expressions, over {limit}")


def parse_metric_evals_request(body: bytes) -> MetricEvalsRequest:
    """Parse a ListMetricEvalsRequest. Raises as `parse_experiment_request`."""
    message = _parse(body, api_pb2.ListMetricEvalsRequest())
    if not message.HasField("metric_name"):
        raise Invalid("metric_name: is required")
    return MetricEvalsRequest(
        message.session_name, _metric(message.metric_name), message.experiment_name
    )


def _parse(body: bytes, message: _Message) -> _Message:
    name = message.DESCRIPTOR.name
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest("the body is not UTF-8") from error
    if not text.lstrip().startswith("{"):  # `json_format` has no clear error for these
        raise MalformedRequest(f"the body must be a JSON object, a {name}")
    try:
        return json_format.Parse(text, message)
    except json_format.ParseError as error:
        detail = str(error).partition("\n")[0][:_DETAIL_CHARS_MAX]
        raise MalformedRequest(f"the body is not a {name}: {detail}") from error


def _includes_metrics(message: Any) -> bool:
    return not message.HasField("include_metrics") or message.include_metrics


def _column(path: str, params: Any) -> ColumnParams:
    kind = params.WhichOneof("name")
    if kind is None:
        raise Invalid(f"{path}: names no column; set 'metric' or 'hparam'")
    return ColumnParams(
        path,
        params.hparam if kind == "hparam" else _metric(params.metric),
        _member(SortOrder, params.order, f"{path}.order"),
        params.missing_values_first,
        _filter(path, params, is_metric=kind == "metric"),
        params.exclude_missing_values,
        params.include_in_result if params.HasField("include_in_result") else None,
    )


def _filter(path: str, params: Any, *, is_metric: bool) -> Filter:
    kind = params.WhichOneof("filter")
    if kind == "filter_interval":
        return Interval(params.filter_interval.min_value, params.filter_interval.max_value)
    if kind == "filter_discrete":
        return DiscreteFilter(plain_values(params.filter_discrete.values))
    if kind is None:
        return None
    if is_metric:
        raise Invalid(f"{path}.filter_regexp: is for hyperparameters that are strings, not metrics")
    try:
        return RegexpFilter(compile_pattern(params.filter_regexp))
    except ValueError as error:
        raise Invalid(f"{path}.filter_regexp: {str(error)[:_DETAIL_CHARS_MAX]}") from error


def _included_hparams(columns: Sequence[ColumnParams]) -> frozenset[str] | None:
    """Return the hyperparameters to return: None for all, if no column says `include_in_result`.

    A column that does not say it is included: the rule of `_get_hparams_to_include` of
    `tensorboard/plugins/hparams/list_session_groups.py`.
    """
    if all(params.is_included is None for params in columns):
        return None
    return frozenset(
        params.column
        for params in columns
        if params.is_included is not False and not isinstance(params.column, MetricId)
    )


def _metric(name: Any) -> MetricId:
    return MetricId(name.group, name.tag)


def _member(numbers: type[_Enum], number: int, path: str) -> _Enum:
    """Return an enum's member; proto3 JSON allows every number."""
    try:
        return numbers(number)
    except ValueError as error:
        known = ", ".join(member.name for member in numbers)
        raise Invalid(f"{path}: {number} is not one of {known}") from error
