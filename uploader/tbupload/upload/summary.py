"""What an upload did, for the last lines people read and the exit code programs read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tbupload.console.texts import PROBLEMS_SHOWN, size_text
from tbupload.upload.repeated_steps import INEXACT, ONE_STEP_SERIES, SUPERSEDED


@dataclass(slots=True)
class Summary:
    """Points this upload sent and the server committed, and everything that is missing.

    `skipped` counts by reason what was in the files and was not sent, now or in an earlier upload of these streams;
    `problems` are sentences about files and directories, `notes` what is worth knowing and no loss. `empty_values` are
    tags without content, of which nothing is lost, and `repeated` counts points that others of the same series, step
    and file replace, as `repeated_steps` says. `bytes` are of event files.
    """

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    empty_values: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether everything that was there is on the server."""
        return not self.skipped and not self.problems

    def as_json(self) -> dict[str, Any]:
        """The fields as docs/uploading.md has the "done" event has them, and the problems."""
        return {
            "scalars": self.scalars,
            "tensors": self.tensors,
            "blobs": self.blobs,
            "bytes": self.bytes,
            "runs": self.runs,
            "series": self.series,
            "empty_values": self.empty_values,
            "superseded": self.repeated[SUPERSEDED],
            "skipped": dict(sorted(self.skipped.items())),
            "problems": self.problems,
        }

    def lines(
        self, verb: str, has_reported: Callable[[str], bool] = lambda _sentence: False
    ) -> Iterator[str]:
        """Sentences for people; `verb` says what happened to the points, `has_said` which problems they have read."""
        yield (
            f"{verb} {self.scalars:,} scalars, {self.tensors:,} tensors, {self.blobs:,} blobs "
            f"of {self.series:,} series in {self.runs:,} runs ({size_text(self.bytes)} of event files)"
        )
        yield from self._repeated_lines()
        yield from empty_values_lines(self.empty_values)
        yield from _first(self.notes, "files like that")
        if self.is_complete:
            return
        yield "NOT everything was sent:" if verb == "sent" else "NOT everything would be sent:"
        for reason, count in sorted(self.skipped.items()):
            yield f"  skipped {count:,}: {reason}"
        unsaid = [f"  {problem}" for problem in self.problems if not has_reported(problem)]
        yield from _first(unsaid, "paths; --json names them all")
        if said := len(self.problems) - len(unsaid):
            yield f"  {said:,} {'path was' if said == 1 else 'paths were'} named above"

    def _repeated_lines(self) -> Iterator[str]:
        count, series = self.repeated[SUPERSEDED], self.repeated[ONE_STEP_SERIES]
        if count:
            least = "at least " if self.repeated[INEXACT] else ""
            yield f"  {least}{count:,} superseded: a step keeps one point, and their file has more of the same step"
        if series:
            yield f"  {series:,} series with all points at one step: log with a step (global_step=...) to keep them"


def repeated_counts(counts: Counter[str]) -> Counter[str]:
    """Those of the counts that `repeated_steps` makes."""
    return Counter({name: counts[name] for name in (SUPERSEDED, INEXACT, ONE_STEP_SERIES)})


def empty_values_lines(count: int) -> Iterator[str]:
    """A sentence about values without content, when there are any."""
    if count:
        yield f"  ignored {count:,} empty {'value' if count == 1 else 'values'}: tags without content, nothing is lost"


def _first(sentences: list[str], rest: str) -> Iterator[str]:
    yield from sentences[:PROBLEMS_SHOWN]
    if len(sentences) > PROBLEMS_SHOWN:
        yield f"  and {len(sentences) - PROBLEMS_SHOWN:,} more {rest}"
