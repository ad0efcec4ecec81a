"""Read the search space of an experiment from its specification, and refuse what makes no sense."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_DOWN, Context, Decimal
from typing import Final

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.scales import BELL_SHAPED, LOGARITHMIC, make_scale
from tbservice.katib.suggestions.space import Choice, Number, Parameter, Space, steps
from tbservice.katib.suggestions.texts import parse_number, shown

_INT_MAX: Final = 2**63 - 1
_DIMENSIONS_MIN: Final = 2
_RANGE_MAX: Final = 1e300
"""The largest distance of two bounds: it leaves room for sums of them."""
_DOWN: Final = Context(prec=20, rounding=ROUND_DOWN)
"""More digits than a float has, and fewer than a Decimal: multiples and sums stay exact."""
_FLOAT_ERROR: Final = Decimal(2) ** -50
"""Error that a sum of floats may have, relative to the largest of them."""
_STEP_ERROR_MAX: Final = Decimal("1e-6")
"""Largest change of a step, as a share of it."""


def read_space(specs: Iterable[pb.ParameterSpec]) -> Space:
    """Return the search space of parameter specifications; without any, one without parameters.

    Raises:
        Invalid: A parameter has no name, no type, the name of another, bounds or a step that are
            no numbers or leave no values, or no list; or there are too many.
    """
    parameters: list[Parameter] = []
    names: set[str] = set()
    items = 0
    for number, spec in enumerate(specs, 1):
        if number > limits.SUGGESTION_PARAMETERS_ITEMS_MAX:
            raise Invalid(
                f"more than {limits.SUGGESTION_PARAMETERS_ITEMS_MAX} parameters: "
                "divide the experiment, or fix some of them"
            )
        if not spec.name:
            raise Invalid(f"parameter {number} has no name")
        if spec.name in names:
            raise Invalid(f"parameter {shown(spec.name)} is defined twice")
        items += len(spec.feasible_space.list)
        if items > limits.SUGGESTION_LIST_ITEMS_MAX:
            raise Invalid(
                f"more than {limits.SUGGESTION_LIST_ITEMS_MAX} items in lists of parameters: "
                "use an INT parameter as an index of the items"
            )
        names.add(spec.name)
        parameters.append(_read_parameter(spec))
    return Space(tuple(parameters))


def _read_parameter(spec: pb.ParameterSpec) -> Parameter:
    if spec.parameter_type in {pb.CATEGORICAL, pb.DISCRETE}:
        items = tuple(dict.fromkeys(spec.feasible_space.list))
        if not items:
            raise Invalid(f"parameter {shown(spec.name)}: feasible_space.list is empty")
        return Choice(spec.name, items)
    if spec.parameter_type in {pb.INT, pb.DOUBLE}:
        return _read_number(spec, is_int=spec.parameter_type == pb.INT)
    raise Invalid(
        f"parameter {shown(spec.name)}: parameter_type {spec.parameter_type} is not one of "
        "DOUBLE, INT, DISCRETE and CATEGORICAL"
    )


def _read_number(spec: pb.ParameterSpec, *, is_int: bool) -> Number:
    space = spec.feasible_space
    low = _read_bound(spec, "min", space.min, is_int=is_int)
    high = _read_bound(spec, "max", space.max, is_int=is_int)
    step = Decimal(1) if is_int else None
    if space.step:
        step = _read_bound(spec, "step", space.step, is_int=is_int)

    about = f"parameter {shown(spec.name)}"
    if low > high:
        raise Invalid(f"{about}: min {shown(space.min)} is greater than max {shown(space.max)}")
    if step is not None and step <= 0:
        raise Invalid(f"{about}: step {shown(space.step)} is not greater than zero")
    if float(high) - float(low) > _RANGE_MAX:
        raise Invalid(f"{about}: min and max differ by more than {_RANGE_MAX:g}")
    is_log = space.distribution in LOGARITHMIC
    if is_log and (low < 0 or high == 0):
        raise Invalid(f"{about}: a logarithmic distribution needs min >= 0 and max > 0")

    if step is not None:
        step = step if is_int else _fit_step(low, high, step)
        high = low + steps(low, high, step) * step
    is_single = float(low) == float(high)
    scale = None
    if not is_single:
        width = None if step is None else float(step)
        scale = make_scale(float(low), float(high), width, space.distribution)
    is_uniform = not is_log and space.distribution not in BELL_SHAPED
    return Number(spec.name, is_int, low, high, step, scale, is_uniform)


def _fit_step(low: Decimal, high: Decimal, step: Decimal) -> Decimal:
    """Return the step, or the one next to it that ends at `high`.

    A program computes a step as a float, such as 15 / 7, and rounds it up: seven such steps, added
    in decimal digits, are more than 15, and the greatest value would be lost.
    """
    count = ((high - low) / step).to_integral_value()
    error = abs(count * step - (high - low))
    error_max = min(step * _STEP_ERROR_MAX, max(abs(low), abs(high)) * _FLOAT_ERROR)
    if not error or not count or error > error_max:
        return step
    return _DOWN.divide(high - low, count)


def _read_bound(spec: pb.ParameterSpec, field: str, text: str, *, is_int: bool) -> Decimal:
    """Return a bound or a step exactly as it was written, to 17 digits.

    The step of an INT is rounded up to an integer: Katib's services take fractions, and so does its
    admission webhook. Its bounds have to be integers.

    Not `Decimal(text)`: a hostile exponent would make numbers of 10^8 digits.
    """
    about = f"parameter {shown(spec.name)}: {field} {shown(text)}"
    number = parse_number(text)
    if number is None or not math.isfinite(number):
        raise Invalid(f"{about} is not a finite number")
    if not is_int:
        return Decimal(repr(number))
    is_literal = text.lstrip("+-").isdecimal()
    integer = int(text) if is_literal else math.ceil(number)  # a float has 53 bits only
    if (field != "step" and not number.is_integer()) or abs(integer) > _INT_MAX:
        raise Invalid(f"{about} is not an integer of 64 bits")
    return Decimal(integer)


def check_numbers(space: Space) -> None:
    """Refuse a search space that CMA-ES cannot search.

    Raises:
        Invalid: There are fewer than two numeric parameters; with Katib's text.
    """
    if sum(isinstance(parameter, Number) for parameter in space.parameters) < _DIMENSIONS_MIN:
        raise Invalid("cmaes only supports two or more dimensional continuous search space.")
