"""Counts, sizes, times and lists as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

PROBLEMS_SHOWN: Final = 50
"""Paths named on the terminal, at most; `--json` has them all."""


NAMES_SHOWN: Final = 10
"""Runs named in a sentence, at most."""


def skipped_text(skipped: Mapping[str, int]) -> str:
    """Return what was skipped so far by reason, in one line; "" if nothing was."""
    if not skipped:
        return ""
    reasons = ", ".join(f"{reason} ({count:,})" for reason, count in sorted(skipped.items()))
    return f"skipped so far: {reasons}"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: 1 run, 1,234 runs, 2 series."""
    is_same = count == 1 or noun.endswith("series")
    return f"{count:,} {noun}" if is_same else f"{count:,} {noun}s"


def size_text(count: float) -> str:
    """Return a number of bytes in a suitable unit."""
    number, unit = _scale(count, count)
    return "1 byte" if (number, unit) == ("1", "bytes") else f"{number} {unit}"


def amounts_text(done: int, total: int) -> str:
    """Return "DONE of TOTAL" in bytes, in the unit of the total."""
    done = min(done, total)
    number, unit = _scale(total, total)
    return f"{_scale(done, total)[0]} of {number} {unit}"


def count_text(count: float) -> str:
    """Return a number of points, rounded: 9,999, 12.3k, 4.56M."""
    for size, letter, shown_from in ((1e9, "G", 1e9), (1e6, "M", 1e6), (1e3, "k", 1e4)):
        if count >= shown_from:
            return f"{count / size:,.{1 if letter == 'k' else 2}f}{letter}"
    return f"{count:,.0f}"


def wall_time_text(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a wall time (seconds since the epoch) as local time, or as it is if it is none."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):  # of no year from 1 to 9999
        return f"{seconds:g}"


def runs_text(runs: Sequence[str]) -> str:
    """Return the names of runs in quotes, the first ones of many."""
    names = ", ".join(map(repr, runs[:NAMES_SHOWN]))
    more = f" and {len(runs) - NAMES_SHOWN:,} more" if len(runs) > NAMES_SHOWN else ""
    return f"{'run' if len(runs) == 1 else 'runs'} {names}{more}"


def _scale(count: float, of: float) -> tuple[str, str]:
    """Return the count, and its unit, in the unit suitable for `of`."""
    for power, unit in enumerate(("bytes", "KiB", "MiB")):
        if of < 1024 ** (power + 1):
            return f"{count / 1024**power:,.{int(power > 0)}f}", unit
    return f"{count / 1024**3:,.1f}", "GiB"
