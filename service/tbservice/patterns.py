"""Users' regular expressions, matched by RE2 in a bounded number of steps.

With Python's `re`, a pattern can be made that runs for hours; RE2 matches in linear time. It has no
look-around and no back-references: a pattern with these is invalid.
"""

from __future__ import annotations

from typing import Any, Final

import re2

from tbservice import limits
from tbservice.errors import TooLarge

PATTERN_CHARS_MAX: Final = 10_000
"""Characters of a pattern: as many as a tag may have, because a pattern may be an escaped tag."""

_PROGRAM_BYTES_MAX: Final = 1024 * 1024
"""Bytes that RE2 may use for a compiled pattern; the module `re2` caches up to 128 of them."""


def compile_pattern(pattern: str) -> Any:
    """Return the pattern compiled by RE2; raises ValueError if it is invalid or too long."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise ValueError(f"a regular expression may have at most {PATTERN_CHARS_MAX} characters")
    options = re2.Options()
    options.max_mem = _PROGRAM_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"not a valid RE2 regular expression: {text}") from error


class PatternSearches:
    """Matches patterns with texts, up to `PATTERN_STEPS_MAX` steps for one request.

    RE2 takes linear time, with up to as many steps for each character as the compiled pattern has
    instructions: without the limit, an hour for a text of 4 MiB.
    """

    def __init__(self) -> None:
        self._steps = 0

    def has_match(self, pattern: Any, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text. Raises TooLarge."""
        self._count(pattern, text)
        return pattern.search(text) is not None

    def has_match_at_start(self, pattern: Any, text: str) -> bool:
        """Return whether the pattern matches the beginning of the text. Raises TooLarge."""
        self._count(pattern, text)
        return pattern.match(text) is not None

    def has_full_match(self, pattern: Any, text: str) -> bool:
        """Return whether the pattern matches the complete text. Raises TooLarge."""
        self._count(pattern, text)
        return pattern.fullmatch(text) is not None

    def _count(self, pattern: Any, text: str) -> None:
        self._steps += pattern.programsize * len(text)
        if self._steps > limits.PATTERN_STEPS_MAX:
            limit = f"the limit of {limits.PATTERN_STEPS_MAX} (pattern_steps_max)"
            raise TooLarge(f"regular expressions would take {self._steps} steps, over {limit}")
