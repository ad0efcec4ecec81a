"""The durations of `--expires`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from tbupload.errors import UsageError

EXPIRY_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return `now` plus a duration such as "30d" (m, h, d or w). Raise UsageError if malformed."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text)
    if match is None:
        raise UsageError(
            f"--expires {text!r}: expected a number followed by m, h, d or w, for example 30d"
        )
    return now + timedelta(**{EXPIRY_UNITS[match[2]]: int(match[1])})


def expiry_field(text: str) -> str:
    """Return a duration from now as a time of the API (RFC 3339). Raise UsageError."""
    return parse_expiry(text, datetime.now(timezone.utc)).isoformat()


def experiment_expiry_field(text: str) -> str:
    """Return the same of an experiment, which may also say "never". Raise UsageError."""
    return text if text == "never" else expiry_field(text)
