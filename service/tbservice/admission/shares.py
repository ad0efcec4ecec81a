"""Counting what each caller uses of a bounded thing, and queues that serve callers in rotation."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tbservice import limits, metrics
from tbservice.errors import TooManyRequests

_Key = TypeVar("_Key", bound=Hashable)

_ANONYMOUS: Final = "anonymous"
"""The group of all callers without a token."""


class Sharer(Hashable, Protocol):
    """A party that shares: a caller. Several may form a group, which has a share of its own."""

    @property
    def is_anonymous(self) -> bool:
        """Whether it is known by its address only; all of these are one group, and together get a quarter."""

    @property
    def key(self) -> str:
        """Its address; or its workspace, which is the group of the workspace's own requests and its readers'."""

    @property
    def is_reader(self) -> bool:
        """Whether it can only read, by tokens that were passed on: these leave half to their workspace."""


class Shares:
    """How much of something bounded each caller uses. Thread-safe.

    A workspace gets `caller_max`, its readers at most half of that. All callers without a token get a quarter of
    everything together, and each of them half of that at most: an attacker has many addresses, and may have a token as
    well, and there must be something left for others. A single use may be larger than its share while nothing else is
    used, as otherwise it could never begin.
    """

    def __init__(self, what: str, total: int, caller_max: int) -> None:
        """`what` names it with its unit; `total` is what all callers together may use, `caller_max` one workspace."""
        self.what = what
        self._total = total
        self._caller_max = caller_max
        self._used = 0
        self._by_group: Counter[str] = Counter()
        self._by_caller: Counter[Sharer] = Counter()
        self._lock = threading.Lock()

    def caller_max(self, caller: Sharer) -> int:
        """Return what this caller may use at once."""
        if caller.is_anonymous:
            return max(1, min(self._caller_max, self._group_max(caller)) // 2)
        return max(1, self._caller_max // 2) if caller.is_reader else self._caller_max

    def is_full(self) -> bool:
        """Return whether nobody can take anything now."""
        return self._used >= self._total

    def has_room(self, caller: Sharer, amount: int) -> bool:
        """Return whether `amount` fits the caller's share and the total now."""
        return (
            _fits(self._by_caller[caller], amount, self.caller_max(caller))
            and _fits(self._by_group[_group_of(caller)], amount, self._group_max(caller))
            and _fits(self._used, amount, self._total)
        )

    def try_take(self, caller: Sharer, amount: int = 1) -> bool:
        """Take `amount` for the caller where it fits its share and the total; return whether it did."""
        with self._lock:
            fits = self.has_room(caller, amount)
            if fits:
                self._add(caller, amount)
            return fits

    def take(self, caller: Sharer, amount: int = 1) -> None:
        """Take `amount` at once. Raises TooManyRequests where it does not fit."""
        if not self.try_take(caller, amount):
            raise self.refusal(caller)

    def take_anyway(self, caller: Sharer, amount: int) -> None:
        """Count `amount` as used without a check: what has begun goes on."""
        with self._lock:
            self._add(caller, amount)

    def give_back(self, caller: Sharer, amount: int = 1) -> None:
        """Return what was taken."""
        with self._lock:
            self._add(caller, -amount)

    def refusal(self, caller: Sharer) -> TooManyRequests:
        """Return the error for a caller that is over its share, or comes when everything is taken."""
        metrics.note_over_share(self.what)
        whose = "callers without a token" if caller.is_anonymous else "one workspace"
        share = f"{self.caller_max(caller)} of {self._total} {self.what}"
        return TooManyRequests(f"{whose} may use {share} of this server at once, and others use it, too; try again")

    def _group_max(self, caller: Sharer) -> int:
        return max(1, self._total // 4) if caller.is_anonymous else self._caller_max

    def _add(self, caller: Sharer, amount: int) -> None:
        self._used += amount
        _count(self._by_group, _group_of(caller), amount)
        _count(self._by_caller, caller, amount)


def _count(counter: Counter[_Key], key: _Key, amount: int) -> None:
    counter[key] += amount
    if not counter[key]:
        del counter[key]


def _group_of(caller: Sharer) -> str:
    return _ANONYMOUS if caller.is_anonymous else caller.key


def _fits(used: int, amount: int, maximum: int) -> bool:
    return used + amount <= maximum or not used


@dataclass(slots=True)
class _Waiting:
    amount: int
    turn: asyncio.Future[None]


class FairQueue(Shares):
    """Shares for which callers wait: served in rotation, each in its own order. Its methods run in the event loop."""

    def __init__(
        self, what: str, total: int, caller_max: int, waiting_max: int = limits.caller_waiting_items_max
    ) -> None:
        """`waiting_max` is how many requests of one caller may wait."""
        super().__init__(what, total, caller_max)
        self._waiting_max = waiting_max
        self._waiting: dict[Sharer, deque[_Waiting]] = {}

    def try_take_now(self, caller: Sharer, amount: int = 1) -> bool:
        """Take `amount` where it fits and nothing of the caller waits already; return whether it did."""
        return caller not in self._waiting and self.try_take(caller, amount)

    async def wait(self, caller: Sharer, amount: int = 1) -> None:
        """Take `amount`, after waiting where that is needed.

        Raises TooManyRequests when too many of the caller's wait already, or after `turn_wait_seconds_max`.
        """
        if self.try_take_now(caller, amount):
            return
        queue = self._waiting.setdefault(caller, deque())
        if len(queue) >= self._waiting_max:
            raise self.refusal(caller)
        waiting = _Waiting(amount, asyncio.get_running_loop().create_future())
        queue.append(waiting)
        try:
            async with asyncio.timeout(limits.turn_wait_seconds_max):
                await waiting.turn
        except BaseException as error:
            self._leave(caller, waiting)
            if isinstance(error, TimeoutError):
                raise self.refusal(caller) from error
            raise

    @asynccontextmanager
    async def turn(self, caller: Sharer, amount: int = 1) -> AsyncIterator[None]:
        """Hold `amount` while the block lasts. Raises as `wait`."""
        await self.wait(caller, amount)
        try:
            yield
        finally:
            self.give_back(caller, amount)

    def give_back(self, caller: Sharer, amount: int = 1) -> None:
        """Return what was taken, and let those go on that now fit."""
        super().give_back(caller, amount)
        self._wake()

    def _leave(self, caller: Sharer, waiting: _Waiting) -> None:
        if waiting.turn.done() and not waiting.turn.cancelled():  # it came at the same moment
            self.give_back(caller, waiting.amount)
            return
        queue = self._waiting.get(caller)
        if queue is not None:
            with suppress(ValueError):
                queue.remove(waiting)
            if not queue:
                del self._waiting[caller]
        self._wake()  # the next of this caller may fit where this one did not

    def _wake(self) -> None:
        """Serve one request of each waiting caller in rotation, for as long as any fits."""
        has_served = True
        while has_served and not self.is_full():
            has_served = False
            for caller in list(self._waiting):
                if self.is_full():
                    return
                queue = self._waiting[caller]
                if self.try_take(caller, queue[0].amount):
                    self._serve(caller, queue)
                    has_served = True

    def _serve(self, caller: Sharer, queue: deque[_Waiting]) -> None:
        waiting = queue.popleft()
        del self._waiting[caller]
        if queue:
            self._waiting[caller] = queue  # behind the others
        if waiting.turn.cancelled():
            Shares.give_back(self, caller, waiting.amount)
        else:
            waiting.turn.set_result(None)


class WorkerShares:
    """Everything that callers share in one worker process."""

    def __init__(self, database_pool_size: int) -> None:
        """Leave some of the database connections for token look-ups, live tails and compaction."""
        at_once = max(1, database_pool_size - limits.reserved_connections_items)
        self.turns = FairQueue("requests being worked on", at_once, min(at_once, limits.caller_turns_items_max))
        self.body_bytes = FairQueue("bytes of request bodies", limits.bodies_bytes_max, limits.caller_bodies_bytes_max)
        self.decoded_bytes = FairQueue(
            "bytes of batches being decoded", limits.decoding_bytes_max, limits.batch_bytes_max
        )
        self.unread_bytes = Shares("bytes of unread answers", limits.unread_bytes_max, limits.caller_unread_bytes_max)
        self.streams = Shares("streams at full resolution", limits.whole_streams_max, limits.caller_streams_max)
        self.tails = Shares("live tails", limits.live_streams_max, limits.caller_tails_streams_max)
