"""The places of a queue, within each other, and which of them is served first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice, pairwise
from typing import Final

from tbservice.admission.shares import Caller

_PLACES_TRIED_MAX: Final = 8
"""Places (items) inside another that are tried at a time before the next release.

Only few can lack a share of their own, since they then use a large part of that of the place.
"""

_LINES_TRIED_MAX: Final = 8
"""Lines (items) of an account or of strangers, likewise."""

_CLIENTS_TRIED_MAX: Final = 2

_PLACES_ITEMS_MAX: Final = 1_000
"""Places (items) inside another from which those are dropped that neither use nor wait."""


@dataclass(slots=True)
class Waiter:
    """One waiting request; `turn` gets its result when `amount` was acquired for the caller."""

    caller: Caller
    amount: int
    turn: asyncio.Future[None]


Clients = dict[str, deque[Waiter]]
"""The waiting requests of a line, by client."""


@dataclass(slots=True)
class Place:
    """A family, an account, its readers, or strangers: those inside it divide what it gets.

    Start-time fair queueing (P. Goyal, H. Vin and H. Cheng, SIGCOMM 1996): `cost` is what a place
    has used of late, and `clock` the least of those inside it that use or wait for anything. One
    that had nothing to do begins again at the clock, so that it neither saves up nor owes.
    """

    places: dict[str, Place] = field(default_factory=dict)
    lines: dict[str, Clients] = field(default_factory=dict)
    cost: float = 0.0
    clock: float = 0.0
    used: int = 0
    waiting: int = 0

    def find(self, path: tuple[str, ...]) -> list[Place]:
        """Return this place and those inside it by their names; make those that are missing."""
        found = [self]
        for name in path:
            parent = found[-1]
            if name not in parent.places:
                parent.places[name] = Place()
            found.append(parent.places[name])
        return found

    def find_lines(self, path: tuple[str, ...]) -> dict[str, Clients]:
        """Return the lines of the place at the end of a path; none if there is no such place."""
        place: Place | None = self
        for name in path:
            place = place and place.places.get(name)
        return {} if place is None else place.lines

    def add(self, path: tuple[str, ...], amount: int, cost: float) -> None:
        """Count that the place at the end of a path uses more or less, which has this cost."""
        found = self.find(path)
        for parent, place in pairwise(found):
            parent.let_begin(place)
            place.cost += cost
            place.used += amount
        self.used += amount
        self._forget(path, found)

    def count_waiting(self, path: tuple[str, ...], amount: int) -> None:
        """Count that more or fewer requests wait in the place at the end of a path."""
        found = self.find(path)
        for parent, place in pairwise(found):
            parent.let_begin(place)
            place.waiting += amount
        self.waiting += amount
        self._forget(path, found)

    def let_begin(self, place: Place) -> None:
        """Let a place inside this one that had nothing to do begin at the clock."""
        if place.is_idle:
            costs = (each.cost for each in self.places.values() if not each.is_idle)
            self.clock = max(self.clock, min(costs, default=0.0))
            place.cost = max(place.cost, self.clock)

    @staticmethod
    def _forget(path: tuple[str, ...], found: list[Place]) -> None:
        """Drop the places of a path that use nothing and wait for nothing, and owe nothing."""
        for name, (parent, place) in zip(path, pairwise(found), strict=True):
            if parent.is_idle:
                parent.places.clear()
                return
            owes = place.cost > parent.clock and len(parent.places) <= _PLACES_ITEMS_MAX
            if place.is_idle and not owes:
                del parent.places[name]
                return

    @property
    def is_idle(self) -> bool:
        """Whether it uses nothing and waits for nothing."""
        return not self.used and not self.waiting

    def first_clients(self) -> Iterator[deque[Waiter]]:
        """Yield the queues of the clients to serve, the first one first, a few of each place.

        Of the places inside another, that comes first which uses the least now, and then that which
        has used the least; of lines and clients, that which was served longest ago.
        """
        waiting = [place for place in self.places.values() if place.waiting]
        for place in nsmallest(_PLACES_TRIED_MAX, waiting, key=lambda it: (it.used, it.cost)):
            yield from place.first_clients()
        for clients in islice(self.lines.values(), _LINES_TRIED_MAX):
            yield from islice(clients.values(), _CLIENTS_TRIED_MAX)
