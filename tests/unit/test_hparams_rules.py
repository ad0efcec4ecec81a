"""Rules of HParams on plain values: owners of runs, columns, statuses, groups, their metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.hparams.metric_rows import MetricRows, aggregate, choose_representatives
from tbservice.hparams.owners import (
    HPARAMS_LEVEL_ITEMS_MAX,
    find_owner,
    find_root,
    metric_group,
    metric_run,
)
from tbservice.hparams.record_cache import RecordDecoder
from tbservice.hparams.requests import AggregationType, MetricId
from tbservice.hparams.schema import (
    LoggedSummary,
    complete,
    list_hparams,
    list_metrics,
    merge_summaries,
)
from tbservice.hparams.session_table import (
    HPARAMS_RUNNING_SECONDS_MAX,
    HparamNames,
    SessionTable,
    StoredStart,
    agreed,
    agreed_hparams,
    depends_on_age,
    group_sessions,
    group_values,
    session_values,
)
from tbservice.hparams.values import common_type, list_distinct, to_json, to_text, value_key
from tbservice.reading.version_cache import VersionCache
from tbwire import hparams_pb2
from tbwire.hparams import (
    DeclaredHparam,
    DeclaredMetric,
    ExperimentSummary,
    HparamType,
    Interval,
    SessionEnd,
    Status,
)
from tbwire.tensorboard_pb2 import SummaryMetadata

STRING, BOOL, FLOAT64, UNSET = (
    getattr(HparamType, f"DATA_TYPE_{name}") for name in ("STRING", "BOOL", "FLOAT64", "UNSET")
)
ZERO_TO_ONE = Interval(0.0, 1.0)
NAN = math.nan


def start(group="", **hparams):
    return StoredStart(HparamNames(tuple(hparams)), tuple(hparams.values()), group)


# ---- owners of runs


@pytest.mark.parametrize(
    ("run", "owner", "group"),
    [
        ("a", "a", ""),
        ("a/eval", "a", "eval"),
        ("a/b/eval", "a/b", "eval"),
        ("a/c/eval", "a", "c/eval"),
        ("ab", ".", "ab"),
        (".", ".", ""),
        ("other/run", ".", "other/run"),
    ],
)
def test_owner_is_nearest_session_above(run, owner, group):
    sessions = {".", "a", "a/b"}
    assert find_owner(run, sessions, find_root(sessions)) == owner
    assert metric_group(run, owner) == group
    assert metric_run(owner, group) == run


def test_owner_is_none_outside_all_sessions():
    assert find_owner("b/a", {"a"}, find_root({"a"})) is None
    assert find_owner("ab/eval", {"a"}, None) is None


def test_owner_root_may_be_named_empty():
    assert find_root({"", "a"}) == ""
    assert find_owner("b/eval", {""}, "") == ""
    assert metric_group("b/eval", "") == "b/eval"


def test_owner_search_stops_at_limit_of_levels():
    deep = "a" + "/x" * HPARAMS_LEVEL_ITEMS_MAX
    assert find_owner(deep, {"a"}, None) is None
    assert find_owner(deep[:-2], {"a"}, None) == "a"


# ---- values


def test_values_of_several_types_have_one_order():
    values = ["b", NAN, 2.0, True, "a", -math.inf, False, 1.0, math.inf]
    ordered = sorted(values, key=value_key)
    assert repr(ordered) == repr([False, True, -math.inf, 1.0, 2.0, math.inf, NAN, "a", "b"])


def test_values_of_different_types_differ():
    assert len({value_key(value) for value in (1.0, True, "1.0", NAN, float("nan"))}) == 4


def test_values_as_text_are_proto3_json():
    values = [1.0, 1e-05, True, "x", NAN, math.inf, -math.inf]
    assert [to_text(value) for value in values] == [
        "1.0",
        "1e-05",
        "true",
        "x",
        "NaN",
        "Infinity",
        "-Infinity",
    ]
    assert [to_json(value) for value in values] == [
        1.0,
        1e-05,
        True,
        "x",
        "NaN",
        "Infinity",
        "-Infinity",
    ]


def test_type_of_several_types_is_string():
    assert common_type([1.0, NAN]) is FLOAT64
    assert common_type([True]) is BOOL
    assert common_type([1.0, True]) is STRING
    assert common_type([]) is UNSET


# ---- columns


@pytest.mark.parametrize(
    ("type_", "domain", "seen", "completed"),
    [
        (UNSET, None, [3.0, NAN, 1.0, math.inf], (FLOAT64, Interval(1.0, 3.0))),
        (UNSET, None, [NAN], (FLOAT64, None)),
        (UNSET, None, ["b", "a", "b"], (STRING, ("a", "b"))),
        (UNSET, None, [True], (BOOL, (True,))),
        (UNSET, None, [1.0, "a", True], (STRING, ("1.0", "a", "true"))),
        (UNSET, None, [], (STRING, None)),
        (FLOAT64, Interval(0.0, 9.0), [100.0], (FLOAT64, Interval(0.0, 9.0))),
        (STRING, ("p", "q"), ["r"], (STRING, ("p", "q"))),
        (FLOAT64, None, [2.0, "a"], (FLOAT64, Interval(2.0, 2.0))),
        (BOOL, None, [False, True], (BOOL, (False, True))),
        (FLOAT64, None, [], (FLOAT64, None)),
        *((UNSET, ZERO_TO_ONE, seen, (FLOAT64, ZERO_TO_ONE)) for seen in ([], [0.5], ["x"])),
        (UNSET, (1.0, 2.0), [], (FLOAT64, (1.0, 2.0))),
        (UNSET, (True,), [False], (BOOL, (True,))),
        (UNSET, (1.0, 2.0), ["x"], (STRING, (1.0, 2.0))),
        (UNSET, (), [1.0], (FLOAT64, ())),
        (UNSET, (), [], (STRING, ())),
    ],
)
def test_column_is_completed_by_what_is_seen(type_, domain, seen, completed):
    column = complete(DeclaredHparam("x", type=type_, domain=domain), seen)
    assert (column.type, column.domain) == completed


def test_column_differs_with_two_values():
    assert not complete(DeclaredHparam("x"), []).differs
    assert not complete(DeclaredHparam("x"), [1.0, 1.0]).differs
    assert not complete(DeclaredHparam("x"), [NAN, float("nan")]).differs
    assert complete(DeclaredHparam("x"), [1.0, True]).differs
    assert complete(DeclaredHparam("x", differs=True), []).differs


def test_columns_are_declared_and_seen_differing_first():
    declared = ExperimentSummary(hparams=(DeclaredHparam("z", "Z"), DeclaredHparam("b")))
    columns = list_hparams(declared, {"a": [1.0], "c": [1.0, 2.0], "z": ["x"]})
    assert [column.name for column in columns] == ["c", "a", "b", "z"]
    assert columns[3].display_name == "Z"


def test_metrics_are_declared_then_seen_by_tag():
    declared = ExperimentSummary(metrics=(DeclaredMetric("", "z", "Z"),))
    seen = [MetricId("val", "a"), MetricId("", "z"), MetricId("", "b"), MetricId("", "a")]
    listed = [(metric.group, metric.tag) for metric in list_metrics(declared, seen)]
    assert listed == [("", "z"), ("", "a"), ("val", "a"), ("", "b")]


def test_summaries_newest_description_of_column_wins():
    old = ExperimentSummary(
        "n",
        "old",
        "me",
        1.0,
        (DeclaredHparam("x", "old x", domain=Interval(0, 1)), DeclaredHparam("y")),
        (DeclaredMetric("", "m", "old m"),),
    )
    new = ExperimentSummary(
        "", "new", "", 2.0, (DeclaredHparam("x", "new x"),), (DeclaredMetric("", "k"),)
    )
    merged = merge_summaries([LoggedSummary(2.0, "a", new), LoggedSummary(1.0, "b", old)])
    assert (merged.name, merged.description, merged.user, merged.time_created) == (
        "n",
        "new",
        "me",
        2.0,
    )
    assert merged.hparams == (DeclaredHparam("x", "new x"), DeclaredHparam("y"))
    assert [metric.tag for metric in merged.metrics] == ["m", "k"]


def test_summaries_of_one_time_are_ordered_by_run():
    first, last = (ExperimentSummary(description=text) for text in ("first", "last"))
    logged = [LoggedSummary(1.0, "b", last), LoggedSummary(1.0, "a", first)]
    assert merge_summaries(logged).description == "last"
    assert merge_summaries([]) == ExperimentSummary()


def test_distinct_values_are_so_by_type():
    assert len(list_distinct([1.0, True, 1.0, "1.0", NAN, True, NAN])) == 4
    assert len(list_distinct([NAN, float("nan"), 1.0, float("inf"), 1.0])) == 3
    assert sorted(list_distinct([True, False, True])) == [False, True]
    assert list_distinct([]) == []


# ---- statuses


def table(*ends, newest=(), starts=None):
    names = [f"s{index}" for index in range(len(ends))]
    starts = starts or [start() for _ in ends]
    known = {index: end for index, end in enumerate(ends) if end is not None}
    return SessionTable(names, starts, np.zeros(len(ends)), known, dict(newest), now=10_000.0)


def test_status_is_that_of_end():
    for status in Status:
        assert table(SessionEnd(status), newest={0: 9_999.0}.items()).status(0) is status


def test_status_without_end_is_by_age_of_data():
    limit = HPARAMS_RUNNING_SECONDS_MAX
    ages = {0: 10_000.0 - limit + 1, 1: 10_000.0 - limit, 2: 20_000.0}
    sessions = table(None, None, None, None, newest=ages.items())
    assert [sessions.status(index).name for index in range(4)] == [
        "STATUS_RUNNING",
        "STATUS_UNKNOWN",
        "STATUS_RUNNING",
        "STATUS_UNKNOWN",
    ]


def test_statuses_allowed_select_sessions():
    success, failure = SessionEnd(Status.STATUS_SUCCESS), SessionEnd(Status.STATUS_FAILURE)
    sessions = table(success, failure, None)
    assert sessions.list_allowed(frozenset()) == []
    assert sessions.list_allowed({Status.STATUS_FAILURE, Status.STATUS_UNKNOWN}) == [1, 2]
    assert sessions.list_allowed(frozenset(Status)) == [0, 1, 2]


def test_statuses_depend_on_age_if_one_of_two_is_allowed():
    running, unknown = Status.STATUS_RUNNING, Status.STATUS_UNKNOWN
    assert depends_on_age({running})
    assert depends_on_age({unknown, Status.STATUS_SUCCESS})
    assert not depends_on_age({running, unknown})
    assert not depends_on_age({Status.STATUS_SUCCESS})


# ---- groups


def test_groups_are_by_name_or_session():
    starts = [start("g"), start(), start("g"), start("a")]
    sessions = table(None, None, None, None, starts=starts)
    groups = group_sessions(sessions, [0, 1, 2, 3])
    assert groups.names == ["a", "g", "s1"]
    assert [groups.members(group) for group in range(3)] == [[3], [0, 2], [1]]
    assert groups.group_of.tolist() == [1, 2, 1, 0]
    assert group_sessions(sessions, [2]).group_of.tolist() == [-1, -1, 0, -1]
    assert len(group_sessions(sessions, [])) == 0


def test_session_values_are_of_each_sessions_own_names():
    starts = [start(a=1.0, b=2.0), start(b=3.0, a=4.0), start(b=5.0), start(a=6.0)]
    sessions = table(None, None, None, None, starts=starts)
    assert session_values(sessions, "a") == [1.0, 4.0, None, 6.0]
    groups = group_sessions(sessions, [1, 2, 3])
    assert group_values(groups, session_values(sessions, "a")) == [4.0, None, 6.0]


def test_group_shows_only_what_sessions_agree_on():
    starts = [start(a=1.0, b="x", c=NAN), start(a=1.0, b="y", c=NAN, d=True)]
    shown = agreed_hparams(starts)
    assert list(shown) == ["a", "c", "d"]
    assert shown["d"] is True


def test_group_value_one_and_true_disagree():
    assert agreed([1.0, True]) is None
    assert agreed([None, 1.0, 1.0]) == 1.0
    assert agreed([None]) is None


# ---- metrics of groups


def rows(*points):
    """Points (session, value, step, wall time) of metric 0."""
    sessions, values, steps, wall_times = zip(*points, strict=True)
    return MetricRows(
        np.array(sessions, np.int64),
        np.zeros(len(points), np.int64),
        np.array(values, np.float64),
        np.array(steps, np.int64),
        np.array(wall_times, np.float64),
    )


def one_group(size):
    return group_sessions(table(*[None] * size, starts=[start("g")] * size), list(range(size)))


MEDIAN, MIN, MAX, AVG = (
    AggregationType.AGGREGATION_MEDIAN,
    AggregationType.AGGREGATION_MIN,
    AggregationType.AGGREGATION_MAX,
    AggregationType.AGGREGATION_AVG,
)


def test_aggregation_mean_floors_steps():
    mean = aggregate(rows((0, 1.0, 1, 10.0), (1, 2.0, 4, 20.0)), one_group(2), AVG, None)
    assert (mean.values.tolist(), mean.steps.tolist(), mean.wall_times.tolist()) == (
        [1.5],
        [2],
        [15.0],
    )
    negative = aggregate(rows((0, 1.0, -1, 0.0), (1, 1.0, -2, 0.0)), one_group(2), AVG, None)
    assert negative.steps.tolist() == [-2]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_aggregation_mean_of_any_steps_is_exact(steps):
    points = [(session, 0.0, step, 0.0) for session, step in enumerate(steps)]
    mean = aggregate(rows(*points), one_group(len(steps)), AVG, None)
    assert mean.steps.tolist() == [sum(steps) // len(steps)]


def test_aggregation_mean_does_not_overflow():
    huge = aggregate(rows((0, 1.6e308, 0, 0.0), (1, 1.6e308, 0, 0.0)), one_group(2), AVG, None)
    assert huge.values.tolist() == [1.6e308]
    opposite = aggregate(
        rows((0, math.inf, 0, 0.0), (1, -math.inf, 0, 0.0)), one_group(2), AVG, None
    )
    assert math.isnan(opposite.values[0])


def test_aggregation_mean_is_of_sessions_with_metric():
    mean = aggregate(rows((1, 4.0, 2, 0.0)), one_group(3), AVG, None)
    assert (mean.values.tolist(), mean.steps.tolist()) == ([4.0], [2])


@pytest.mark.parametrize(
    ("aggregation", "values", "expected"),
    [
        (MIN, [3.0, 1.0, 2.0], 1),
        (MAX, [3.0, 1.0, 2.0], 0),
        (MEDIAN, [3.0, 1.0, 2.0], 2),
        (MEDIAN, [4.0, 1.0, 2.0, 3.0], 2),
        (MIN, [1.0, 1.0], 0),
        (MAX, [1.0, 1.0], 0),
        (MIN, [NAN, 5.0], 1),
        (MAX, [NAN, 5.0], 1),
        (MEDIAN, [NAN, 5.0, 6.0], 1),
        (MIN, [NAN, NAN], 0),
    ],
)
def test_aggregation_representative_is_chosen_by_value(aggregation, values, expected):
    measured = rows(*[(session, value, 0, 0.0) for session, value in enumerate(values)])
    groups = one_group(len(values))
    assert choose_representatives(groups, measured, aggregation).tolist() == [expected]


def test_aggregation_representative_without_metric_is_first():
    measured = rows((2, 5.0, 0, 0.0)).select(np.zeros(1, bool))
    assert choose_representatives(one_group(3), measured, MEDIAN).tolist() == [0]


def test_aggregation_group_has_rows_of_representative():
    points = rows((0, 1.0, 7, 1.0), (1, 2.0, 8, 2.0))
    points_of_group = aggregate(points, one_group(2), MAX, np.array([1]))
    assert (
        points_of_group.owners.tolist(),
        points_of_group.values.tolist(),
        points_of_group.steps.tolist(),
    ) == (
        [0],
        [2.0],
        [8],
    )


# ---- decoded records


def start_metadata(**numbers):
    info = hparams_pb2.SessionStartInfo()
    for name, number in numbers.items():
        info.hparams.add(key=name).value.number_value = number
    content = hparams_pb2.HParamsPluginData(session_start_info=info).SerializeToString()
    return SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name="hparams", content=content)
    ).SerializeToString()


def test_decoder_shares_names_and_keeps_sign_of_zero():
    decoder = RecordDecoder()
    first, _ = decoder.decode(start_metadata(x=0.0, y=0.1))
    second, _ = decoder.decode(start_metadata(x=-0.0, y=0.1))
    assert first.names is second.names
    assert first.values[1] is second.values[1]
    assert math.copysign(1, second.values[0]) == -1
    assert decoder.decode(b"\xff")[0] is None


def test_cache_drops_value_used_longest_ago():
    cache = VersionCache[str, bytes](100, len)
    cache.put("a", first := bytes(40))
    cache.put("b", bytes(40))
    assert cache.find("a") is first
    cache.put("c", bytes(40))
    assert [cache.find(key) is None for key in "abc"] == [False, True, False]


def test_cache_keeps_newest_version_of_value():
    cache = VersionCache[str, bytes](100, len)
    for version in (1, 2, 3):
        cache.put("a", bytes(57 + version), version)
    cache.put("b", bytes(40))
    assert cache.find("a", 3) == bytes(60)
    cache.put("a", bytes(101), 4)
    assert cache.find("a", 4) is None
    assert cache.find("b") is not None
