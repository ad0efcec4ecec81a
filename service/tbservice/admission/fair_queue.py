"""Shares that callers wait for, in lines that are served in rotation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tbservice import limits
from tbservice.admission.shares import Caller, Shares


@dataclass(slots=True)
class _Waiter:
    """One waiting request; `turn` gets its result when `amount` was acquired for the caller."""

    caller: Caller
    amount: int
    turn: asyncio.Future[None]


class FairQueue(Shares):
    """Shares with a queue. Call its methods in the event loop only.

    Lines are served in rotation, the clients of a line in rotation, and each client's requests in
    order: a crowd of addresses that reads one experiment delays no other experiment.
    """

    def __init__(
        self,
        what: str,
        total: int,
        caller_max: int,
        waiting_max: int = limits.CALLER_QUEUED_REQUESTS_ITEMS_MAX,
    ) -> None:
        """Count from zero.

        Args:
            what: The resource with its unit, in plural: for errors and metrics.
            total: What all callers together may use.
            caller_max: What one account may use.
            waiting_max: How many requests of one client may wait.
        """
        super().__init__(what, total, caller_max)
        self._waiting_max = waiting_max
        self._waiting: dict[str, dict[str, deque[_Waiter]]] = {}

    def try_acquire_now(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire `amount` if it fits and no request of the client waits; return whether it did."""
        has_waiting = caller.client in self._waiting.get(caller.line, {})
        return not has_waiting and self.try_acquire(caller, amount)

    async def wait(self, caller: Caller, amount: int = 1) -> None:
        """Acquire `amount`, waiting in the queue if it does not fit now.

        Raises TooManyRequests if `waiting_max` requests of the client wait already, or after
        `QUEUE_WAIT_SECONDS_MAX`.
        """
        if self.try_acquire_now(caller, amount):
            return

        queue = self._waiting.setdefault(caller.line, {}).setdefault(caller.client, deque())
        if len(queue) >= self._waiting_max:
            raise self.over_share_error(caller)
        waiter = _Waiter(caller, amount, asyncio.get_running_loop().create_future())
        queue.append(waiter)

        try:
            async with asyncio.timeout(limits.QUEUE_WAIT_SECONDS_MAX):
                await waiter.turn
        except BaseException as error:
            self._leave(waiter)
            if isinstance(error, TimeoutError):
                raise self.over_share_error(caller) from error
            raise

    @asynccontextmanager
    async def turn(self, caller: Caller, amount: int = 1) -> AsyncIterator[None]:
        """Hold `amount` during the block. Raises as `wait`."""
        await self.wait(caller, amount)
        try:
            yield
        finally:
            self.release(caller, amount)

    def release(self, caller: Caller, amount: int = 1) -> None:
        """Release `amount` and wake the waiters that fit now."""
        super().release(caller, amount)
        self._wake()

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that was cancelled or timed out."""
        # The amount may have been acquired for it in the same iteration of the event loop.
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.release(waiter.caller, waiter.amount)
            return

        line = self._waiting.get(waiter.caller.line, {})
        if (queue := line.get(waiter.caller.client)) is not None:
            with suppress(ValueError):
                queue.remove(waiter)
            if not queue:
                self._remove(waiter.caller)
        self._wake()  # the client's next request may fit where this one did not

    def _wake(self) -> None:
        """Serve one request of each line in rotation, as long as any fits."""
        has_served = True
        while has_served and not self.is_full():
            has_served = False
            for line in list(self._waiting.values()):
                if self.is_full():
                    return
                has_served = self._serve_first_fit(line) or has_served

    def _serve_first_fit(self, line: dict[str, deque[_Waiter]]) -> bool:
        """Serve the first client of a line whose request fits; return whether there was one."""
        for queue in line.values():
            if self.try_acquire(queue[0].caller, queue[0].amount):
                self._serve(queue)
                return True
        return False

    def _remove(self, caller: Caller) -> dict[str, deque[_Waiter]]:
        """Remove the client from its line, and the line if it is then empty; return the line."""
        line = self._waiting[caller.line]
        del line[caller.client]
        if not line:
            del self._waiting[caller.line]
        return line

    def _serve(self, queue: deque[_Waiter]) -> None:
        """Wake the first waiter of a client; move the client and its line to the end."""
        waiter = queue.popleft()
        caller = waiter.caller
        line = self._remove(caller)
        if queue:
            line[caller.client] = queue
        if line:
            self._waiting.pop(caller.line, None)
            self._waiting[caller.line] = line

        if waiter.turn.cancelled():
            # Not `self.release`: it wakes waiters, and this is called from there.
            Shares.release(self, caller, waiter.amount)
        else:
            waiter.turn.set_result(None)
