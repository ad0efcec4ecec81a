"""Work that many ask for at once, done once for all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from tbservice.waits import waiting

_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")


class SharedWork(Generic[_Key, _Result]):
    """Work of this worker's threads by key: one does it for all that asked before it began.

    Nobody gets a result of work that began before the call, so that no result is out of date. The
    key names everything that a result depends on, besides the state that the work reads. Who waits
    counts as waiting: a turn that computes nothing would keep others from beginning.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[_Key, Future[_Result]] = {}
        self._current: dict[_Key, Future[_Result]] = {}

    def run(self, key: _Key, work: Callable[[], _Result]) -> _Result:
        """Return the result of the work; all that share it get the same one, or the same error."""
        with self._lock:
            shared = self._next.get(key)
            is_first = shared is None
            if shared is None:
                shared = self._next[key] = Future()
            current = self._current.get(key)
        if not is_first:
            with waiting():
                return shared.result()
        if current is not None:
            with waiting():
                wait([current])
        with self._lock:
            del self._next[key]
            self._current[key] = shared
        try:
            shared.set_result(work())
        except BaseException as error:  # noqa: BLE001 - those who wait must not wait for ever
            shared.set_exception(error)
        with self._lock:
            if self._current.get(key) is shared:
                del self._current[key]
        return shared.result()
