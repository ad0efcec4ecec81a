"""The summary of an upload: its last lines, its JSON event, and whether it was complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tbupload.console.texts import PROBLEMS_SHOWN, counted, size_text
from tbupload.upload.repeated_steps import INEXACT, ONE_STEP_SERIES, SUPERSEDED
from tbupload.upload.skipped_files import SkippedFiles, skipped_lines


@dataclass
class Summary:
    """Points this upload sent and the server committed, and everything that is missing.

    Attributes:
        scalars: Scalar points committed.
        tensors: Tensor points committed.
        blobs: Blobs committed, of points of blob sequences.
        bytes: Bytes of event files.
        runs: Runs with data sent.
        series: Series with data sent.
        empty_values: Values without content; nothing is lost with them.
        repeated: The counts of `repeated_steps`.
        hparams_runs: Runs whose hyperparameters `--hparams` set.
        files: Event files that are there, and that the filters select.
        file_bytes: Their size.
        skipped: Points and files not sent by reason, now or in an earlier upload of these streams.
        skipped_files: Skipped points of known files, by path.
        problems: Sentences about files and directories.
        notes: Sentences worth knowing about which nothing is lost.
        is_growing: Whether files were still changing at the last look: their latest data is not
            among what was sent.
    """

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    empty_values: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    hparams_runs: int = 0
    files: int = 0
    file_bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    skipped_files: SkippedFiles = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_growing: bool = False

    @property
    def is_complete(self) -> bool:
        """Return whether everything the files had at the last look is on the server."""
        return not self.skipped and not self.problems

    @property
    def is_empty(self) -> bool:
        """Return whether this upload sent nothing."""
        points = self.scalars + self.tensors + self.blobs + self.empty_values
        return not (points or self.bytes or self.hparams_runs)

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the "done" event of `--json`."""
        return {
            "scalars": self.scalars,
            "tensors": self.tensors,
            "blobs": self.blobs,
            "bytes": self.bytes,
            "runs": self.runs,
            "series": self.series,
            "empty_values": self.empty_values,
            "superseded": self.repeated[SUPERSEDED],
            "hparams_runs": self.hparams_runs,
            "files": self.files,
            "file_bytes": self.file_bytes,
            "skipped": dict(sorted(self.skipped.items())),
            "skipped_files": self.skipped_files,
            "problems": self.problems,
            "growing": self.is_growing,
        }

    def lines(
        self, verb: str, has_reported: Callable[[str], bool] = lambda _sentence: False
    ) -> Iterator[str]:
        """Yield the lines to print.

        Args:
            verb: Verb for the points: "sent", or "would send".
            has_reported: Whether a problem was printed before; it is then counted only.
        """
        yield f"{verb} {self._sent_text()}"
        if self.hparams_runs:
            verb_of_hparams = "set" if verb == "sent" else "would set"
            yield f"  {verb_of_hparams} hyperparameters of {counted(self.hparams_runs, 'run')}"
        yield from self._repeated_lines()
        yield from empty_values_lines(self.empty_values)
        yield from _first(self.notes, "files like that")
        if self.is_growing:
            yield "  files were still growing: what is written from now on is not sent"
        if self.is_complete:
            return

        yield "NOT everything was sent:" if verb == "sent" else "NOT everything would be sent:"
        yield from skipped_lines("skipped", self.skipped, self.skipped_files)
        unreported = [f"  {problem}" for problem in self.problems if not has_reported(problem)]
        yield from _first(unreported, "problems; --json names them all")
        if count := len(self.problems) - len(unreported):
            yield f"  {count:,} {'problem was' if count == 1 else 'problems were'} named above"

    def _sent_text(self) -> str:
        """Return what was sent, without counts that are 0."""
        counts = ((self.scalars, "scalar"), (self.tensors, "tensor"), (self.blobs, "blob"))
        text = ", ".join(counted(count, noun) for count, noun in counts if count) or "no points"
        if self.series:
            text += f" of {counted(self.series, 'series')} in {counted(self.runs, 'run')}"
        return f"{text} ({size_text(self.bytes)} of event files)" if self.bytes else text

    def _repeated_lines(self) -> Iterator[str]:
        count, series = self.repeated[SUPERSEDED], self.repeated[ONE_STEP_SERIES]
        if count:
            least = "at least " if self.repeated[INEXACT] else ""
            yield (
                f"  {least}{count:,} superseded: a step keeps one point, "
                "and their file has more of the same step"
            )
        if series:
            yield (
                f"  {counted(series, 'series')} with all points at one step: "
                "log with a step (global_step=...) to keep them"
            )


def repeated_counts(counts: Counter[str]) -> Counter[str]:
    """Return the counts of `repeated_steps` among these."""
    return Counter({name: counts[name] for name in (SUPERSEDED, INEXACT, ONE_STEP_SERIES)})


def empty_values_lines(count: int) -> Iterator[str]:
    """Yield a sentence about values without content, if there are any."""
    if count:
        yield (f"  ignored {counted(count, 'empty value')}: tags without content, nothing is lost")


def _first(sentences: list[str], rest: str) -> Iterator[str]:
    yield from sentences[:PROBLEMS_SHOWN]
    if len(sentences) > PROBLEMS_SHOWN:
        yield f"  and {len(sentences) - PROBLEMS_SHOWN:,} more {rest}"
