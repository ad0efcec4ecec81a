"""Columns of hyperparameters as both of TensorBoard's front ends can use them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from tbservice.hparams.schema import complete
from tbservice.hparams.values import common_type, value_key
from tbwire.hparams import DeclaredHparam, Domain, HparamType, HparamValue, Interval

_CHECK_BOX_ITEMS_MAX: Final = 9
"""Values that the HParams dashboard shows as check boxes; for more, it asks for an expression."""


def cover(column: DeclaredHparam, seen: Collection[HparamValue]) -> DeclaredHparam:
    """Return a column with type and domain: as `complete`, but the domain has all finite values.

    The run table hides each run that has a value outside of the domain, and a value of another type
    than the others is outside of an interval. The HParams dashboard makes no check box for values
    outside, a numeric axis of columns of numbers, and asks for an expression if there are too many
    check boxes: a column with values of another type than its own becomes one of strings. If there
    are more numbers than check boxes, the domain is an interval, as there is no expression for
    numbers.
    """
    completed = complete(column, seen)
    values = sorted({value_key(value): value for value in seen if _is_finite(value)}.items())
    finite = [value for _, value in values]
    numbers = [value for value in finite if type(value) is float]
    if completed.type is HparamType.DATA_TYPE_FLOAT64 and len(numbers) == len(finite):
        return replace(completed, domain=_cover_numbers(completed.domain, numbers))

    is_uniform = common_type(finite) in {HparamType.DATA_TYPE_UNSET, completed.type}
    type_ = completed.type if is_uniform else HparamType.DATA_TYPE_STRING
    declared = column.domain if isinstance(column.domain, tuple) else ()
    return replace(completed, type=type_, domain=_unite(declared, finite) or None)


def _cover_numbers(domain: Domain, numbers: Collection[float]) -> Domain:
    if isinstance(domain, tuple):
        united = _unite(domain, numbers)
        if len(united) <= _CHECK_BOX_ITEMS_MAX:
            return united
        numbers = [value for value in united if isinstance(value, float) and math.isfinite(value)]
    bounds = (domain.min_value, domain.max_value) if isinstance(domain, Interval) else ()
    known = [value for value in (*bounds, *numbers) if not math.isnan(value)]
    return Interval(min(known), max(known)) if known else None


def _unite(
    declared: Collection[HparamValue], others: Collection[HparamValue]
) -> tuple[HparamValue, ...]:
    return tuple({value_key(value): value for value in (*declared, *others)}.values())


def _is_finite(value: HparamValue) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
