"""Threads that Python does not wait for when it exits, as it does for those of `concurrent.futures`."""

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
    """So many threads, started at the first call; one that is at work when the process ends ends with it."""

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
        """Call the function in a thread, with the caller's context variables; a cancelled future that waits is left."""
        self._start()
        future: Future[_Result] = Future()
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(function, *args, **kwargs)))
        return future

    def close(self) -> None:
        """End the threads once they have nothing to do."""
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
                except BaseException as error:  # noqa: BLE001 - raised to the one that waits for the future
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del call, future, function
