"""Curves of groups of runs as columns of a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tbupload.notebook.data_frames import NullableColumn

_INTEGERS: Final = {"steps": "step", "count": "count", "not_finite": "not_finite"}
_NUMBERS: Final = ("mean", "std", "stderr", "median", "min", "max")


def curve_columns(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of all groups: their values, then the statistics, a row for each step.

    A value that runs are grouped by has the name `group.NAME` if a statistic has its own.
    """
    groups = answer["groups"]
    lengths = [len(group["steps"]) for group in groups]
    statistics = {
        label: _concatenate([group[name] for group in groups], np.int64)
        for name, label in _INTEGERS.items()
    }
    statistics.update(
        (name, _concatenate([group[name] for group in groups], np.float64)) for name in _NUMBERS
    )
    for quantile in groups[0]["quantiles"] if groups else ():
        arrays = [group["quantiles"][quantile] for group in groups]
        statistics[f"q{quantile}"] = _concatenate(arrays, np.float64)
    keys = {}
    for name in answer["columns"]:
        label = f"group.{name}" if name in statistics else name
        keys[label] = _repeat([group["group"][name] for group in groups], lengths)
    return {**keys, **statistics}


def _repeat(values: list[Any], lengths: list[int]) -> NullableColumn:
    """Return the value of each group for each of its steps; values of several types as texts."""
    types = {type(value) for value in values if value is not None}
    column_type = next(iter(types)) if len(types) == 1 else str
    if len(types) > 1:
        values = [None if value is None else str(value) for value in values]
    repeated = [value for value, length in zip(values, lengths) for _ in range(length)]
    return NullableColumn(repeated, column_type)


def _concatenate(arrays: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.empty(0, dtype), *(np.array(each, dtype) for each in arrays)])
