"""How many requests are under way at once: half as many when the server says that they are too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SUCCESSES_PER_SLOT: Final = 20
"""Good answers after which one more request may be under way again."""


class RequestSlots:
    """Room for up to `count` requests at once; used by several threads."""

    def __init__(self, count: int) -> None:
        self._count = self._limit = count
        self._taken = self._successes = 0
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for room, and keep it while the block lasts."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken < self._limit)
            self._taken += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken -= 1
                self._changed.notify_all()

    def halve(self) -> None:
        """The server has refused one as too many (HTTP 429)."""
        with self._changed:
            self._limit = max(1, self._limit // 2)
            self._successes = 0

    def succeed(self) -> None:
        """The server has answered one."""
        with self._changed:
            if self._limit == self._count:
                return
            self._successes += 1
            if self._successes >= SUCCESSES_PER_SLOT:
                self._limit, self._successes = self._limit + 1, 0
                self._changed.notify_all()
