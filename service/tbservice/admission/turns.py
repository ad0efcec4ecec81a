"""Turns: a request is worked on only while it holds one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tbservice import limits
from tbservice.admission.contention import Activity
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller

STRANGERS_REQUESTS_ITEMS_MAX: Final = 2
"""Requests (items) of all addresses without an account that a worker processes at once, while
others work too; those that sign in have as many of their own."""


class Turns(FairQueue):
    """The turns of all requests. While others work too, an account has one turn at a time.

    Requests that compute hold Python's lock in turns, so each of them slows down every other: next
    to three requests of an attacker, a read takes four times as long as alone
    (`make bench ARGS=fairness`). A request that takes longer than `CONTENTION_SECONDS` lets
    another one of its account start: a slow query must not block everybody who shares it.
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
        self._activity = activity
        self._families = Activity(clock)
        self._clock = clock
        self._acquired_at: dict[str, deque[float]] = {}
        self._is_wake_scheduled = False

    def caller_max(self, caller: Caller) -> int:
        """Return how many turns this caller may have at once, as of now."""
        return 1 if self._is_limited(caller) else super().caller_max(caller)

    def try_acquire(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire a turn as `Shares.try_acquire`, and record the caller as active."""
        self._activity.note(caller.key)
        self._families.note(caller.family or caller.key)
        return super().try_acquire(caller, amount)

    async def wait(self, caller: Caller, amount: int = 1) -> None:
        """Acquire a turn as `FairQueue.wait`."""
        self._schedule_wake()
        await super().wait(caller, amount)

    def _add(self, caller: Caller, amount: int) -> None:
        acquired_at = self._acquired_at.setdefault(caller.key, deque())
        if amount > 0:
            acquired_at.append(self._clock())
        else:
            acquired_at.popleft()
        if not acquired_at:
            del self._acquired_at[caller.key]
        super()._add(caller, amount)

    def _group_max(self, caller: Caller) -> int:
        group_max = super()._group_max(caller)
        if not caller.is_anonymous:
            return 1 if self._is_limited(caller) else group_max
        # Each address has one turn in any case. While others work, all together have few: what
        # they may do without a token is short.
        is_contended = self._activity.has_others(caller.key)
        return min(group_max, STRANGERS_REQUESTS_ITEMS_MAX) if is_contended else group_max

    def _family_max(self, caller: Caller) -> int:
        """Return a quarter of the turns while other families work too, or else all of them."""
        family_max = super()._family_max(caller)
        has_others = self._families.has_others(caller.family)
        return max(1, family_max // 2) if has_others else self._total

    def _is_limited(self, caller: Caller) -> bool:
        acquired_at = self._acquired_at.get(caller.key)
        # A slow request waits for PostgreSQL or S3, and does not compete for the processor.
        if acquired_at and self._clock() - acquired_at[0] > limits.CONTENTION_SECONDS:
            return False
        return self._activity.has_others(caller.key)

    def _schedule_wake(self) -> None:
        """Serve the queue again after a while: the end of a limit releases nothing."""
        if not self._is_wake_scheduled:
            self._is_wake_scheduled = True
            asyncio.get_running_loop().call_later(limits.CONTENTION_SECONDS, self._wake_again)

    def _wake_again(self) -> None:
        self._is_wake_scheduled = False
        self._wake()
        if self._waiting:
            self._schedule_wake()


class Turn:
    """The turn of one request, which it may acquire and release repeatedly.

    `bodies` releases it while a body arrives, `answers` when the response starts.
    """

    def __init__(self, turns: FairQueue, caller: Caller) -> None:
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

    def release(self) -> None:
        """Release the turn if it is held."""
        if self._is_held:
            self._is_held = False
            self._turns.release(self._caller)

    def finish(self) -> None:
        """Release the turn for good: the response has started, and no more work is done."""
        self._is_over = True
        self.release()
