"""Rules of Katib's API on plain values: times, numbers, names, conditions, and what a log says."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.katib.conditions import Condition, get_status, is_final, read_condition
from tbservice.katib.katib_pb2 import Trial
from tbservice.katib.metric_values import parse_number
from tbservice.katib.places import guess_experiment, make_trial_name
from tbservice.katib.timestamps import ZERO_TIME, format_timestamp, parse_timestamp
from tbservice.types.series import SessionStatus

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sent", "returned"),
    [
        ("2021-12-02T14:27:50.000035161+09:00", "2021-12-02T05:27:50.000035Z"),
        ("2021-12-02T05:27:50Z", "2021-12-02T05:27:50Z"),
        ("2021-12-02T05:27:50.500Z", "2021-12-02T05:27:50.5Z"),
        ("2021-12-02T05:27:50,25Z", "2021-12-02T05:27:50.25Z"),
        ("2021-12-02T5:27:50-00:30", "2021-12-02T05:57:50Z"),
        ("2024-02-29T23:59:59+00:00", "2024-02-29T23:59:59Z"),
        ("2021-12-02T00:00:00+24:60", "2021-11-30T23:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0001-01-01T00:00:00+05:30", "0000-12-31T18:30:00Z"),
        ("0000-03-01T00:00:00.0000009Z", "0000-03-01T00:00:00Z"),
        ("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z"),
        ("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.999999Z"),
        ("1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999Z"),
        ("2021-12-02T05:27:50." + "1" * 5_000 + "Z", "2021-12-02T05:27:50.111111Z"),
    ],
)
def test_timestamp_is_read_as_go_reads_it(sent, returned):
    assert format_timestamp(parse_timestamp(sent)) == returned


def test_timestamp_of_zero_time_is_known():
    assert parse_timestamp("0001-01-01T00:00:00Z") == ZERO_TIME


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2021-12-02",
        "2021-12-02T05:27:50",
        "2021-12-02 05:27:50Z",
        "2021-12-02t05:27:50Z",
        "2021-12-02T05:27:50z",
        "2021-12-02T05:27:50.Z",
        "2021-12-02T05:27:60Z",
        "2021-12-02T24:00:00Z",
        "2021-02-29T00:00:00Z",
        "2021-13-01T00:00:00Z",
        "2021-12-02T05:27:50+0900",
        "2021-12-02T05:27:50+25:00",
        "2021-12-02T05:27:50+09:61",
        "12021-12-02T05:27:50Z",
        "٢٠٢١-12-02T05:27:50Z",
        "2021-12-02T05:27:50Z ",
        "0000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    ],
)
def test_timestamp_that_go_refuses_is_refused(text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_timestamp(text)


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamp_of_any_time_comes_back(moment):
    microseconds = (moment - EPOCH) // timedelta(microseconds=1)
    written = format_timestamp(microseconds)
    assert parse_timestamp(written) == microseconds
    assert datetime.fromisoformat(written) == moment


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.10", 0.1),
        ("1", 1.0),
        ("-3.", -3.0),
        (".5e-3", 0.0005),
        ("+1E5", 1e5),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1e-999", 0.0),
        ("9" * 300, 1e300),
    ],
)
def test_number_is_read_as_go_reads_it(text, number):
    assert parse_number(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["nan", "NaN", "NAN"])
def test_number_may_be_nan_of_any_case(text):
    assert math.isnan(parse_number(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "unavailable", " 1", "1 ", "1\n", "1_000", "1,5", "0x1p3", "\u0661", "e5", "."),
        *("-nan", "infin", "1e999", "-1e999", "[0.1 0.2]", "9" * 400),
    ],
)
def test_number_is_none_for_other_texts(text):
    assert parse_number(text) is None


def test_number_of_hostile_length_is_read_in_linear_time():
    # In time that grows with the square of the length, these would take hours.
    assert parse_number("1" * 5_000_000 + "x") is None
    assert parse_number("0." + "1" * 1_000_000) == pytest.approx(1 / 9)


@pytest.mark.parametrize(
    ("trial", "experiment"),
    [
        ("random-bcdf2456", "random"),
        ("my-sweep-2-zzzzzzzz", "my-sweep-2"),
        ("pbt-3f2b8c1e-9d4a-4b6f-8e21-0123456789ab", "pbt"),
        ("random-aeiou245", None),
        ("random-bcdf245", None),
        ("randombcdf2456", None),
        ("-bcdf2456", None),
        ("bcdf2456", None),
        ("random-BCDF2456", None),
        ("pbt-3f2b8c1e-9d4a-1b6f-8e21-0123456789ab", None),
        ("", None),
    ],
)
def test_trial_name_tells_its_experiment(trial, experiment):
    assert guess_experiment(trial) == experiment


def test_trial_name_that_is_made_tells_its_experiment():
    names = {make_trial_name("a-b") for _ in range(50)}
    assert len(names) == 50
    assert {guess_experiment(name) for name in names} == {"a-b"}


def trial(condition, **metrics):
    made = Trial(name="t")
    made.status.condition = condition
    for name, value in metrics.items():
        made.status.observation.metrics.add(name=name, value=value)
    return made


@pytest.mark.parametrize("number", [5, 6])
@pytest.mark.parametrize(
    ("metrics", "condition"),
    [
        ({"loss": "0.5"}, Condition.EARLY_STOPPED),
        ({"loss": "unavailable"}, Condition.UNKNOWN),
        ({"other": "0.5"}, Condition.UNKNOWN),
        ({}, Condition.UNKNOWN),
    ],
)
def test_condition_5_and_6_depend_on_objective(number, metrics, condition):
    assert read_condition(trial(number, **metrics), "loss") is condition


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7])
def test_condition_of_other_numbers_is_same_in_all_versions(number):
    assert read_condition(trial(number), "loss") == number


@pytest.mark.parametrize("number", [8, -1, 1_000])
def test_condition_of_later_versions_is_unknown(number):
    assert read_condition(trial(number), "loss") is Condition.UNKNOWN


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        (Condition.SUCCEEDED, SessionStatus.SUCCESS),
        (Condition.EARLY_STOPPED, SessionStatus.SUCCESS),
        (Condition.FAILED, SessionStatus.FAILURE),
        (Condition.KILLED, SessionStatus.FAILURE),
        (Condition.METRICS_UNAVAILABLE, SessionStatus.FAILURE),
        (Condition.CREATED, None),
        (Condition.RUNNING, None),
        (Condition.UNKNOWN, None),
        (None, None),
    ],
)
def test_condition_tells_how_session_ended(condition, status):
    assert get_status(condition) is status
    assert is_final(condition) == (status is not None)
