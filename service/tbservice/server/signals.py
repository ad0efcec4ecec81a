"""Stop in time after a signal.

Uvicorn runs shutdown handlers only after all requests have ended. These functions act at the
signal itself, and end a process whose threads do not stop.
"""

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
"""Seconds that requests in progress may take at a stop; cancelled ones can be repeated."""

EXIT_SECONDS_MAX: Final = 8
"""Seconds from the stop signal to a forced exit of the process."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


class ForcedExit:
    """A timer that exits the process some time after the stop signal.

    Python cannot end a thread that computes. `before` is called first, in the timer's thread.
    """

    def __init__(self) -> None:
        self.before: Callable[[], object] = lambda: None
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the timer. Idempotent."""
        if self._timer is None:
            self._timer = threading.Timer(EXIT_SECONDS_MAX, self._exit)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        """Cancel the timer: the rest of the stop may take longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _exit(self) -> None:
        _log.warning(
            "forced exit: work in progress did not end within %s seconds", EXIT_SECONDS_MAX
        )
        try:
            self.before()
        finally:
            os._exit(0)


@contextmanager
def on_shutdown_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` in the running event loop at a signal that ends the process, during the block.

    The previous handler of the signal is called too. Does nothing outside of the main
    thread: Python allows signal handlers only there.
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

    # SIG_DFL and SIG_IGN are not callable: these signals keep their effect.
    handled = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handled:
        signal.signal(number, handle)

    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)
