"""Whether callers work at the same time, and a limit on body rates while they do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tbservice import limits
from tbservice.admission.shares import Caller

CALLER_BODY_BYTES_PER_SECOND: Final = 32 * limits.MIB
"""Bytes of request bodies per second received from one account while others are active.

Half of it per anonymous address.
"""


class Activity:
    """Names of callers that started work in the last `CONTENTION_SECONDS`. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without any activity; `clock` returns seconds."""
        self._clock = clock
        self._started_at: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        """Record that a caller starts work now."""
        with self._lock:
            self._started_at[name] = self._clock()
            self._started_at.move_to_end(name)
            self._discard_old()

    def has_others(self, name: str) -> bool:
        """Return whether any other one started work recently."""
        with self._lock:
            self._discard_old()
            return len(self._started_at) > (name in self._started_at)

    def is_shared(self) -> bool:
        """Return whether several started work recently."""
        with self._lock:
            self._discard_old()
            return len(self._started_at) > 1

    def _discard_old(self) -> None:
        oldest = self._clock() - limits.CONTENTION_SECONDS
        while self._started_at and next(iter(self._started_at.values())) < oldest:
            self._started_at.popitem(last=False)


class BodyRate:
    """A limit on the bytes per second of one caller's request bodies while others work.

    The event loop parses all bodies and sends all responses: without a limit, a caller that sends
    as fast as it can would get nearly all of its time. Call the methods in the event loop only.
    """

    def __init__(self, activity: Activity, clock: Callable[[], float] = time.monotonic) -> None:
        """Limit while `activity` has others; `clock` returns seconds."""
        self._activity = activity
        self._clock = clock
        self._busy_until: OrderedDict[str, float] = OrderedDict()

    async def pause(self, caller: Caller, amount: int) -> None:
        """Wait until the `amount` bytes that were just received are within the caller's rate."""
        if seconds := self.delay_seconds(caller, amount):
            await asyncio.sleep(seconds)

    def delay_seconds(self, caller: Caller, amount: int) -> float:
        """Count `amount` bytes; return the seconds to wait before receiving more.

        Returns 0 while the caller is alone.
        """
        if not self._activity.has_others(caller.key):
            return 0.0
        now = self._clock()
        rate = CALLER_BODY_BYTES_PER_SECOND // (2 if caller.is_anonymous else 1)
        until = max(now, self._busy_until.get(caller.key, now)) + amount / rate
        self._busy_until[caller.key] = until
        self._busy_until.move_to_end(caller.key)
        while next(iter(self._busy_until.values())) < now:
            self._busy_until.popitem(last=False)
        return until - now
