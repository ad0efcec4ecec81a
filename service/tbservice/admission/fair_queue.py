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
    amount: int
    turn: asyncio.Future[None]


class FairQueue(Shares):
    """Shares for which callers wait. Its methods run in the event loop.

    Lines are served in rotation, the callers of a line in rotation, and each caller in its own order: a crowd of
    addresses that reads one experiment keeps nobody from another.
    """

    def __init__(
        self,
        what: str,
        total: int,
        caller_max: int,
        waiting_max: int = limits.CALLER_QUEUED_REQUESTS_ITEMS_MAX,
    ) -> None:
        """`waiting_max` is how many requests of one caller may wait."""
        super().__init__(what, total, caller_max)
        self._waiting_max = waiting_max
        self._waiting: dict[str, dict[Caller, deque[_Waiter]]] = {}

    def try_acquire_now(self, caller: Caller, amount: int = 1) -> bool:
        """Take `amount` where it fits and nothing of the caller waits already; return whether it did."""
        return caller not in self._waiting.get(caller.line, {}) and self.try_acquire(caller, amount)

    async def wait(self, caller: Caller, amount: int = 1) -> None:
        """Take `amount`, after waiting where that is needed.

        Raises TooManyRequests when too many of the caller's wait already, or after `QUEUE_WAIT_SECONDS_MAX`.
        """
        if self.try_acquire_now(caller, amount):
            return
        queue = self._waiting.setdefault(caller.line, {}).setdefault(caller, deque())
        if len(queue) >= self._waiting_max:
            raise self.over_share_error(caller)
        waiting = _Waiter(amount, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        try:
            async with asyncio.timeout(limits.QUEUE_WAIT_SECONDS_MAX):
                await waiting.turn
        except BaseException as error:
            self._leave(caller, waiting)
            if isinstance(error, TimeoutError):
                raise self.over_share_error(caller) from error
            raise

    @asynccontextmanager
    async def turn(self, caller: Caller, amount: int = 1) -> AsyncIterator[None]:
        """Hold `amount` while the block lasts. Raises as `wait`."""
        await self.wait(caller, amount)
        try:
            yield
        finally:
            self.release(caller, amount)

    def release(self, caller: Caller, amount: int = 1) -> None:
        """Return what was taken, and let those go on that now fit."""
        super().release(caller, amount)
        self._wake()

    def _leave(self, caller: Caller, waiting: _Waiter) -> None:
        if waiting.turn.done() and not waiting.turn.cancelled():  # it came at the same moment
            self.release(caller, waiting.amount)
            return
        line = self._waiting.get(caller.line, {})
        if (queue := line.get(caller)) is not None:
            with suppress(ValueError):
                queue.remove(waiting)
            if not queue:
                self._remove(caller)
        self._wake()  # the next of this caller may fit where this one did not

    def _wake(self) -> None:
        """Serve one request of each line in rotation, for as long as any fits."""
        has_served = True
        while has_served and not self.is_full():
            has_served = False
            for line in list(self._waiting.values()):
                if self.is_full():
                    return
                has_served = self._serve_one(line) or has_served

    def _serve_one(self, line: dict[Caller, deque[_Waiter]]) -> bool:
        """Serve the first caller of a line whose request fits; return whether there was one."""
        for caller, queue in line.items():
            if self.try_acquire(caller, queue[0].amount):
                self._serve(caller, queue)
                return True
        return False

    def _remove(self, caller: Caller) -> dict[Caller, deque[_Waiter]]:
        """Take the caller out of its line, and the line out where it is empty; return the line."""
        line = self._waiting[caller.line]
        del line[caller]
        if not line:
            del self._waiting[caller.line]
        return line

    def _serve(self, caller: Caller, queue: deque[_Waiter]) -> None:
        waiting = queue.popleft()
        line = self._remove(caller)
        if queue:
            line[caller] = queue  # behind the others of its line
        if line:
            self._waiting.pop(caller.line, None)
            self._waiting[caller.line] = line  # and its line behind the others
        if waiting.turn.cancelled():
            Shares.release(self, caller, waiting.amount)
        else:
            waiting.turn.set_result(None)
