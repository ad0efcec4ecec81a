"""Filters and order of session groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.errors import Invalid, TooLarge
from tbservice.hparams.requests import ColumnParams, DiscreteFilter, RegexpFilter, SortOrder
from tbservice.hparams.selection import HparamColumn, MetricColumn, filter_groups, sort_groups
from tbservice.patterns import compile_pattern
from tbwire.hparams import HparamType, Interval

STRING, BOOL, FLOAT64, UNSET = (
    HparamType.DATA_TYPE_STRING,
    HparamType.DATA_TYPE_BOOL,
    HparamType.DATA_TYPE_FLOAT64,
    HparamType.DATA_TYPE_UNSET,
)
ASC, DESC = SortOrder.ORDER_ASC, SortOrder.ORDER_DESC
NAN = math.nan


def passing(column, **params):
    each = ColumnParams("col_params[0]", "x", **params)
    return filter_groups([each], [column], len(column.values)).tolist()


def metric(*values):
    has_value = np.array([value is not None for value in values])
    return MetricColumn(np.array([value or 0.0 for value in values], np.float64), has_value)


def regexp(text):
    return RegexpFilter(compile_pattern(text))


def discrete(*values):
    return DiscreteFilter(values)


NUMBERS = HparamColumn([1.0, 2.0, 3.0, None, 3.1, NAN], FLOAT64)
TEXTS = HparamColumn(["adam", "sgd", None, "nadam"], STRING)
MIXED = HparamColumn([1.0, "1x", True, NAN], STRING)
TYPED = HparamColumn([1.0, True, None, 2.0], FLOAT64)
SHOWN = HparamColumn([1.0, "a", True], STRING)
UNKNOWN = HparamColumn([None, None], UNSET)
METRIC = metric(0.5, None, 2.0, NAN, math.inf)


@pytest.mark.parametrize(
    ("column", "filter_", "with_missing", "without"),
    [
        (NUMBERS, Interval(1.0, 3.0), [0, 1, 2, 3], [0, 1, 2]),
        (NUMBERS, Interval(NAN, NAN), [3], []),
        (HparamColumn(["2.0", True, 2.0], FLOAT64), Interval(0.0, 9.0), [2], [2]),
        (TEXTS, regexp("ada"), [0, 2, 3], [0, 3]),
        (TEXTS, regexp("^adam$"), [0, 2], [0]),
        (MIXED, regexp("^1"), [0, 1], [0, 1]),
        (MIXED, regexp("true|NaN"), [2, 3], [2, 3]),
        (TYPED, discrete(1.0), [0, 2], [0]),
        (TYPED, discrete(True), [1, 2], [1]),
        (TYPED, discrete(), [2], []),
        (SHOWN, discrete("1.0", "true"), [0, 2], [0, 2]),
        (
            HparamColumn([NAN, math.inf, 1.0], FLOAT64),
            discrete("NaN", "Infinity", "1.0"),
            [0, 1],
            [0, 1],
        ),
        (UNKNOWN, regexp("a"), [0, 1], []),
        (UNKNOWN, Interval(0.0, 1.0), [0, 1], []),
        (HparamColumn([None, "a"], STRING), None, [0, 1], [1]),
        (metric(None, 0.5), None, [0, 1], [1]),
        (METRIC, Interval(0.0, 1.0), [0, 1], [0]),
        (METRIC, discrete(2.0, "NaN", True), [1, 2, 3], [2, 3]),
        (METRIC, discrete("Infinity"), [1, 4], [4]),
    ],
)
def test_filter_passes_what_it_names_and_what_is_missing(column, filter_, with_missing, without):
    assert passing(column, filter=filter_) == with_missing
    assert passing(column, filter=filter_, excludes_missing=True) == without


@pytest.mark.parametrize(
    ("type_", "filter_", "field"),
    [
        *((type_, Interval(0.0, 1.0), "interval") for type_ in (STRING, BOOL)),
        *((type_, regexp("1"), "regexp") for type_ in (FLOAT64, BOOL)),
    ],
)
def test_filter_of_other_type_is_refused(type_, filter_, field):
    with pytest.raises(Invalid, match=rf"^col_params\[0\].filter_{field}: "):
        passing(HparamColumn([1.0], type_), filter=filter_)


def test_filter_regexp_steps_are_limited_by_request(monkeypatch):
    """Linear time is not enough: here RE2 takes 10 microseconds for a character."""
    slow = regexp("(?:a?){900}b")
    with pytest.raises(TooLarge, match="pattern_steps_max"):
        passing(HparamColumn(["a" * 4_000_000], STRING), filter=slow)

    steps = compile_pattern("ada").programsize * len("adam")
    monkeypatch.setattr("tbservice.patterns.PATTERN_STEPS_MAX", 2 * steps)
    each = ColumnParams("col_params[0]", "x", filter=regexp("ada"))
    column = HparamColumn(["adam"] * 9, STRING)  # equal texts are searched once
    assert len(filter_groups([each, each], [column] * 2, 9)) == 9
    with pytest.raises(TooLarge):
        filter_groups([each] * 3, [column] * 3, 9)


def test_filters_of_all_columns_apply():
    params = [
        ColumnParams("col_params[0]", "a", filter=Interval(1.0, 2.0)),
        ColumnParams("col_params[1]", "b", filter=DiscreteFilter(("x",))),
    ]
    columns = [HparamColumn([0.0, 1.0, 2.0], FLOAT64), HparamColumn(["x", "y", "x"], STRING)]
    assert filter_groups(params, columns, 3).tolist() == [2]


def ordered(*keys, count, groups=None):
    """Order groups by (values, order, missing first)."""
    params = [
        ColumnParams(f"col_params[{index}]", f"c{index}", order=order, is_missing_first=first)
        for index, (_, order, first) in enumerate(keys)
    ]
    columns = [
        values if isinstance(values, MetricColumn) else HparamColumn(values, STRING)
        for values, _, _ in keys
    ]
    return sort_groups(params, columns, np.arange(count) if groups is None else groups).tolist()


def test_sort_mixed_types_has_stated_order():
    values = ["b", 2.0, True, NAN, "a", False, 1.0]
    assert ordered((values, ASC, False), count=7) == [5, 2, 6, 1, 3, 4, 0]
    assert ordered((values, DESC, False), count=7) == [0, 4, 3, 1, 6, 2, 5]


@pytest.mark.parametrize("order", [ASC, DESC])
def test_sort_missing_is_first_or_last(order):
    values = [None, 1.0, None]
    assert ordered((values, order, True), count=3) == [0, 2, 1]
    assert ordered((values, order, False), count=3) == [1, 0, 2]


def test_sort_first_key_is_primary_and_name_last():
    first, second = [1.0, 2.0, 1.0, 2.0], ["b", "b", "a", "b"]
    assert ordered((first, DESC, False), (second, ASC, False), count=4) == [1, 3, 2, 0]


def test_sort_metric_has_nan_greatest():
    assert ordered((metric(NAN, 1.0, None, -math.inf), ASC, False), count=4) == [3, 1, 0, 2]
    assert ordered((metric(NAN, 1.0, None, -math.inf), DESC, False), count=4) == [0, 1, 3, 2]


def test_sort_without_key_is_by_name():
    assert ordered(count=3) == [0, 1, 2]
    assert ordered(count=0) == []
    assert ordered(([3.0, 1.0, 2.0], ASC, False), count=3, groups=np.array([0, 2])) == [2, 0]


VALUES = st.none() | st.booleans() | st.floats() | st.text(max_size=2)


@given(st.lists(st.tuples(VALUES, VALUES), max_size=12), st.booleans(), st.booleans())
def test_sort_of_any_values_is_permutation(rows, first, is_descending):
    order = DESC if is_descending else ASC
    columns = list(zip(*rows, strict=True)) or [(), ()]
    result = ordered((columns[0], order, first), (columns[1], ASC, not first), count=len(rows))
    assert sorted(result) == list(range(len(rows)))
    is_missing = [columns[0][group] is None for group in result]
    assert is_missing == sorted(is_missing, reverse=first)
