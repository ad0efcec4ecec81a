"""A clock that a test moves."""

from __future__ import annotations


class Clock:
    """Seconds that a test sets, in the place of `time.monotonic`; each look takes `step`."""

    def __init__(self, now: float = 0.0, step: float = 0.0) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now
