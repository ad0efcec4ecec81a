"""Counting what each caller uses of a bounded thing, and queues that serve callers in rotation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from tbservice import limits, metrics
from tbservice.errors import TooManyRequests

_Key = TypeVar("_Key", bound=Hashable)

_ANONYMOUS: Final = "anonymous"
"""The group of all callers without a token."""


class SharingParty(Hashable, Protocol):
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

    @property
    def line(self) -> Hashable:
        """Whose requests wait in one line; lines are served in rotation, and the callers of a line, too."""


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
        self._by_caller: Counter[SharingParty] = Counter()
        self._lock = threading.Lock()

    def caller_max(self, caller: SharingParty) -> int:
        """Return what this caller may use at once."""
        if caller.is_anonymous:
            return max(1, min(self._caller_max, self._group_max(caller)) // 2)
        return max(1, self._caller_max // 2) if caller.is_reader else self._caller_max

    def is_full(self) -> bool:
        """Return whether nobody can take anything now."""
        return self._used >= self._total

    def has_room(self, caller: SharingParty, amount: int) -> bool:
        """Return whether `amount` fits the caller's share and the total now."""
        return (
            _fits(self._by_caller[caller], amount, self.caller_max(caller))
            and _fits(self._by_group[_group_of(caller)], amount, self._group_max(caller))
            and _fits(self._used, amount, self._total)
        )

    def try_acquire(self, caller: SharingParty, amount: int = 1) -> bool:
        """Take `amount` for the caller where it fits its share and the total; return whether it did."""
        with self._lock:
            fits = self.has_room(caller, amount)
            if fits:
                self._add(caller, amount)
            return fits

    def acquire(self, caller: SharingParty, amount: int = 1) -> None:
        """Take `amount` at once. Raises TooManyRequests where it does not fit."""
        if not self.try_acquire(caller, amount):
            raise self.over_share_error(caller)

    def acquire_unchecked(self, caller: SharingParty, amount: int) -> None:
        """Count `amount` as used without a check: what has begun goes on."""
        with self._lock:
            self._add(caller, amount)

    def release(self, caller: SharingParty, amount: int = 1) -> None:
        """Return what was taken."""
        with self._lock:
            self._add(caller, -amount)

    def over_share_error(self, caller: SharingParty) -> TooManyRequests:
        """Return the error for a caller that is over its share, or comes when everything is taken."""
        metrics.observe_over_share(self.what)
        whose = "callers without a token" if caller.is_anonymous else "one workspace"
        share = f"{self.caller_max(caller)} of {self._total} {self.what}"
        return TooManyRequests(
            f"{whose} may use {share} of this server at once, and others use it, too; try again"
        )

    def _group_max(self, caller: SharingParty) -> int:
        return max(1, self._total // 4) if caller.is_anonymous else self._caller_max

    def _add(self, caller: SharingParty, amount: int) -> None:
        self._used += amount
        _count(self._by_group, _group_of(caller), amount)
        _count(self._by_caller, caller, amount)


def _count(counter: Counter[_Key], key: _Key, amount: int) -> None:
    counter[key] += amount
    if not counter[key]:
        del counter[key]


def _group_of(caller: SharingParty) -> str:
    return _ANONYMOUS if caller.is_anonymous else caller.key


def _fits(used: int, amount: int, maximum: int) -> bool:
    return used + amount <= maximum or not used


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
        self._waiting: dict[Hashable, dict[SharingParty, deque[_Waiter]]] = {}

    def try_acquire_now(self, caller: SharingParty, amount: int = 1) -> bool:
        """Take `amount` where it fits and nothing of the caller waits already; return whether it did."""
        return caller not in self._waiting.get(caller.line, {}) and self.try_acquire(caller, amount)

    async def wait(self, caller: SharingParty, amount: int = 1) -> None:
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
    async def turn(self, caller: SharingParty, amount: int = 1) -> AsyncIterator[None]:
        """Hold `amount` while the block lasts. Raises as `wait`."""
        await self.wait(caller, amount)
        try:
            yield
        finally:
            self.release(caller, amount)

    def release(self, caller: SharingParty, amount: int = 1) -> None:
        """Return what was taken, and let those go on that now fit."""
        super().release(caller, amount)
        self._wake()

    def _leave(self, caller: SharingParty, waiting: _Waiter) -> None:
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

    def _serve_one(self, line: dict[SharingParty, deque[_Waiter]]) -> bool:
        """Serve the first caller of a line whose request fits; return whether there was one."""
        for caller, queue in line.items():
            if self.try_acquire(caller, queue[0].amount):
                self._serve(caller, queue)
                return True
        return False

    def _remove(self, caller: SharingParty) -> dict[SharingParty, deque[_Waiter]]:
        """Take the caller out of its line, and the line out where it is empty; return the line."""
        line = self._waiting[caller.line]
        del line[caller]
        if not line:
            del self._waiting[caller.line]
        return line

    def _serve(self, caller: SharingParty, queue: deque[_Waiter]) -> None:
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


class Activity:
    """Which workspaces and addresses have begun work in the last `CONTENTION_SECONDS`. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._begun: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, caller: SharingParty) -> None:
        """Record that the caller begins a piece of work now."""
        with self._lock:
            self._begun[caller.key] = self._clock()
            self._begun.move_to_end(caller.key)
            self._forget_old()

    def has_others(self, caller: SharingParty) -> bool:
        """Return whether anyone but the caller was at work."""
        with self._lock:
            self._forget_old()
            return len(self._begun) > (caller.key in self._begun)

    def _forget_old(self) -> None:
        oldest = self._clock() - limits.CONTENTION_SECONDS
        while self._begun and next(iter(self._begun.values())) < oldest:
            self._begun.popitem(last=False)


class Turns(FairQueue):
    """Turns of requests. A caller has one at a time while others work, too.

    Requests that compute hold Python's lock in turns, so each of them slows every other one: with three of an
    attacker's beside it, a read takes four times as long as alone (`make bench ARGS=fairness`).
    """

    def __init__(self, total: int, caller_max: int, activity: Activity) -> None:
        super().__init__("requests being worked on", total, caller_max)
        self._activity = activity

    def caller_max(self, caller: SharingParty) -> int:
        """Return how many turns this caller may have at once, now."""
        return 1 if self._activity.has_others(caller) else super().caller_max(caller)

    def _group_max(self, caller: SharingParty) -> int:
        if not caller.is_anonymous and self._activity.has_others(caller):
            return 1
        return super()._group_max(caller)

    def try_acquire(self, caller: SharingParty, amount: int = 1) -> bool:
        """Take a turn where it fits, as `Shares.try_acquire`, and count the caller as at work."""
        self._activity.note(caller)
        return super().try_acquire(caller, amount)


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

    async def pause(self, caller: SharingParty, amount: int) -> None:
        """Wait until `amount` bytes that have just come are within the caller's rate."""
        if seconds := self.delay_seconds(caller, amount):
            await asyncio.sleep(seconds)

    def delay_seconds(self, caller: SharingParty, amount: int) -> float:
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


class WorkerShares:
    """Everything that callers share in one worker process."""

    def __init__(self, database_pool_size: int) -> None:
        """Leave some of the database connections for token look-ups, live tails and compaction."""
        at_once = max(1, database_pool_size - limits.RESERVED_CONNECTIONS_ITEMS)
        self.activity = Activity()
        self.body_rate = BodyRate(self.activity)
        self.turns = Turns(at_once, min(at_once, limits.CALLER_REQUESTS_ITEMS_MAX), self.activity)
        self.body_bytes = FairQueue(
            "bytes of request bodies",
            limits.REQUEST_BODIES_BYTES_MAX,
            limits.CALLER_REQUEST_BODIES_BYTES_MAX,
        )
        self.decoded_bytes = FairQueue(
            "bytes of batches being decoded", limits.DECODING_BYTES_MAX, limits.BATCH_BYTES_MAX
        )
        self.unread_bytes = Shares(
            "bytes of unread answers",
            limits.UNSENT_RESPONSE_BYTES_MAX,
            limits.CALLER_UNSENT_RESPONSE_BYTES_MAX,
        )
        self.streams = Shares(
            "streams at full resolution",
            limits.FULL_SCAN_STREAMS_MAX,
            limits.CALLER_FULL_SCAN_STREAMS_MAX,
        )
        self.tails = Shares("live tails", limits.LIVE_STREAMS_MAX, limits.CALLER_LIVE_STREAMS_MAX)
