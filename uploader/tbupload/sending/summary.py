"""What an upload did, for the last lines people read and the exit code programs read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

PROBLEMS_SHOWN: Final = 50
"""Paths named one by one on the terminal; `--json` has them all."""


@dataclass(slots=True)
class Summary:
    """Points this upload sent and the server committed, and everything that is missing.

    `skipped` counts by reason what was in the files and was not sent, now or in an earlier upload of these streams;
    `problems` are sentences about files and directories, `notes` what is worth knowing and no loss. `bytes` are of
    event files.
    """

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was there is on the server."""
        return not self.skipped and not self.problems

    def as_json(self) -> dict[str, Any]:
        """The fields as api.md's "done" event has them, and the problems."""
        return {
            "scalars": self.scalars,
            "tensors": self.tensors,
            "blobs": self.blobs,
            "bytes": self.bytes,
            "runs": self.runs,
            "series": self.series,
            "skipped": dict(sorted(self.skipped.items())),
            "problems": self.problems,
        }

    def lines(self, verb: str) -> Iterator[str]:
        """Sentences for people; `verb` says what happened to the points."""
        yield (
            f"{verb} {self.scalars:,} scalars, {self.tensors:,} tensors, {self.blobs:,} blobs "
            f"of {self.series:,} series in {self.runs:,} runs ({size_text(self.bytes)} of event files)"
        )
        yield from self.notes
        if self.is_complete:
            return
        yield "NOT everything was sent:"
        for reason, count in sorted(self.skipped.items()):
            yield f"  skipped {count:,}: {reason}"
        for problem in self.problems[:PROBLEMS_SHOWN]:
            yield f"  {problem}"
        if len(self.problems) > PROBLEMS_SHOWN:
            yield f"  and {len(self.problems) - PROBLEMS_SHOWN:,} more paths; --json names them all"


def size_text(count: float) -> str:
    """A number of bytes as a person reads it."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:  # noqa: PLR2004  # the size of the next unit
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
