"""Turns: a request is worked on only while it holds one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from tbservice import limits
from tbservice.admission.contention import Activity
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller
from tbservice.waits import Waits, take_seconds

COMPUTING_REQUESTS_ITEMS_MAX: Final = 1
"""Requests (items) that a worker computes at once while several callers work.

Others may wait for PostgreSQL or for a handler process meanwhile.
"""

_WAKE_SECONDS: Final = 0.01
"""Seconds between two looks at the queue while requests wait in it.

Most waits take a millisecond: to tell the event loop of each of them would cost more.
"""


_PAUSE_SECONDS: Final = 0.005
"""Seconds for which a request computes nothing when another one begins: a short one is done."""


class Turns(FairQueue):
    """The turns of all requests. While others work too, an account has one turn that computes.

    Requests that compute hold Python's lock in turns, so each of them slows down every other: next
    to three requests of an attacker, a read takes four times as long as alone
    (`make bench ARGS=fairness`). So few compute at once while several callers work, and that caller
    is next whose turns took the least time of late, without what they waited. A request that takes
    longer than `CONTENTION_SECONDS` lets another one begin, also of its account: a slow request
    must not block everybody.
    """

    def __init__(
        self,
        total: int,
        caller_max: int,
        activity: Activity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count from zero; `clock` returns seconds."""
        super().__init__("requests being worked on", total, caller_max)
        self.waits = Waits()
        self._activity = activity
        self._clock = clock
        self._acquired_at: dict[str, list[float]] = {}
        self._is_wake_scheduled = False

    def caller_max(self, caller: Caller) -> int:
        """Return how many turns this caller may have at once, as of now."""
        return self._limit(caller, super().caller_max(caller))

    def try_acquire(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire a turn as `Shares.try_acquire`, and record the caller as active."""
        self._activity.note(caller.key)
        return super().try_acquire(caller, amount)

    async def wait(self, caller: Caller, amount: int = 1) -> None:
        """Acquire a turn as `FairQueue.wait`."""
        self._schedule_wake()
        await super().wait(caller, amount)

    async def give_way(self, caller: Caller, amount: int = 1) -> None:
        """Release a turn and wait for it again, as `FairQueue.give_way`."""
        self._schedule_wake()
        await super().give_way(caller, amount)

    async def pause(self, caller: Caller) -> None:
        """Let a request of another account begin, if one waits, as if this one waited meanwhile."""
        if not self.others_wait(caller):
            return
        self.waits.add_paused(1)
        try:
            self._wake()
            await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self.waits.add_paused(-1)

    def _cost(self, caller: Caller, amount: int) -> float:
        """Return the seconds for which a turn was held that ends, less those of waiting.

        Otherwise a caller that writes, and so waits for PostgreSQL, would be served last.
        """
        acquired_at = self._acquired_at.setdefault(caller.key, [])
        if amount > 0:
            acquired_at.append(self._clock())
            return 0.0
        # The one that began last: of two that overlap, the shorter one mostly lies in the longer.
        seconds = self._clock() - acquired_at.pop() - take_seconds()
        if not acquired_at:
            del self._acquired_at[caller.key]
        return max(0.0, seconds)

    def _group_max(self, caller: Caller) -> int:
        group_max = super()._group_max(caller)
        return group_max if caller.is_anonymous else self._limit(caller, group_max)

    def _total_max(self) -> int:
        """Return how many requests may be worked on at once, as of now."""
        if not self._activity.is_shared():
            return self._total
        began_before = self._clock() - limits.CONTENTION_SECONDS
        long = sum(began < began_before for turns in self._acquired_at.values() for began in turns)
        # The greater one, not the sum: a request that runs for long may be one that waits.
        apart = max(self.waits.count, long)
        return min(self._total, COMPUTING_REQUESTS_ITEMS_MAX + apart)

    def _limit(self, caller: Caller, turns_max: int) -> int:
        """Return how many of so many turns the caller may have, as of now.

        One, and one more for each of its threads that waits: else its write, which waits for
        PostgreSQL, would delay its reads.
        """
        if not self._is_limited(caller):
            return turns_max
        return min(turns_max, 1 + self.waits.by_caller[caller.key])

    def _is_limited(self, caller: Caller) -> bool:
        acquired_at = self._acquired_at.get(caller.key)
        # A slow request waits for PostgreSQL or S3, and does not compete for the processor.
        if acquired_at and self._clock() - acquired_at[0] > limits.CONTENTION_SECONDS:
            return False
        return self._activity.has_others(caller.key)

    def _schedule_wake(self) -> None:
        """Serve the queue again soon: a request that begins to wait releases nothing."""
        if not self._is_wake_scheduled:
            self._is_wake_scheduled = True
            asyncio.get_running_loop().call_later(_WAKE_SECONDS, self._wake_again)

    def _wake_again(self) -> None:
        self._is_wake_scheduled = False
        self._wake()
        if self.has_waiting:
            self._schedule_wake()


class Turn:
    """The turn of one request, which it may acquire and release repeatedly.

    `bodies` releases it while a body arrives, `answers` when the response starts.
    """

    def __init__(self, turns: Turns, caller: Caller) -> None:
        self._turns = turns
        self._caller = caller
        self._is_held = False
        self._is_over = False

    def try_acquire(self) -> bool:
        """Acquire the turn if that needs no waiting; return whether it is held."""
        if not self._is_held:
            self._is_held = self._turns.try_acquire_now(self._caller)
        return self._is_held

    async def wait(self) -> None:
        """Acquire the turn, waiting if needed. Raises TooManyRequests."""
        if not self._is_held and not self._is_over:
            await self._turns.wait(self._caller)
            self._is_held = True

    async def give_way(self) -> None:
        """Let those go first who used less, if the turn is held. Raises TooManyRequests."""
        if self._is_held:
            self._is_held = False
            await self._turns.give_way(self._caller)
            self._is_held = True
            if self._is_over:  # the client left meanwhile, and nobody would release it
                self.release()

    async def pause(self) -> None:
        """Let another account's request begin, if one waits, and keep the turn."""
        if self._is_held:
            await self._turns.pause(self._caller)

    def release(self) -> None:
        """Release the turn if it is held."""
        if self._is_held:
            self._is_held = False
            self._turns.release(self._caller)

    def finish(self) -> None:
        """Release the turn for good: the response has started, and no more work is done."""
        self._is_over = True
        self.release()
