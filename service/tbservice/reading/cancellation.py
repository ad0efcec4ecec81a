"""Ends the statement that is run for a request whose client has left, and lets none follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tbservice.errors import Unavailable


class Cancellation:
    """Whether somebody still waits for what is read, and how to end a read under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._cancel_read: Callable[[], None] | None = None

    def cancel(self) -> None:
        """End the read under way, from any thread; those that follow are refused."""
        with self._lock:  # until then the connection cannot become another request's
            self._is_cancelled = True
            if self._cancel_read is not None:
                self._cancel_read()

    @contextmanager
    def cancellable(self, cancel_read: Callable[[], None]) -> Iterator[None]:
        """Have `cancel` call this while the block lasts. Raises Unavailable when it was called before."""
        self._register(cancel_read)
        try:
            yield
        finally:
            with self._lock:
                self._cancel_read = None

    def check(self) -> None:
        """Raises Unavailable when nobody waits any more."""
        with self._lock:
            self._check()

    def _register(self, cancel_read: Callable[[], None]) -> None:
        with self._lock:
            self._check()
            self._cancel_read = cancel_read

    def _check(self) -> None:
        if self._is_cancelled:
            raise Unavailable("the client has left")
