"""Rules for the values of metrics, which are texts: which are numbers, and which represents a log.

Katib reads numbers with Go's `strconv.ParseFloat`, and reduces a log in
`pkg/controller.v1beta1/trial/trial_controller_util.go` (`getMetrics`).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Sequence
from typing import Final

UNAVAILABLE: Final = "unavailable"
"""The value that collectors and the controller report if they did not find the objective metric."""

_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?)|nan", re.ASCII | re.IGNORECASE
)
"""Decimal numbers of Go. Python's `float` also accepts spaces, underscores and other digits."""


class Strategy(enum.StrEnum):
    """Which value represents a log."""

    MIN = "min"
    MAX = "max"
    LATEST = "latest"


def parse_number(text: str) -> float | None:
    """Return the number that a value is; None for a text, and for a number beyond float64."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    is_overflow = math.isinf(number) and "n" not in text.lower()
    return None if is_overflow else number


def reduce_log(logs: Sequence[tuple[int, str]], strategy: Strategy) -> str | None:
    """Return the value of a log as it was reported; None for an empty log.

    The latest has the greatest time, and of equal ones the later place. The least and the greatest
    are those of numbers, without NaN; if there is none, the latest represents the log.

    Args:
        logs: Microseconds and value, in the order of the log.
        strategy: Which value.
    """
    if strategy is not Strategy.LATEST:
        numbers = [(parse_number(value), value) for _, value in logs]
        known = [
            (number, value)
            for number, value in numbers
            if number is not None and not math.isnan(number)
        ]
        if known:
            choose = min if strategy is Strategy.MIN else max
            return choose(known, key=lambda pair: pair[0])[1]
    latest = max(enumerate(logs), key=lambda item: (item[1][0], item[0]), default=None)
    return None if latest is None else latest[1][1]
