"""Counting what each caller uses of a bounded resource."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tbservice import metrics
from tbservice.errors import TooManyRequests

_Key = TypeVar("_Key", bound=Hashable)

_ANONYMOUS: Final = "anonymous"
"""The group of all callers without a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A workspace, its readers, or a client address without a valid token: who uses a share."""

    key: str
    """The address; or the workspace, whose own requests and readers' form one group."""

    is_anonymous: bool
    """Whether only the address is known. All of these form one group, with a share of its own."""

    line: str = field(compare=False)
    """The line its requests wait in: of anonymous callers, all that read the same experiment."""

    is_reader: bool = False
    """Whether its token only reads: such tokens are passed on, and leave half to the workspace."""


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
        self._by_caller: Counter[Caller] = Counter()
        self._lock = threading.Lock()

    def caller_max(self, caller: Caller) -> int:
        """Return what this caller may use at once."""
        if caller.is_anonymous:
            return max(1, min(self._caller_max, self._group_max(caller)) // 2)
        return max(1, self._caller_max // 2) if caller.is_reader else self._caller_max

    def is_full(self) -> bool:
        """Return whether nobody can take anything now."""
        return self._used >= self._total

    def has_room(self, caller: Caller, amount: int) -> bool:
        """Return whether `amount` fits the caller's share and the total now."""
        return (
            _fits(self._by_caller[caller], amount, self.caller_max(caller))
            and _fits(self._by_group[_group_of(caller)], amount, self._group_max(caller))
            and _fits(self._used, amount, self._total)
        )

    def try_acquire(self, caller: Caller, amount: int = 1) -> bool:
        """Take `amount` for the caller where it fits its share and the total; return whether it did."""
        with self._lock:
            fits = self.has_room(caller, amount)
            if fits:
                self._add(caller, amount)
            return fits

    def acquire(self, caller: Caller, amount: int = 1) -> None:
        """Take `amount` at once. Raises TooManyRequests where it does not fit."""
        if not self.try_acquire(caller, amount):
            raise self.over_share_error(caller)

    def acquire_unchecked(self, caller: Caller, amount: int) -> None:
        """Count `amount` as used without a check: what has begun goes on."""
        with self._lock:
            self._add(caller, amount)

    def release(self, caller: Caller, amount: int = 1) -> None:
        """Return what was taken."""
        with self._lock:
            self._add(caller, -amount)

    def over_share_error(self, caller: Caller) -> TooManyRequests:
        """Return the error for a caller that is over its share, or comes when everything is taken."""
        metrics.observe_over_share(self.what)
        whose = "callers without a token" if caller.is_anonymous else "one workspace"
        share = f"{self.caller_max(caller)} of {self._total} {self.what}"
        return TooManyRequests(
            f"{whose} may use {share} of this server at once, and others use it, too; try again"
        )

    def _group_max(self, caller: Caller) -> int:
        return max(1, self._total // 4) if caller.is_anonymous else self._caller_max

    def _add(self, caller: Caller, amount: int) -> None:
        self._used += amount
        _count(self._by_group, _group_of(caller), amount)
        _count(self._by_caller, caller, amount)


def _count(counter: Counter[_Key], key: _Key, amount: int) -> None:
    counter[key] += amount
    if not counter[key]:
        del counter[key]


def _group_of(caller: Caller) -> str:
    return _ANONYMOUS if caller.is_anonymous else caller.key


def _fits(used: int, amount: int, maximum: int) -> bool:
    return used + amount <= maximum or not used
