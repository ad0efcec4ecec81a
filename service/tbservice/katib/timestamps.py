"""Read and write timestamps as Katib's server does: RFC 3339 as Go reads it, to the microsecond.

`datetime` does not fit: it has no year 0, no fraction of nine digits, and no offset of 24 hours.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import Final

_PATTERN: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
"""Times that Go's `time.Parse(time.RFC3339, …)` accepts: hours of one digit and a comma, too."""

_EPOCH_DAYS: Final = date(1970, 1, 1).toordinal()
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""

_CYCLE_YEARS: Final = 400
_DAY: Final = 86_400_000_000
"""Microseconds."""

_FIRST: Final = (1 - 366 - _EPOCH_DAYS) * _DAY
_END: Final = (date(9999, 12, 31).toordinal() + 1 - _EPOCH_DAYS) * _DAY
"""The years 0 to 9999 in UTC, which have four digits: others could not be read again."""

ZERO_TIME: Final = (1 - _EPOCH_DAYS) * _DAY
"""Go's zero time, 0001-01-01T00:00:00Z: what Katib's collectors send if a line has no time."""


def parse_timestamp(text: str) -> int:
    """Return microseconds since the epoch, smaller fractions cut off.

    Raises ValueError if Go would not read it, or if it is not in the years 0 to 9999 in UTC.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError("it is not in the form of RFC 3339, as in 2026-01-31T12:00:00.5Z")
    day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    hours, minutes, seconds = int(hour), int(minute), int(second)
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004 - a clock's
        raise ValueError("its hour, minute or second is out of range")

    time = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000
    if fraction:
        time += int(fraction[:6].ljust(6, "0"))
    if sign:
        if int(offset_hours) > 24 or int(offset_minutes) > 60:  # noqa: PLR2004 - as Go checks it
            raise ValueError("its offset is out of range")
        offset = (int(offset_hours) * 60 + int(offset_minutes)) * 60_000_000
        time += offset if sign == "-" else -offset
    time += _count_days(day) * _DAY
    if not _FIRST <= time < _END:
        raise ValueError("in UTC it is not in the years 0 to 9999")
    return time


def format_timestamp(time: int) -> str:
    """Return microseconds since the epoch as Go does: in UTC, without zeros after the fraction."""
    days, rest = divmod(time, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{_format_day(days)}T{clock}{digits}Z"


@lru_cache(maxsize=64)
def _count_days(text: str) -> int:
    """Return days since the epoch. Raises ValueError for a day that does not exist."""
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    if year == 0:
        return date(_CYCLE_YEARS, month, day).toordinal() - _CYCLE_DAYS - _EPOCH_DAYS
    return date(year, month, day).toordinal() - _EPOCH_DAYS


@lru_cache(maxsize=64)
def _format_day(days: int) -> str:
    ordinal = days + _EPOCH_DAYS
    if ordinal >= 1:
        return date.fromordinal(ordinal).isoformat()
    day = date.fromordinal(ordinal + _CYCLE_DAYS)
    return f"0000-{day.month:02}-{day.day:02}"
