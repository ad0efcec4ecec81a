"""Which callers work at the same time, and the rate of request bodies while they do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from tbservice import limits
from tbservice.admission.shares import Caller


class Activity:
    """Which workspaces and addresses have begun work in the last `CONTENTION_SECONDS`. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._begun: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, caller: Caller) -> None:
        """Record that the caller begins a piece of work now."""
        with self._lock:
            self._begun[caller.key] = self._clock()
            self._begun.move_to_end(caller.key)
            self._forget_old()

    def has_others(self, caller: Caller) -> bool:
        """Return whether anyone but the caller was at work."""
        with self._lock:
            self._forget_old()
            return len(self._begun) > (caller.key in self._begun)

    def _forget_old(self) -> None:
        oldest = self._clock() - limits.CONTENTION_SECONDS
        while self._begun and next(iter(self._begun.values())) < oldest:
            self._begun.popitem(last=False)


class BodyRate:
    """Bounds the bytes a second of one caller's request bodies while others work. Used in the event loop.

    The event loop parses all bodies and answers all others meanwhile: a caller that sends as fast as it can would
    have nearly all of its time.
    """

    def __init__(self, activity: Activity, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._activity = activity
        self._clock = clock
        self._busy_until: OrderedDict[str, float] = OrderedDict()

    async def pause(self, caller: Caller, amount: int) -> None:
        """Wait until `amount` bytes that have just come are within the caller's rate."""
        if seconds := self.delay_seconds(caller, amount):
            await asyncio.sleep(seconds)

    def delay_seconds(self, caller: Caller, amount: int) -> float:
        """Count `amount` bytes, and return the seconds to wait before more are taken: 0 while the caller is alone."""
        if not self._activity.has_others(caller):
            return 0.0
        now = self._clock()
        rate = limits.CALLER_BODY_BYTES_PER_SECOND // (2 if caller.is_anonymous else 1)
        until = max(now, self._busy_until.get(caller.key, now)) + amount / rate
        self._busy_until[caller.key] = until
        self._busy_until.move_to_end(caller.key)
        while next(iter(self._busy_until.values())) < now:
            self._busy_until.popitem(last=False)
        return until - now
