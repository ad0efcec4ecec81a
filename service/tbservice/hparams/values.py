"""Values of hyperparameters: their types, texts and order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tbwire.hparams import HparamType, HparamValue

_TYPES: Final[dict[type, HparamType]] = {
    str: HparamType.DATA_TYPE_STRING,
    bool: HparamType.DATA_TYPE_BOOL,
    float: HparamType.DATA_TYPE_FLOAT64,
}
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

ValueKey = tuple[int, int, HparamValue]
"""A value as something to compare and hash: type, whether it is NaN, and the value or 0 for NaN.

Python's own equality takes True for 1.0, and a NaN for different from itself.
"""


def value_key(value: HparamValue) -> ValueKey:
    """Return the key of a value, which orders all values of all types.

    False and true, then numbers, NaN after infinity, then strings by code points.
    """
    if isinstance(value, bool):
        return 0, 0, value
    if isinstance(value, str):
        return 2, 0, value
    return (1, 1, 0.0) if math.isnan(value) else (1, 0, value)


def list_distinct(values: Iterable[HparamValue]) -> list[HparamValue]:
    """Return the values without repetitions, by `value_key`, in no order.

    Values of one type are compared in C: there may be 100,000 of each hyperparameter.
    """
    listed = list(values)
    types = set(map(type, listed))
    if len(types) != 1:
        return list({value_key(value): value for value in listed}.values())
    distinct = set(listed)
    if types == {float} and (nans := [value for value in distinct if value != value]):  # noqa: PLR0124 - of NaN
        distinct.difference_update(nans[1:])
    return list(distinct)


def to_text(value: HparamValue) -> str:
    """Return a value as text: as in proto3 JSON, where NaN and infinities are strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if math.isfinite(value) else _NOT_FINITE[repr(value)]


def to_json(value: HparamValue) -> HparamValue:
    """Return a value as proto3 JSON: a number, a bool, or a string, also for NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[repr(value)]
    return value


def common_type(values: Iterable[HparamValue]) -> HparamType:
    """Return the type of a column with these values: a string if they are of several types."""
    types = {_TYPES[type(value)] for value in values}
    if len(types) == 1:
        return types.pop()
    return HparamType.DATA_TYPE_STRING if types else HparamType.DATA_TYPE_UNSET
