"""The durations of `--expires`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from tbupload.errors import UsageError

EXPIRY_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

EXPIRY_DAYS_MAX: Final = 36_500
"""Days that a server allows."""


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return `now` plus a duration such as "30d" (m, h, d or w). Raise UsageError."""
    match = re.fullmatch(r"([1-9][0-9]{0,7})([mhdw])", text)
    if match is None:
        raise UsageError(
            f"--expires {text[:50]!r}: expected a number followed by m, h, d or w, for example 30d"
        )
    duration = timedelta(**{EXPIRY_UNITS[match[2]]: int(match[1])})
    if duration.days > EXPIRY_DAYS_MAX:
        raise UsageError(f"--expires {text}: at most {EXPIRY_DAYS_MAX:,} days")
    return now + duration


def expiry_field(text: str) -> str:
    """Return a duration from now as a time of the API (RFC 3339). Raise UsageError."""
    return parse_expiry(text, datetime.now(timezone.utc)).isoformat()


def experiment_expiry_field(text: str) -> str:
    """Return the same of an experiment, which may also say "never". Raise UsageError."""
    return text if text == "never" else expiry_field(text)
