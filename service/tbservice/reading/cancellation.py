"""Cancellation of database reads for a request whose client has disconnected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tbservice.errors import Unavailable


class Cancellation:
    """Cancels the current read of a request and refuses further ones. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._cancel_read: Callable[[], None] | None = None

    def cancel(self) -> None:
        """Cancel the current read, from any thread; later reads are refused. Idempotent."""
        # Under the lock, the read cannot end and return its connection to the pool: cancelling it
        # then would hit another request's statement.
        with self._lock:
            self._is_cancelled = True
            if self._cancel_read is not None:
                self._cancel_read()

    @contextmanager
    def cancellable(self, cancel_read: Callable[[], None]) -> Iterator[None]:
        """Let `cancel` call this function during the block.

        Raises Unavailable when `cancel` was called before.
        """
        self._register(cancel_read)
        try:
            yield
        finally:
            with self._lock:
                self._cancel_read = None

    def check(self) -> None:
        """Raise Unavailable when the request was cancelled."""
        with self._lock:
            self._check()

    def _register(self, cancel_read: Callable[[], None]) -> None:
        with self._lock:
            self._check()
            self._cancel_read = cancel_read

    def _check(self) -> None:
        if self._is_cancelled:
            raise Unavailable("the client has disconnected")
