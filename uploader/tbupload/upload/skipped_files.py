"""In which files something was skipped: for the lines and the JSON at the end of a command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tbupload.console.texts import counted

FILES_NAMED: Final = 3
"""Files named with each reason on the terminal; `--json` has them all."""

SkippedFiles = Mapping[str, Mapping[str, int]]
"""Counts by reason, by the path of the file."""


def skipped_lines(verb: str, skipped: Mapping[str, int], files: SkippedFiles) -> Iterator[str]:
    """Yield a line per reason, with the files that have most of it.

    Args:
        verb: Reason why the values were skipped.
        skipped: All counts by reason.
        files: Skipped values of known files.
    """
    for reason, count in sorted(skipped.items()):
        yield f"  {verb} {count:,}: {reason}{_names_text(reason, files)}"


def add_skipped(files: dict[str, dict[str, int]], path: str, counts: Mapping[str, int]) -> None:
    """Add the counts of one file, if there are any."""
    for reason, count in counts.items():
        if count:
            reasons = files.setdefault(path, {})
            reasons[reason] = reasons.get(reason, 0) + count


def _names_text(reason: str, files: SkippedFiles) -> str:
    counts = {path: reasons[reason] for path, reasons in files.items() if reason in reasons}
    if not counts:
        return ""
    named = sorted(counts, key=lambda path: (-counts[path], path))[:FILES_NAMED]
    more = len(counts) - len(named)
    others = f" and {counted(more, 'more file')}" if more else ""
    return f" (in {', '.join(named)}{others})"
