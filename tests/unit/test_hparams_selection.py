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


def test_filter_interval_is_closed_and_keeps_missing():
    column = HparamColumn([1.0, 2.0, 3.0, None, 3.1, NAN], FLOAT64)
    assert passing(column, filter=Interval(1.0, 3.0)) == [0, 1, 2, 3]
    assert passing(column, filter=Interval(1.0, 3.0), excludes_missing=True) == [0, 1, 2]
    assert passing(column, filter=Interval(NAN, NAN)) == [3]


def test_filter_interval_in_column_of_numbers_skips_others():
    column = HparamColumn(["2.0", True, 2.0], FLOAT64)
    assert passing(column, filter=Interval(0.0, 9.0)) == [2]


@pytest.mark.parametrize("type_", [STRING, BOOL])
def test_filter_interval_is_for_numbers_only(type_):
    with pytest.raises(Invalid, match=r"^col_params\[0\].filter_interval: "):
        passing(HparamColumn([True], type_), filter=Interval(0.0, 1.0))


def test_filter_regexp_matches_anywhere():
    column = HparamColumn(["adam", "sgd", None, "nadam"], STRING)
    assert passing(column, filter=RegexpFilter(compile_pattern("ada"))) == [0, 2, 3]
    full = RegexpFilter(compile_pattern("^adam$"))
    assert passing(column, filter=full, excludes_missing=True) == [0]


def test_filter_regexp_sees_texts_of_mixed_column():
    column = HparamColumn([1.0, "1x", True, NAN], STRING)
    assert passing(column, filter=RegexpFilter(compile_pattern("^1"))) == [0, 1]
    assert passing(column, filter=RegexpFilter(compile_pattern("true|NaN"))) == [2, 3]


def test_filter_regexp_steps_are_limited_by_request(monkeypatch):
    """Linear time is not enough: here RE2 takes 10 microseconds for a character."""
    slow = RegexpFilter(compile_pattern("(?:a?){900}b"))
    with pytest.raises(TooLarge, match="pattern_steps_max"):
        passing(HparamColumn(["a" * 4_000_000], STRING), filter=slow)

    steps = compile_pattern("ada").programsize * len("adam")
    monkeypatch.setattr("tbservice.patterns.PATTERN_STEPS_MAX", 2 * steps)
    each = ColumnParams("col_params[0]", "x", filter=RegexpFilter(compile_pattern("ada")))
    column = HparamColumn(["adam"] * 9, STRING)  # equal texts are searched once
    assert len(filter_groups([each, each], [column] * 2, 9)) == 9
    with pytest.raises(TooLarge):
        filter_groups([each] * 3, [column] * 3, 9)


@pytest.mark.parametrize("type_", [FLOAT64, BOOL])
def test_filter_regexp_is_for_strings_only(type_):
    with pytest.raises(Invalid, match=r"^col_params\[0\].filter_regexp: "):
        passing(HparamColumn([1.0], type_), filter=RegexpFilter(compile_pattern("1")))


def test_filter_discrete_compares_types():
    column = HparamColumn([1.0, True, None, 2.0], FLOAT64)
    assert passing(column, filter=DiscreteFilter((1.0,))) == [0, 2]
    assert passing(column, filter=DiscreteFilter((True,))) == [1, 2]
    assert passing(column, filter=DiscreteFilter(())) == [2]


def test_filter_discrete_finds_what_domain_shows():
    mixed = HparamColumn([1.0, "a", True], STRING)
    assert passing(mixed, filter=DiscreteFilter(("1.0", "true"))) == [0, 2]
    numbers = HparamColumn([NAN, math.inf, 1.0], FLOAT64)
    assert passing(numbers, filter=DiscreteFilter(("NaN", "Infinity", "1.0"))) == [0, 1]


def test_filter_of_unknown_column_leaves_missing():
    unknown = HparamColumn([None, None], UNSET)
    pattern = RegexpFilter(compile_pattern("a"))
    assert passing(unknown, filter=pattern) == [0, 1]
    assert passing(unknown, filter=Interval(0.0, 1.0), excludes_missing=True) == []


def test_filter_excludes_missing_without_other_filter():
    assert passing(HparamColumn([None, "a"], STRING), excludes_missing=True) == [1]
    assert passing(metric(None, 0.5), excludes_missing=True) == [1]


def test_filter_metric_by_interval_and_set():
    column = metric(0.5, None, 2.0, NAN, math.inf)
    assert passing(column, filter=Interval(0.0, 1.0)) == [0, 1]
    assert passing(column, filter=DiscreteFilter((2.0, "NaN", True))) == [1, 2, 3]
    assert passing(column, filter=DiscreteFilter(("Infinity",)), excludes_missing=True) == [4]


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
