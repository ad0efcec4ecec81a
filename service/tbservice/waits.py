"""How many requests wait for something outside of the process, and how one lets others go."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


class Waits:
    """The number of threads that wait, in all and by caller. Thread-safe."""

    def __init__(self) -> None:
        """Start from zero."""
        self.count = 0
        self.by_caller: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add_paused(self, amount: int) -> None:
        """Count that more or fewer threads wait, for which their callers get nothing."""
        with self._lock:
            self.count += amount

    def add(self, caller: str, amount: int) -> None:
        """Count that more or fewer threads of a caller wait."""
        with self._lock:
            self.count += amount
            self.by_caller[caller] += amount
            # Counters keep zeros: with a key for each address, memory would grow for ever.
            if not self.by_caller[caller]:
                del self.by_caller[caller]


@dataclass(slots=True)
class _Request:
    """A request of a caller: where its waits are counted, their seconds, what lets others go."""

    waits: Waits
    caller: str
    give_way: Callable[[], None]
    pause: Callable[[], None]
    seconds: float = 0.0


_current: Final[ContextVar[_Request | None]] = ContextVar("tbhub_waits", default=None)


def count_in(
    waits: Waits, caller: str, give_way: Callable[[], None], pause: Callable[[], None]
) -> None:
    """Count the waits of this task, and of the tasks and threads it starts, as a request's.

    `give_way` and `pause` are what the functions of these names do for it.
    """
    _current.set(_Request(waits, caller, give_way, pause))


def give_way() -> None:
    """Let those requests go first whose callers have used less.

    For a thread that computes for longer than 10 ms, and holds no lock and no connection meanwhile.
    Raises TooManyRequests.
    """
    request = _current.get()
    if request is not None:
        request.give_way()


def pause() -> None:
    """Let a request of another account begin, if one waits, and compute nothing for a moment.

    For a thread that computes for longer than 10 ms and holds a connection: it keeps its turn, so
    that no other request of its account begins, which would hold one more.
    """
    request = _current.get()
    if request is not None:
        request.pause()


def take_seconds() -> float:
    """Return the seconds that this request has waited since the last call."""
    request = _current.get()
    if request is None:
        return 0.0
    seconds, request.seconds = request.seconds, 0.0
    return seconds


@contextmanager
def waiting() -> Iterator[None]:
    """Count this thread as waiting during the block, if it works for a request."""
    begun = begin_wait()
    try:
        yield
    finally:
        end_wait(begun)


Begun = tuple[_Request, float]
"""A wait that `begin_wait` began: of which request, and when, in monotonic seconds."""


def begin_wait() -> Begun | None:
    """Do what `waiting` does at its beginning: a block costs more than most statements' waits."""
    request = _current.get()
    if request is None:
        return None
    request.waits.add(request.caller, 1)
    return request, time.monotonic()


def end_wait(begun: Begun | None) -> None:
    """End what `begin_wait` returned."""
    if begun is not None:
        request, began = begun
        request.waits.add(request.caller, -1)
        request.seconds += time.monotonic() - began
