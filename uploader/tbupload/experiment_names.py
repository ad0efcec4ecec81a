"""What the name of an experiment may not be."""

from __future__ import annotations

import unicodedata
from typing import Final

_FORBIDDEN: Final = frozenset(["Cc", "Zl", "Zp"])
"""Categories of Unicode: control characters, and separators of lines and paragraphs."""


def explain_name(name: str) -> str | None:
    """Return why a text cannot be the name of an experiment; None if it can."""
    for character in name:
        if unicodedata.category(character) in _FORBIDDEN:
            return f"a name is one line without control characters; it has {character!r}"
    return None
