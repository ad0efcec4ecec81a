"""Places for work, shared out so that no workspace can take all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable

from tbservice.errors import TooManyRequests


class FairSlots:
    """So many places, of which one key takes a share at most; whoever finds none waits for a bounded time.

    For one event loop.
    """

    def __init__(self, count: int, share: int, waiting_max: int, seconds_max: float) -> None:
        """`share` is the places of one key, `waiting_max` how many of one key may wait, for `seconds_max` each."""
        self._free = count
        self._share = share
        self._waiting_max = waiting_max
        self._seconds_max = seconds_max
        self._taken: Counter[Hashable] = Counter()
        self._waiting: dict[asyncio.Future[None], Hashable] = {}

    async def acquire(self, key: Hashable) -> None:
        """Take a place, in the order of asking among those of one key. Raises TooManyRequests."""
        if self._free and self._taken[key] < self._share:
            self._take(key)
            return
        if sum(other == key for other in self._waiting.values()) >= self._waiting_max:
            raise TooManyRequests("too many requests of this workspace wait for TensorBoard's handlers; try again")
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = key
        try:
            async with asyncio.timeout(self._seconds_max):
                await turn
        except BaseException as error:
            self._waiting.pop(turn, None)
            if turn.done() and not turn.cancelled():  # given a place in the same moment
                self.release(key)
            if isinstance(error, TimeoutError):
                raise TooManyRequests(
                    f"TensorBoard's handlers are busy with this workspace for over {self._seconds_max:g} seconds; "
                    "try again"
                ) from error
            raise

    def release(self, key: Hashable) -> None:
        """Give a place back, to the first waiting one whose key has less than its share."""
        self._free += 1
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
        for turn, waiting in self._waiting.items():
            if self._taken[waiting] < self._share and not turn.done():
                del self._waiting[turn]
                self._take(waiting)
                turn.set_result(None)
                return

    def _take(self, key: Hashable) -> None:
        self._free -= 1
        self._taken[key] += 1
