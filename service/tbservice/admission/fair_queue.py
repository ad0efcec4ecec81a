"""Shares that callers wait for, in lines that are served in rotation."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tbservice import limits
from tbservice.admission.shares import Caller, Shares

CALLER_QUEUED_REQUESTS_ITEMS_MAX: Final = 200
"""Requests (items) of one caller queued in one worker; further ones are refused with 429."""

_Clients = dict[str, deque["_Waiter"]]

_LINES_TRIED_MAX: Final = 8
"""Lines of a group that are tried at a time before its next release: all lack the same share.

Only few can lack one of their own, since they then use a large part of that of the group.
"""

_CLIENTS_TRIED_MAX: Final = 2


@dataclass(slots=True)
class _Waiter:
    """One waiting request; `turn` gets its result when `amount` was acquired for the caller."""

    caller: Caller
    amount: int
    turn: asyncio.Future[None]


class FairQueue(Shares):
    """Shares with a queue. Call its methods in the event loop only.

    Groups that have a share are served in rotation, the lines of a group in rotation, the clients
    of a line in rotation, and each client's requests in order: a crowd of addresses that reads one
    experiment delays no other experiment. The work of a release does not grow with the number of
    lines, which attackers can have many of.
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
        self._waiting: dict[str, dict[str, _Clients]] = {}  # by group, line and client
        self._waiting_counts: Counter[str] = Counter()  # by client and by network

    def try_acquire_now(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire `amount` if it fits and no request of the client waits; return whether it did."""
        lines = self._waiting.get(_rotation(caller), {})
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
        lines = self._waiting.setdefault(_rotation(caller), {})
        queue = lines.setdefault(caller.line, {}).setdefault(caller.client, deque())
        waiter = _Waiter(caller, amount, asyncio.get_running_loop().create_future())
        queue.append(waiter)
        self._count_waiting(caller, 1)

        try:
            async with asyncio.timeout(limits.QUEUE_WAIT_SECONDS_MAX):
                await waiter.turn
        # Also for a cancellation, when the client has left: a waiter without a reader would be
        # served.
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
        # Dropping it here would leak the turn until the process ends.
        if waiter.turn.done() and not waiter.turn.cancelled():
            self.release(waiter.caller, waiter.amount)
            return

        caller = waiter.caller
        clients = self._waiting.get(_rotation(caller), {}).get(caller.line, {})
        if (queue := clients.get(caller.client)) is not None:
            with suppress(ValueError):
                queue.remove(waiter)
                self._count_waiting(caller, -1)
            if not queue:
                self._remove(caller)
        self._wake()  # the client's next request may fit where this one did not

    def _wake(self) -> None:
        """Serve one request of each group in rotation, as long as any fits."""
        has_served = True
        while has_served and not self.is_full():
            has_served = False
            # A copy: serving moves the group to the end of the dictionary.
            for lines in list(self._waiting.values()):
                if self.is_full():
                    return
                has_served = self._serve_first_fit(lines) or has_served

    def _serve_first_fit(self, lines: dict[str, _Clients]) -> bool:
        """Serve the first client of the group whose request fits; return whether there was one."""
        for clients in islice(lines.values(), _LINES_TRIED_MAX):
            for queue in islice(clients.values(), _CLIENTS_TRIED_MAX):
                if self.try_acquire(queue[0].caller, queue[0].amount):
                    self._serve(queue)
                    return True
        return False

    def _serve(self, queue: deque[_Waiter]) -> None:
        """Wake the first waiter of a client; move the client, its line and its group to the end."""
        waiter = queue.popleft()
        caller = waiter.caller
        self._count_waiting(caller, -1)
        self._rotate(caller, queue)

        if waiter.turn.cancelled():
            # Not `self.release`: it wakes waiters, and this is called from there.
            Shares.release(self, caller, waiter.amount)
        else:
            waiter.turn.set_result(None)

    def _rotate(self, caller: Caller, queue: deque[_Waiter]) -> None:
        """Move a client's queue, its line and its group to the end; remove what is empty."""
        # Popped and set again: dictionaries keep the order of insertion, which makes this a
        # rotation.
        lines = self._waiting.pop(_rotation(caller))
        clients = lines.pop(caller.line)
        del clients[caller.client]
        if queue:
            clients[caller.client] = queue
        if clients:
            lines[caller.line] = clients
        if lines:
            self._waiting[_rotation(caller)] = lines

    def _remove(self, caller: Caller) -> None:
        """Remove a client without requests; its line and its group keep their places.

        Else a client that leaves again and again would keep its line from being served.
        """
        lines = self._waiting[_rotation(caller)]
        clients = lines[caller.line]
        del clients[caller.client]
        if not clients:
            del lines[caller.line]
        if not lines:
            del self._waiting[_rotation(caller)]

    def _count_waiting(self, caller: Caller, amount: int) -> None:
        for name in {caller.client, caller.network} - {""}:
            self._waiting_counts[name] += amount
            if not self._waiting_counts[name]:
                del self._waiting_counts[name]


def _rotation(caller: Caller) -> str:
    """Return the name of the callers that share a place in the rotation: their limits are one."""
    return f"{caller.group}'s readers" if caller.is_reader else caller.group
