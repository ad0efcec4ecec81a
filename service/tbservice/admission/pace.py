"""The pace of a caller: so many requests, connections or refusals a second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from tbservice import limits

PACE_BURST_SECONDS: Final = 2.0
"""Seconds of the requests of an account or address that may come at once, after a pause.

Their number per second is a setting, of an address without an account.
"""

PACED_CALLERS_ITEMS_MAX: Final = 10_000
"""Accounts, addresses and networks (items) of which a worker remembers how many requests came."""


class Pace:
    """The time until which the requests of each caller last at its pace, as far as they are known.

    A request begins at most `PACE_BURST_SECONDS` before that, so that a caller that was quiet may
    send as many at once. Call its methods in the event loop only.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with all callers quiet; `clock` returns seconds."""
        self._clock = clock
        self._busy_until: OrderedDict[str, float] = OrderedDict()

    def count(
        self,
        rates: Sequence[tuple[str, float]],
        wait_seconds_max: float = limits.PACE_WAIT_SECONDS_MAX,
    ) -> float | None:
        """Count a request; return the seconds that it must wait for.

        Returns None, and counts nothing, if these were more than `wait_seconds_max`.

        Args:
            rates: Callers of the request, each with its requests per second.
            wait_seconds_max: Seconds that it may wait for.
        """
        now = self._clock()
        begins = {name: max(now, self._busy_until.get(name, now)) for name, _rate in rates}
        seconds = max(begins.values()) - now - PACE_BURST_SECONDS
        if seconds > wait_seconds_max:
            return None

        for name, rate in rates:
            self._busy_until[name] = begins[name] + 1 / rate
            self._busy_until.move_to_end(name)
        while (
            len(self._busy_until) > PACED_CALLERS_ITEMS_MAX
            or next(iter(self._busy_until.values())) < now
        ):
            self._busy_until.popitem(last=False)
        return max(0.0, seconds)

    def find_busiest(self, rates: Sequence[tuple[str, float]]) -> int:
        """Return the index of the caller, of these, whose requests last the longest."""
        until = [self._busy_until.get(name, 0.0) for name, _rate in rates]
        return until.index(max(until))

    def uncount(self, rates: Sequence[tuple[str, float]]) -> None:
        """Take back what `count` counted of a request that did not begin."""
        for name, rate in rates:
            if name in self._busy_until:
                self._busy_until[name] -= 1 / rate
