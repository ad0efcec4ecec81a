"""The attempts of an experiment's runs as one choice: attempt 1, 2 … of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tbservice.reading.attempts import RunAttempts


@dataclass(frozen=True, slots=True)
class AttemptChoice:
    """The runs that have several attempts, and the attempt in the page's address, None without."""

    runs: Sequence[RunAttempts] = ()
    chosen: int | None = None

    @property
    def count(self) -> int:
        """Return the attempts of the run with most of them."""
        return max((len(run.attempts) for run in self.runs), default=1)

    @property
    def shown(self) -> int:
        """Return the number of the attempt that the page shows."""
        return self.count if self.chosen is None else self.chosen

    @property
    def is_missing(self) -> bool:
        """Return whether no run has so many attempts."""
        return self.shown > self.count

    @property
    def up(self) -> str:
        """Return the address of the experiment's page relative to the page's own."""
        return "" if self.chosen is None else "../../"

    def address(self, number: int) -> str:
        """Return the address of an attempt's page relative to the page's own."""
        return f"{self.up or './'}{'' if number == self.count else f'attempt/{number}/'}"

    def describe(self, number: int) -> str:
        """Return what the page of an attempt shows, in a few words."""
        if number == self.count:
            return "the newest points of all runs"
        earlier = [run for run in self.runs if len(run.attempts) > number]
        if len(earlier) > 1:
            return f"{len(earlier):,} runs as they were before they restarted"
        ended = _moment(earlier[0].attempts[number].started_at)
        return f"{earlier[0].run[:100]} as it was before it restarted at {ended}"


def _moment(seconds: float) -> str:
    """Return a wall time as a date and a time; as its number if it is out of their range."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"
