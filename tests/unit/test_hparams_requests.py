"""Requests of the HParams API: what JSON is accepted, and what is said of the rest."""

from __future__ import annotations

import json

import pytest

from tbservice import limits
from tbservice.errors import Invalid, MalformedRequest, TooLarge
from tbservice.hparams.requests import (
    HPARAMS_PATTERN_ITEMS_MAX,
    AggregationType,
    DiscreteFilter,
    MetricId,
    SortOrder,
    parse_experiment_request,
    parse_metric_evals_request,
    parse_session_groups_request,
)
from tbwire.hparams import Interval, Status


def groups(**fields):
    return parse_session_groups_request(json.dumps(fields).encode())


def test_request_names_are_camel_or_snake_case():
    camel = groups(
        startIndex=1, sliceSize=2, colParams=[{"hparam": "x", "missingValuesFirst": True}]
    )
    snake = groups(
        start_index=1, slice_size=2, col_params=[{"hparam": "x", "missing_values_first": True}]
    )
    assert camel == snake
    assert (camel.start_index, camel.slice_size, camel.columns[0].is_missing_first) == (1, 2, True)


def test_request_enums_are_names_or_numbers():
    request = groups(
        allowedStatuses=["STATUS_RUNNING", 1],
        colParams=[{"hparam": "x", "order": 2}, {"hparam": "y", "order": "ORDER_ASC"}],
        aggregationType=4,
        aggregationMetric={"tag": "loss"},
    )
    assert request.allowed_statuses == {Status.STATUS_RUNNING, Status.STATUS_SUCCESS}
    assert [column.order for column in request.columns] == [
        SortOrder.ORDER_DESC,
        SortOrder.ORDER_ASC,
    ]
    assert request.aggregation is AggregationType.AGGREGATION_MAX


def test_request_defaults_are_those_of_proto3():
    request = groups()
    assert request.allowed_statuses == frozenset()
    assert (request.start_index, request.slice_size, request.experiment_name) == (0, 0, "")
    assert request.aggregation is AggregationType.AGGREGATION_AVG
    assert request.includes_metrics is True
    assert request.hparams is None
    (column,) = groups(colParams=[{"metric": {"tag": "loss"}}]).columns
    assert column.column == MetricId("", "loss")
    assert not column.is_filter
    assert column.order is SortOrder.ORDER_UNSPECIFIED


def test_request_filters_have_their_values():
    request = groups(
        colParams=[
            {"hparam": "a", "filterRegexp": "x.z"},
            {"hparam": "b", "filterInterval": {"minValue": 1, "maxValue": "Infinity"}},
            {"hparam": "c", "filterDiscrete": [1, "a", True, None]},
            {"metric": {"tag": "m"}, "excludeMissingValues": True},
        ]
    )
    pattern, interval, discrete, present = request.columns
    assert pattern.filter.pattern.search("wxyzw")
    assert interval.filter == Interval(1.0, float("inf"))
    assert discrete.filter == DiscreteFilter((1.0, "a", True))
    assert present.filter is None
    assert all(column.is_filter for column in request.columns)


def test_request_included_hparams_are_those_not_excluded():
    request = groups(
        colParams=[
            {"hparam": "a", "includeInResult": True},
            {"hparam": "b", "includeInResult": False},
            {"hparam": "c"},
            {"metric": {"tag": "m"}, "includeInResult": True},
        ]
    )
    assert request.hparams == {"a", "c"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "JSON object"),
        (b"null", "JSON object"),
        (b"[1]", "JSON object"),
        (b'"x"', "JSON object"),
        (b'{"startIndex": 1', "JSON"),
        (b"\xff{}", "UTF-8"),
        (b'{"x": 1}', '"x"'),
        (b'{"colParams": [{"hparam": "a", "foo": 1}]}', "colParams[0]"),
        (b'{"colParams": [{}, {"order": "UP"}]}', "colParams[1].order"),
        (b'{"colParams": [{"hparam": "a", "metric": {}}]}', "colParams[0]"),
        (b'{"colParams": [{"filterRegexp": "a", "filterDiscrete": []}]}', "colParams[0]"),
        (b'{"colParams": 3}', "colParams"),
        (b'{"startIndex": 2147483648}', "startIndex"),
        (b'{"startIndex": 1.5}', "startIndex"),
        (b'{"startIndex": true}', "startIndex"),
        (b'{"startIndex": 1, "startIndex": 2}', "startIndex"),
        (b'{"allowedStatuses": ["STATUS_LATE"]}', "allowedStatuses[0]"),
        (b'{"colParams": [{"filterInterval": {"minValue": NaN}}]}', "filterInterval.minValue"),
        (b'{"colParams": [{"hparam": "\\ud800"}]}', "colParams[0].hparam"),
        (b"{" + b'"colParams":[{"filterDiscrete":' + b"[" * 100_000, "JSON"),
    ],
)
def test_request_that_is_no_message_is_malformed(body, said):
    with pytest.raises(MalformedRequest) as refused:
        parse_session_groups_request(body)
    assert said in refused.value.detail
    assert len(refused.value.detail) < 700


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"startIndex": -1}, "start_index"),
        ({"sliceSize": -1}, "slice_size"),
        ({"allowedStatuses": [0, 9]}, "allowed_statuses[1]"),
        ({"aggregationType": 77}, "aggregation_type"),
        ({"aggregationType": "AGGREGATION_MIN"}, "aggregation_metric"),
        ({"colParams": [{"hparam": "a"}, {}]}, "col_params[1]"),
        ({"colParams": [{"hparam": "a", "order": 9}]}, "col_params[0].order"),
        ({"colParams": [{"hparam": "a", "filterRegexp": "("}]}, "col_params[0].filter_regexp"),
        ({"colParams": [{"hparam": "a", "filterRegexp": "(?=a)"}]}, "col_params[0].filter_regexp"),
        ({"colParams": [{"hparam": "a", "filterRegexp": r"(a)\1"}]}, "col_params[0].filter_regexp"),
        (
            {"colParams": [{"hparam": "a", "filterRegexp": "((a{100}){100}){100}"}]},
            "col_params[0].filter_regexp",
        ),
        (
            {"colParams": [{"hparam": "a", "filterRegexp": "a" * 10_001}]},
            "col_params[0].filter_regexp",
        ),
        (
            {"colParams": [{"metric": {"tag": "m"}, "filterRegexp": "a"}]},
            "col_params[0].filter_regexp",
        ),
    ],
)
def test_request_invalid_field_is_named_by_path(fields, path):
    with pytest.raises(Invalid) as refused:
        groups(**fields)
    assert refused.value.detail.startswith(f"{path}: ")


def test_request_columns_are_limited():
    columns = [{"hparam": "a"}] * (limits.HPARAMS_COLUMN_ITEMS_MAX + 1)
    with pytest.raises(TooLarge, match="hparams_column_items_max"):
        groups(colParams=columns)


def test_request_regular_expressions_are_limited():
    """Compiled, each may have half a MiB, and 10,000 fit into a body."""
    expressions = [
        {"hparam": "a", "filterRegexp": rf"\pL{{50}}{number}"}
        for number in range(HPARAMS_PATTERN_ITEMS_MAX + 1)
    ]
    with pytest.raises(TooLarge, match="hparams_pattern_items_max"):
        groups(colParams=[*expressions, {"hparam": "a"}])
    assert len(groups(colParams=expressions[:3] + [{"hparam": "a"}] * 100).columns) == 103


def test_experiment_request_needs_name():
    with pytest.raises(Invalid, match="experiment_name: is required"):
        parse_experiment_request(b"{}")
    request = parse_experiment_request(
        b'{"experimentName": "x", "includeMetrics": false, "hparamsLimit": 3}'
    )
    assert (request.experiment_name, request.includes_metrics, request.hparams_limit) == (
        "x",
        False,
        3,
    )
    assert (
        parse_experiment_request(b'{"experimentName": "x", "hparamsLimit": 0}').hparams_limit
        is None
    )
    with pytest.raises(Invalid, match="hparams_limit"):
        parse_experiment_request(b'{"experimentName": "x", "hparamsLimit": -1}')


def test_metric_evals_request_needs_metric():
    with pytest.raises(Invalid, match="metric_name: is required"):
        parse_metric_evals_request(b'{"sessionName": "s"}')
    body = b'{"sessionName": "s", "metricName": {"group": "eval", "tag": "loss"}}'
    request = parse_metric_evals_request(body)
    assert (request.session_name, request.metric) == ("s", MetricId("eval", "loss"))
