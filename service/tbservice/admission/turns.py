"""The turn of one request: it is worked on while it holds one."""

from __future__ import annotations

from tbservice.admission.callers import Caller
from tbservice.admission.shares import FairQueue


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
