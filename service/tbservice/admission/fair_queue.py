"""Shares that callers wait for, in lines that are served in rotation."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from tbservice import limits
from tbservice.admission.places import Clients, Place, Waiter
from tbservice.admission.shares import Caller, Shares

CALLER_QUEUED_REQUESTS_ITEMS_MAX: Final = 200
"""Requests (items) of one caller queued in one worker; further ones are refused with 429."""


class FairQueue(Shares):
    """Shares with a queue. Call its methods in the event loop only.

    The families, accounts and strangers that wait are served in the order of `Place`; the lines of
    each in rotation, the clients of a line in rotation, and each client's requests in order: a
    crowd of addresses that reads one experiment delays no other experiment. The work of a release
    does not grow with the number of lines, which attackers can have many of.
    """

    def __init__(
        self,
        what: str,
        total: int,
        caller_max: int,
        waiting_max: int = CALLER_QUEUED_REQUESTS_ITEMS_MAX,
    ) -> None:
        """Count from zero.

        Args:
            what: The resource with its unit, in plural: for errors and metrics.
            total: Limit of all callers together.
            caller_max: Limit of one account.
            waiting_max: How many requests of one client may wait, in all lines together; of an
                IPv6 network of many customers, twice as many.
        """
        super().__init__(what, total, caller_max)
        self._waiting_max = waiting_max
        self._places = Place()
        self._waiting_counts: Counter[str] = Counter()  # by client and by network

    def try_acquire_now(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire `amount` if it fits and no request of the client waits; return whether it did."""
        lines = self._places.find_lines(caller.path)
        has_waiting = caller.client in lines.get(caller.line, {})
        return not has_waiting and self.try_acquire(caller, amount)

    async def wait(self, caller: Caller, amount: int = 1) -> None:
        """Acquire `amount`, waiting in the queue if it does not fit now.

        Raises TooManyRequests if too many requests of the client or its network wait already, or
        after `QUEUE_WAIT_SECONDS_MAX`.
        """
        if self.try_acquire_now(caller, amount):
            return

        if (
            self._waiting_counts[caller.client] >= self._waiting_max
            or self._waiting_counts[caller.network] >= 2 * self._waiting_max
        ):
            raise self.over_share_error(caller)
        await self._wait_for(self._enqueue(caller, amount))

    async def give_way(self, caller: Caller, amount: int = 1) -> None:
        """Release `amount` and wait for it again, before other requests of the client.

        Raises as `wait`; then it stays released.
        """
        waiter = self._enqueue(caller, amount, is_first=True)
        self.release(caller, amount)
        await self._wait_for(waiter)

    @property
    def has_waiting(self) -> bool:
        """Whether any request waits."""
        return self._places.waiting > 0

    def others_wait(self, caller: Caller) -> bool:
        """Return whether a request waits that is not of this account, or its family."""
        own = self._places.places.get(caller.path[0])
        return self._places.waiting > (own.waiting if own else 0)

    def _enqueue(self, caller: Caller, amount: int, *, is_first: bool = False) -> Waiter:
        lines = self._places.find(caller.path)[-1].lines
        queue = lines.setdefault(caller.line, {}).setdefault(caller.client, deque())
        waiter = Waiter(caller, amount, asyncio.get_running_loop().create_future())
        if is_first:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)
        self._count_waiting(caller, 1)
        return waiter

    async def _wait_for(self, waiter: Waiter) -> None:
        """Wait until the waiter is served; remove it if that fails. Raises TooManyRequests."""
        try:
            async with asyncio.timeout(limits.QUEUE_WAIT_SECONDS_MAX):
                await waiter.turn
        # Also for a cancellation, when the client has left: a waiter without a reader would be
        # served.
        except BaseException as error:
            self._leave(waiter)
            if isinstance(error, TimeoutError):
                raise self.over_share_error(waiter.caller) from error
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

    def _leave(self, waiter: Waiter) -> None:
        """Remove a waiter that was cancelled or timed out."""
        # The amount may have been acquired for it in the same iteration of the event loop.
        # Dropping it here would leak the turn until the process ends.
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.release(waiter.caller, waiter.amount)
            return

        caller = waiter.caller
        lines = self._places.find_lines(caller.path)
        if (queue := lines.get(caller.line, {}).get(caller.client)) is not None:
            with suppress(ValueError):
                queue.remove(waiter)
                if not queue:
                    _remove(lines, caller)
                self._count_waiting(caller, -1)
        self._wake()  # the client's next request may fit where this one did not

    def _wake(self) -> None:
        """Serve the first request that fits, as long as there is one."""
        while not self.is_full() and self._serve_first_fit():
            pass

    def _serve_first_fit(self) -> bool:
        """Serve the first client whose request fits; return whether there was one."""
        for queue in self._places.first_clients():
            if self.try_acquire(queue[0].caller, queue[0].amount):
                self._serve(queue)
                return True
        return False

    def _serve(self, queue: deque[Waiter]) -> None:
        """Wake the first waiter of a client; move the client and its line to the end."""
        waiter = queue.popleft()
        caller = waiter.caller
        _rotate(self._places.find_lines(caller.path), caller, queue)
        self._count_waiting(caller, -1)

        if waiter.turn.cancelled():
            # Not `self.release`: it wakes waiters, and this is called from there.
            Shares.release(self, caller, waiter.amount)
        else:
            waiter.turn.set_result(None)

    def _add(self, caller: Caller, amount: int) -> None:
        super()._add(caller, amount)
        self._places.add(caller.path, amount, self._cost(caller, amount))

    def _cost(self, _caller: Caller, amount: int) -> float:
        """Return what a use costs that begins now, or that ends if the amount is negative."""
        return max(0, amount)

    def _count_waiting(self, caller: Caller, amount: int) -> None:
        self._places.count_waiting(caller.path, amount)
        for name in {caller.client, caller.network} - {""}:
            self._waiting_counts[name] += amount
            if not self._waiting_counts[name]:
                del self._waiting_counts[name]


def _rotate(lines: dict[str, Clients], caller: Caller, queue: deque[Waiter]) -> None:
    """Move a client's queue and its line to the end; remove what is empty."""
    # Popped and set again: dictionaries keep the order of insertion, which makes this a rotation.
    clients = lines.pop(caller.line)
    del clients[caller.client]
    if queue:
        clients[caller.client] = queue
    if clients:
        lines[caller.line] = clients


def _remove(lines: dict[str, Clients], caller: Caller) -> None:
    """Remove a client without requests; its line keeps its place.

    Else a client that leaves again and again would keep its line from being served.
    """
    clients = lines[caller.line]
    del clients[caller.client]
    if not clients:
        del lines[caller.line]
