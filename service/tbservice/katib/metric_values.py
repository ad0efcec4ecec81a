"""Values of metrics, which are texts: which are numbers, as Go's `strconv.ParseFloat` says."""

from __future__ import annotations

import math
import re
from typing import Final

UNAVAILABLE: Final = "unavailable"
"""The value that collectors and the controller report if they did not find the objective metric."""

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)|nan", re.ASCII | re.IGNORECASE
)
"""Decimal numbers of Go. Python's `float` also accepts spaces, underscores and other digits."""


def parse_number(text: str) -> float | None:
    """Return the number that a value is; None for a text, and for a number beyond float64."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    is_overflow = math.isinf(number) and "n" not in text.lower()
    return None if is_overflow else number
