"""Patterns that the complete names of runs and tags must match: both ways of matching agree."""

from __future__ import annotations

import pytest

from tbservice import patterns
from tbservice.errors import TooLarge
from tbservice.patterns import PatternSearches

NAMES = ["", "a", "ab", "b\na", "loss", "Loss", "train/loss", "é→", "x" * 1_000, "(", "."]
PATTERNS = [
    "",
    "a",
    "a|b",
    "a.*",
    ".*a",
    "(?s).*a",
    "(?i)loss",
    "^loss$",
    ".*/loss",
    r"\(",
    "é.",
    ".",
    "(x?){900}",
    "(?:loss|" + "|".join(f"tag{number}" for number in range(400)) + ")",
]


def matching(pattern):
    listed = PatternSearches().list_full_matches(pattern, list(enumerate(NAMES)))
    return [NAMES[index] for index in listed]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern[:20])
def test_both_ways_of_matching_agree(monkeypatch, pattern):
    by_limit = {}
    for instructions in (0, 1_000):
        monkeypatch.setattr(patterns, "_SET_PROGRAM_INSTRUCTIONS_MAX", instructions)
        by_limit[instructions] = matching(pattern)
    assert by_limit[0] == by_limit[1_000]


def test_pattern_matches_complete_name_only():
    assert matching("loss") == ["loss"]
    assert matching("a|b") == ["a"]
    assert matching(".*") == [name for name in NAMES if "\n" not in name]
    assert matching("(?s).*") == NAMES


def test_matching_has_limit_of_steps(monkeypatch):
    monkeypatch.setattr("tbservice.patterns.PATTERN_STEPS_MAX", 100)
    with pytest.raises(TooLarge, match="pattern_steps_max"):
        matching(".*")
