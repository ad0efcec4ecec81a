"""Numbers as texts for people: 12345678, 0.123457; mean and deviation as 0.912 ± 0.004 (5)."""

from __future__ import annotations

import math
from typing import Final, Optional

PLUS_MINUS: Final = "\N{PLUS-MINUS SIGN}"

_EXPONENT_MIN: Final = -4
_EXPONENT_MAX: Final = 6
"""Exponents outside of which numbers are written with one, about as those of `%g`."""

_SCALE_EXPONENT_MAX: Final = 300


_EXACT_MAX: Final = 2.0**53
"""Integers below are exact as float64."""


def format_short(number: float) -> str:
    """Return a number with six digits, and an integer with all: seeds and steps are such."""
    if abs(number) < _EXACT_MAX and number == int(number):
        return str(int(number))
    return f"{number:.6g}"


def format_mean(mean: Optional[float], std: Optional[float], count: int) -> str:  # noqa: UP045 - Python 3.9
    """Return mean, deviation and number of values; "" without any, no deviation of a single one.

    The deviation has one digit, two if the first is 1, and the mean as many decimals.
    """
    if mean is None:
        return ""
    if std is None or not math.isfinite(std):
        return f"{mean:.6g} ({count})"
    if not std:
        return f"{mean:.6g} {PLUS_MINUS} 0 ({count})"
    rounded = f"{std:.0e}"
    if rounded.startswith("1"):
        rounded = f"{std:.1e}"
    digits, exponent = rounded.split("e")
    decimals = len(digits.partition(".")[2]) - int(exponent)
    greatest = max(abs(mean), float(rounded))
    magnitude = math.floor(math.log10(greatest))
    if abs(magnitude) > _SCALE_EXPONENT_MAX:
        return f"{mean:.6g} {PLUS_MINUS} {float(rounded):.2g} ({count})"
    if _EXPONENT_MIN <= magnitude < _EXPONENT_MAX:
        return f"{_fix(mean, decimals)} {PLUS_MINUS} {_fix(float(rounded), decimals)} ({count})"
    scale = 10.0**magnitude
    pair = f"{_fix(mean / scale, decimals + magnitude)} {PLUS_MINUS} "
    pair += _fix(float(rounded) / scale, decimals + magnitude)
    return f"({pair})e{magnitude:+03d} ({count})"


def _fix(number: float, decimals: int) -> str:
    return f"{round(number, decimals) + 0.0:.{max(decimals, 0)}f}"  # and not -0.0
