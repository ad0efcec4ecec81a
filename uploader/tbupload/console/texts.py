"""Counts, sizes and lists as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROBLEMS_SHOWN: Final = 50
"""Paths named one by one on the terminal; `--json` has them all."""


def skipped_text(skipped: Mapping[str, int]) -> str:
    """What was left out so far, and why, in one line; nothing when nothing was."""
    if not skipped:
        return ""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
    return f"skipped so far: {reasons}"


def size_text(count: float) -> str:
    """A number of bytes as a person reads it."""
    number, unit = _sized(count, count)
    return f"{number} {unit}"


def amounts_text(done: int, total: int) -> str:
    """So many bytes of so many, in one unit."""
    done = min(done, total)
    number, unit = _sized(total, total)
    return f"{_sized(done, total)[0]} of {number} {unit}"


def count_text(count: float) -> str:
    """A number of points as a person reads it in passing: 999, 12.3k, 4.56M."""
    for size, letter, shown_from in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e4)):
        if count >= shown_from:
            return f"{count / size:,.{1 if letter == 'k' else 2}f}{letter}"
    return f"{count:,.0f}"


def _sized(count: float, of: float) -> tuple[str, str]:
    """The count in the unit that suits `of`."""
    for power, unit in enumerate(("bytes", "KiB", "MiB")):
        if of < 1024 ** (power + 1):
            return f"{count / 1024**power:,.{int(power > 0)}f}", unit
    return f"{count / 1024**3:,.1f}", "GiB"
