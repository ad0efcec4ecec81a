"""Whether another server is worth trying: an absent one is to delay one caller at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Reachability:
    """Remembers that a server failed; then lets one caller try it again after some seconds.

    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with a server that is worth trying; `clock` returns seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._resting_until: float | None = None
        self._rest_seconds = 0.0

    def may_try(self) -> bool:
        """Return whether to try the server: the others wait for what this caller finds."""
        if self._resting_until is None:
            return True
        with self._lock:
            if self._resting_until is None:
                return True
            if self._clock() < self._resting_until:
                return False
            self._resting_until = self._clock() + self._rest_seconds
            return True

    def note_failure(self, rest_seconds: float) -> None:
        """Try it again after these seconds."""
        with self._lock:
            self._rest_seconds = rest_seconds
            self._resting_until = self._clock() + rest_seconds

    def note_success(self) -> None:
        """Let everybody try it."""
        if self._resting_until is not None:
            with self._lock:
                self._resting_until = None
