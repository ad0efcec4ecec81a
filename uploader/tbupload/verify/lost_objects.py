"""Lost objects of a series: its points are stored, but the bytes of some blobs are not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tbupload.console.texts import counted

STEPS_SHOWN: Final = 5

_SENTENCES: Final = {
    "missing": "missing from the object store",
    "wrong_size": "of a wrong size in the object store",
    "unreadable": "that the object store cannot read",
    "damaged": "with damaged bytes in the object store",
}
"""Text for each kind of problem that the server reports."""


@dataclass
class LostObjects:
    """The lost objects of one series; counts and steps are by problem.

    `digests` are the objects' SHA-256 digests, in hexadecimal.
    """

    counts: Counter[str] = field(default_factory=Counter)
    digests: set[str] = field(default_factory=set)
    _steps: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, fault: dict[str, Any]) -> None:
        """Add a fault of a response of the server: see `Client.check_objects`."""
        problem = str(fault["problem"])
        self.counts[problem] += 1
        self.digests.add(str(fault["sha256"]))
        steps = self._steps[problem]
        steps.append(int(fault["first_step"]))
        if len(steps) > 2 * STEPS_SHOWN:
            self._steps[problem] = sorted(steps)[:STEPS_SHOWN]

    def as_json(self) -> dict[str, Any]:
        """Return the number of objects and the first steps that refer to them, by problem."""
        return {
            problem: {"objects": count, "first_steps": self._first_steps(problem)}
            for problem, count in sorted(self.counts.items())
        }

    def sentences(self) -> Iterator[str]:
        """Yield a phrase for people per problem."""
        for problem, count in sorted(self.counts.items()):
            steps = self._first_steps(problem)
            more = ", …" if count > len(steps) else ""
            label = "step" if count == 1 else "steps"
            sentence = _SENTENCES.get(problem, problem)
            named = f"{label} {', '.join(map(str, steps))}{more}"
            yield f"{counted(count, 'blob')} {sentence} ({named})"

    def _first_steps(self, problem: str) -> list[int]:
        return sorted(self._steps[problem])[:STEPS_SHOWN]
