"""Turns: a request is worked on while it holds one."""

from __future__ import annotations

from tbservice.admission.contention import Activity
from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller


class Turns(FairQueue):
    """Turns of requests. A caller has one at a time while others work, too.

    Requests that compute hold Python's lock in turns, so each of them slows every other one: with three of an
    attacker's beside it, a read takes four times as long as alone (`make bench ARGS=fairness`).
    """

    def __init__(self, total: int, caller_max: int, activity: Activity) -> None:
        super().__init__("requests being worked on", total, caller_max)
        self._activity = activity

    def caller_max(self, caller: Caller) -> int:
        """Return how many turns this caller may have at once, now."""
        return 1 if self._activity.has_others(caller) else super().caller_max(caller)

    def _group_max(self, caller: Caller) -> int:
        if not caller.is_anonymous and self._activity.has_others(caller):
            return 1
        return super()._group_max(caller)

    def try_acquire(self, caller: Caller, amount: int = 1) -> bool:
        """Take a turn where it fits, as `Shares.try_acquire`, and count the caller as at work."""
        self._activity.note(caller)
        return super().try_acquire(caller, amount)


class Turn:
    """At most one turn, waited for and given back, perhaps more than once: see `bodies` and `answers`."""

    def __init__(self, turns: FairQueue, caller: Caller) -> None:
        self._turns = turns
        self._caller = caller
        self._is_held = False
        self._is_over = False

    def try_acquire(self) -> bool:
        """Take the turn where nobody has to be waited for; return whether it is held."""
        if not self._is_held:
            self._is_held = self._turns.try_acquire_now(self._caller)
        return self._is_held

    async def wait(self) -> None:
        """Take the turn, after waiting where that is needed. Raises TooManyRequests."""
        if not self._is_held and not self._is_over:
            await self._turns.wait(self._caller)
            self._is_held = True

    def release(self) -> None:
        """End the turn, if it is held."""
        if self._is_held:
            self._is_held = False
            self._turns.release(self._caller)

    def finish(self) -> None:
        """End the turn for good: the request is answered, and what else its client sends is not worked on."""
        self._is_over = True
        self.release()
