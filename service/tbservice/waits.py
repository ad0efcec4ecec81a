"""How many requests wait for something outside of the process, where they use no processor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final


class Waits:
    """The number of threads that wait. Thread-safe."""

    def __init__(self) -> None:
        """Start from zero."""
        self.count = 0
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        """Count that more or fewer threads wait."""
        with self._lock:
            self.count += amount


_current: Final[ContextVar[Waits | None]] = ContextVar("tbhub_waits", default=None)


def count_in(waits: Waits) -> None:
    """Count the waits of this task, and of the tasks and threads that it starts."""
    _current.set(waits)


@contextmanager
def waiting() -> Iterator[None]:
    """Count this thread as waiting during the block, if it works for a request."""
    waits = _current.get()
    if waits is None:
        yield
        return
    waits.add(1)
    try:
        yield
    finally:
        waits.add(-1)
