"""A limit of concurrent requests that is halved when the server asks for fewer (HTTP 429)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SUCCESSES_PER_SLOT: Final = 20
"""Successful answers after which the limit is raised by one."""


class RequestSlots:
    """Slots for up to `count` concurrent requests of several threads.

    The limit follows additive increase and multiplicative decrease, as in TCP (RFC 5681): callers
    that share a server converge to fair shares of it.
    """

    def __init__(self, count: int) -> None:
        self._count = self._limit = count
        self._taken = self._successes = 0
        self._changed = threading.Condition()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for a slot, and occupy it for the block."""
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
        """Halve the limit, to one at least: the server has answered 429."""
        with self._changed:
            self._limit = max(1, self._limit // 2)
            self._successes = 0

    def succeed(self) -> None:
        """Count a successful answer, and raise the limit again after SUCCESSES_PER_SLOT of them."""
        with self._changed:
            if self._limit == self._count:
                return
            self._successes += 1
            if self._successes >= SUCCESSES_PER_SLOT:
                self._limit, self._successes = self._limit + 1, 0
                self._changed.notify_all()
