"""Filters and order of session groups in a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.errors import Invalid
from tbservice.hparams.requests import (
    ColumnParams,
    DiscreteFilter,
    Filter,
    RegexpFilter,
    SortOrder,
)
from tbservice.hparams.values import to_text, value_key
from tbservice.patterns import PatternSearches
from tbservice.types.identifiers import Booleans, Float64s, Int64s
from tbwire.hparams import HparamType, HparamValue, Interval

_TYPE_NAMES: Final = {
    HparamType.DATA_TYPE_STRING: "strings",
    HparamType.DATA_TYPE_BOOL: "booleans",
    HparamType.DATA_TYPE_FLOAT64: "numbers",
}


@dataclass(frozen=True, slots=True)
class HparamColumn:
    """The values of a hyperparameter by group, None for missing; and the type of the column.

    The type is unset if no session has the hyperparameter and no summary declares it.
    """

    values: Sequence[HparamValue | None]
    type: HparamType


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """The values of a metric by group, and which groups have one."""

    values: Float64s
    has_value: Booleans


Column = HparamColumn | MetricColumn


def filter_groups(params: Sequence[ColumnParams], columns: Sequence[Column], count: int) -> Int64s:
    """Return the groups that pass the filters of all columns, ascending.

    Raises Invalid for a filter that the column's type does not have, with its place in the request;
    TooLarge over `PATTERN_STEPS_MAX` steps of regular expressions.

    Args:
        params: The columns of the request with a filter.
        columns: Their values.
        count: Number of groups.
    """
    passing, searches = np.arange(count), PatternSearches()
    for each, column in zip(params, columns, strict=True):
        passing = passing[_pass_filter(each, column, passing, searches)]
    return passing


def _pass_filter(
    params: ColumnParams, column: Column, groups: Int64s, searches: PatternSearches
) -> Booleans:
    """Return which of the groups pass; a missing value does, unless missing ones are excluded."""
    if isinstance(column, MetricColumn):
        has_value = column.has_value[groups]
        passes = has_value & _numbers_pass(params.filter, column.values[groups])
    else:
        predicate = _make_predicate(params, column.type, searches)
        values = [column.values[group] for group in groups.tolist()]
        has_value = np.array([value is not None for value in values], bool)
        passes = np.array([value is not None and predicate(value) for value in values], bool)
    return passes if params.excludes_missing else passes | ~has_value


def _numbers_pass(filter_: Filter, values: Float64s) -> Booleans:
    if isinstance(filter_, Interval):
        return (values >= filter_.min_value) & (values <= filter_.max_value)
    if isinstance(filter_, DiscreteFilter):
        numbers = [value for value in filter_.values if type(value) is float]
        passes: Booleans = np.isin(values, numbers)
        texts = set(filter_.values)
        for text, is_value in (
            ("NaN", np.isnan(values)),
            ("Infinity", values == np.inf),
            ("-Infinity", values == -np.inf),
        ):
            if text in texts:
                passes |= is_value
        return passes
    return np.ones(len(values), bool)


def _make_predicate(
    params: ColumnParams, type_: HparamType, searches: PatternSearches
) -> Callable[[HparamValue], bool]:
    filter_ = params.filter
    if filter_ is None:
        return lambda _value: True
    if isinstance(filter_, DiscreteFilter):
        return _in_set(filter_, type_)
    if isinstance(filter_, RegexpFilter):
        _check_type(f"{params.path}.filter_regexp", type_, HparamType.DATA_TYPE_STRING)
        return _matches(filter_, searches)

    _check_type(f"{params.path}.filter_interval", type_, HparamType.DATA_TYPE_FLOAT64)
    first, last = filter_.min_value, filter_.max_value
    return lambda value: type(value) is float and first <= value <= last


def _matches(filter_: RegexpFilter, searches: PatternSearches) -> Callable[[HparamValue], bool]:
    """Return whether a value's text has a match; each text is searched once."""
    results: dict[str, bool] = {}

    def is_match(value: HparamValue) -> bool:
        text = to_text(value)
        if text not in results:
            results[text] = searches.has_match(filter_.pattern, text)
        return results[text]

    return is_match


def _in_set(filter_: DiscreteFilter, type_: HparamType) -> Callable[[HparamValue], bool]:
    """Return whether a value is in the set, as it is or as the domain shows it.

    The domain of a column of strings has the texts of its numbers and booleans; JSON has no NaN
    and no infinity but as strings.
    """
    keys = {value_key(value) for value in filter_.values}
    texts = {value for value in filter_.values if isinstance(value, str)}
    is_text = type_ is HparamType.DATA_TYPE_STRING

    def is_member(value: HparamValue) -> bool:
        is_shown_as_text = is_text or (type(value) is float and not np.isfinite(value))
        return value_key(value) in keys or (is_shown_as_text and to_text(value) in texts)

    return is_member


def _check_type(path: str, type_: HparamType, required: HparamType) -> None:
    if type_ not in {required, HparamType.DATA_TYPE_UNSET}:
        wanted, actual = _TYPE_NAMES[required], _TYPE_NAMES[type_]
        raise Invalid(f"{path}: is for columns of {wanted}; this one has {actual}")


def sort_groups(
    params: Sequence[ColumnParams], columns: Sequence[Column], groups: Int64s
) -> Int64s:
    """Return the groups ordered by the columns, the first being the primary key, then by name.

    Values of several types in a column: false, true, numbers, NaN, strings.

    Args:
        params: The columns of the request with an order.
        columns: Their values.
        groups: The groups to order, ascending, which is their order by name.
    """
    keys = [
        _sort_key(each, _rank(column, groups)) for each, column in zip(params, columns, strict=True)
    ]
    if not keys:
        return groups
    return groups[np.lexsort((groups, *reversed(keys)))]


_MISSING: Final = -1


def _rank(column: Column, groups: Int64s) -> Int64s:
    """Return the rank of each group's value among the distinct ones; -1 for a missing value."""
    if isinstance(column, MetricColumn):
        _, ranks = np.unique(column.values[groups], return_inverse=True)  # NaN is the greatest
        return np.where(column.has_value[groups], ranks, _MISSING)
    keys = [
        None if value is None else value_key(value)
        for value in (column.values[group] for group in groups.tolist())
    ]
    ordered = sorted({key for key in keys if key is not None})
    rank_of: Mapping[object, int] = {key: rank for rank, key in enumerate(ordered)}
    return np.array([rank_of.get(key, _MISSING) for key in keys], np.int64)


def _sort_key(params: ColumnParams, ranks: Int64s) -> Int64s:
    is_missing = ranks == _MISSING
    keys = -ranks if params.order is SortOrder.ORDER_DESC else ranks
    end = len(ranks) + 1
    return np.where(is_missing, -end if params.is_missing_first else end, keys)
