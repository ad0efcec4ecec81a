"""Numbers and names as callers send them: every field of Katib's API that varies is a string."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE | re.ASCII
)
"""Numbers as Katib's Go parts read them: no spaces, no underscores, unlike Python's `float`."""

_NUMBER_CHARS_MAX: Final = 400
"""Characters of the longest number that is read; the longest float64 without exponent has 326."""

_SHOWN_CHARS_MAX: Final = 100
"""Characters of a name or value in a message."""


def parse_number(text: str) -> float | None:
    """Return a number, which may be infinite or NaN; None if the text is none."""
    if len(text) > _NUMBER_CHARS_MAX or not _NUMBER.fullmatch(text):
        return None
    return float(text)


def shown(text: str) -> str:
    """Return a text from a caller for a message: unchanged unless it is long."""
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "…"
