"""Stopping in time: hearing of it before all clients have gone, which uvicorn waits for, and ending whatever runs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOP_SECONDS: Final = 3
"""Seconds that requests under way are given when the server stops; what is cut off can be sent again."""

EXIT_SECONDS_MAX: Final = 8
"""Seconds after which a process that was told to stop ends, whatever its threads are at."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


class ForcedExit:
    """Ends the process some seconds after it was told to stop: Python cannot end a thread that computes.

    `before` is what must be done even then; it runs in a thread of its own.
    """

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start to count; again, it changes nothing."""
        if self._timer is None:
            self._timer = threading.Timer(EXIT_SECONDS_MAX, self._exit)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """Leave the rest of the stop its time."""
        if self._timer is not None:
            self._timer.cancel()

    def _exit(self) -> None:
        _log.warning(
            "stopped with work under way that took longer than %s seconds", EXIT_SECONDS_MAX
        )
        try:
            self.before()
        finally:
            os._exit(0)


@contextmanager
def on_shutdown_signal(stop: Callable[[], None]) -> Iterator[None]:
    """While the block lasts, `stop` is called in the running event loop at a signal that ends the process.

    What handles the signal otherwise is called, too. In a thread that is not the main one, signals are another's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
