"""Bound how fast a maintenance command reads, and report how far it is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable


class Throttle:
    """Lets `bytes_per_second` pass on average, over all threads that share it."""

    def __init__(self, bytes_per_second: float | None) -> None:
        """None: no limit."""
        self._rate = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def spend(self, count: int) -> None:
        """Wait until `count` more bytes may be read."""
        if self._rate is None or count == 0:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            seconds = self._free_at - count / self._rate - now
        if seconds > 0:
            time.sleep(seconds)


class Progress:
    """Writes a line to stderr at most every `seconds`; nothing if it is None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._next_at = time.monotonic() + (seconds or 0)

    def report(self, describe: Callable[[], str]) -> None:
        """Write what `describe` returns, if it is time for a line."""
        if self._seconds is None:
            return
        with self._lock:
            now = time.monotonic()
            if now < self._next_at:
                return
            self._next_at = now + self._seconds
        self.write(describe())

    def write(self, line: str) -> None:
        """Write a line at once."""
        if self._seconds is not None:
            print(f"tbservice: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress of a command
