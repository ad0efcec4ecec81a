"""A thread pool of daemon threads.

Python waits at exit for the threads of `concurrent.futures`, and not for these.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class DaemonThreadPool:
    """A fixed number of threads, started at the first call and stopped when the process exits."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._is_started = False

    def submit(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> Future[_Result]:
        """Call the function in a thread, with the context variables of the current thread.

        If the future is cancelled before a thread is free, the function is not called.
        """
        self._start()
        future: Future[_Result] = Future()
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(function, *args, **kwargs)))
        return future

    def close(self) -> None:
        """Stop the threads after the calls that were submitted. Returns at once."""
        with self._lock:
            for _ in range(self._count if self._is_started else 0):
                self._calls.put(None)
            self._is_started = False

    def _start(self) -> None:
        with self._lock:
            if not self._is_started:
                self._is_started = True
                for number in range(self._count):
                    threading.Thread(
                        target=self._work, name=f"{self._name}-{number}", daemon=True
                    ).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del call, future, function
