"""Hearing of the end in time: uvicorn tells an application that it stops only when all of its clients have gone."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def told_of_stop(stop: Callable[[], None]) -> Iterator[None]:
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
