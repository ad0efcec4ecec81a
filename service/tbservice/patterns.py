"""Users' regular expressions, matched by RE2 in a bounded number of steps.

With Python's `re`, a pattern can be made that runs for hours; RE2 matches in linear time. It has no
look-around and no back-references: a pattern with these is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import re2

from tbservice.errors import TooLarge

PATTERN_STEPS_MAX: Final = 2_000_000_000
"""Steps of RE2 for one request: instructions of a compiled expression, times characters of texts.

One takes up to 8 ns, but 0.5 ns or less with all expressions that are not made to be slow.
"""

PATTERN_CHARS_MAX: Final = 10_000
"""Characters of a pattern: as many as a tag may have, because a pattern may be an escaped tag."""

_PROGRAM_BYTES_MAX: Final = 1024 * 1024
"""Bytes that RE2 may use for a compiled pattern; the module `re2` caches up to 128 of them."""

_SET_PROGRAM_INSTRUCTIONS_MAX: Final = 1_000
"""Instructions of a compiled pattern up to which a set of patterns is used."""


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


def match_any(names: Iterable[str]) -> str:
    """Return the pattern that only these names match completely; without any, the empty one."""
    return "|".join(re2.escape(name) for name in names)


def _compile_full_match(pattern: str, compiled: Any) -> Callable[[str], Any]:
    """Return a function that tells whether a complete text matches.

    A set of one pattern makes no objects for each match: 5 times as fast, with 100,000 names. But
    it fails where the pattern's automaton does not fit into its memory.
    """
    if compiled.programsize > _SET_PROGRAM_INSTRUCTIONS_MAX:
        return cast("Callable[[str], Any]", compiled.fullmatch)
    options = re2.Options()
    options.log_errors = False
    single = re2.Set.FullMatchSet(options)
    single.Add(pattern)
    single.Compile()
    return cast("Callable[[str], Any]", single.Match)


class PatternSearches:
    """Matches patterns with texts, up to `PATTERN_STEPS_MAX` steps for one request.

    RE2 takes linear time, with up to as many steps for each character as the compiled pattern has
    instructions: without the limit, an hour for a text of 4 MiB.
    """

    def __init__(self) -> None:
        self._steps = 0

    def count(self, pattern: str, chars: int) -> None:
        """Count texts that another binding of RE2 matches with a valid pattern. Raises TooLarge."""
        self._count(compile_pattern(pattern), chars)

    def has_match(self, pattern: Any, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text. Raises TooLarge."""
        self._count(pattern, len(text))
        return pattern.search(text) is not None

    def has_match_at_start(self, pattern: Any, text: str) -> bool:
        """Return whether the pattern matches the beginning of the text. Raises TooLarge."""
        self._count(pattern, len(text))
        return pattern.match(text) is not None

    def find_group(self, pattern: Any, text: str) -> str | None:
        """Return what the only group of the pattern matches; all that matches without a group.

        None if the pattern matches nowhere, or without its group. Raises TooLarge.
        """
        self._count(pattern, len(text))
        match = pattern.search(text)
        return None if match is None else match.group(min(pattern.groups, 1))

    def list_full_matches(self, pattern: str, names: Sequence[tuple[int, str]]) -> list[int]:
        """Return the ids of those (id, name) whose complete name the pattern matches.

        The pattern must be valid. Raises TooLarge.
        """
        compiled = compile_pattern(pattern)
        self._count(compiled, sum(len(name) for _, name in names))
        has_match = _compile_full_match(pattern, compiled)
        return [id_ for id_, name in names if has_match(name)]

    def _count(self, pattern: Any, chars: int) -> None:
        self._steps += pattern.programsize * chars
        if self._steps > PATTERN_STEPS_MAX:
            limit = f"the limit of {PATTERN_STEPS_MAX} (pattern_steps_max)"
            raise TooLarge(f"regular expressions would take {self._steps} steps, over {limit}")
