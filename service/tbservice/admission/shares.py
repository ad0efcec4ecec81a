"""Count what each caller uses of a bounded resource."""

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
"""The group of all callers of which only the address is known."""

_SIGNING_IN: Final = "signing in"
"""The group of callers by address alone that sign in."""

_READERS: Final = "readers"
_ACCOUNT: Final = "account"
_FAMILY_QUARTERS: Final = (3, 2, 1)
"""Quarters of a total for a family, by its level from the root; the last of all further levels.

Whatever one family uses, its siblings have a quarter left.
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a share: an account, its readers, or a client address."""

    key: str
    """The address; or the account, which groups its own requests and those of its readers."""

    is_anonymous: bool
    """Whether only the address is known. All of these form one group with its own share."""

    line: str = field(compare=False)
    """The line its requests wait in; readers of one experiment without a token share a line."""

    client: str = field(compare=False)
    """Client whose requests are served in order: within a line, clients are served in rotation."""

    is_reader: bool = False
    """Whether it has a token that only reads, or a public link: these are passed on to others.

    All readers of an account together leave half of its share to the account itself.
    """

    network: str = field(default="", compare=False)
    """The address, or the IPv6 network of many customers; empty if the address does not matter."""

    families: tuple[str, ...] = field(default=(), compare=False)
    """Families that the account belongs to, each part of the one before it; the last is its own.

    Each is a person with all whom they invited and whom those invited in turn: anybody can invite
    themselves again and again. The first is that of a person whom nobody invited. Empty if no
    person is known.
    """

    is_signing_in: bool = False
    """Whether it is an address at the pages to sign in, which have a share of their own."""

    @property
    def group(self) -> str:
        """The callers that have a share together: those of an account, or strangers."""
        if not self.is_anonymous:
            return self.key
        return _SIGNING_IN if self.is_signing_in else _ANONYMOUS

    @property
    def path(self) -> tuple[str, ...]:
        """The places in a queue that it belongs to, from the largest; see `FairQueue`."""
        return (*self.families, self.group, _READERS if self.is_reader else _ACCOUNT)


class Shares:
    """The use that callers make of one bounded resource. Thread-safe.

    An account may use `caller_max`, its readers at most half of that. All callers of which only
    the address is known may use a quarter of the total together, each of them half of that, and an
    IPv6 network of many customers three quarters: an attacker has many addresses and may have a
    token too, and others need a remainder. People who sign in have a share as large as that of all
    addresses. All accounts of a family may use three quarters of the total together, those of a
    family inside it half, further down a quarter; but always as much as one account. A single use
    may exceed its share while nothing else is in use, because it could never start otherwise.
    """

    def __init__(self, what: str, total: int, caller_max: int) -> None:
        """Count from zero.

        Args:
            what: The resource with its unit, in plural: for errors and metrics.
            total: Limit of all callers together.
            caller_max: Limit of one account.
        """
        self.what = what
        self._total = total
        self._caller_max = caller_max
        self._used = 0
        self._by_group: Counter[str] = Counter()
        self._by_network: Counter[str] = Counter()
        self._by_family: Counter[str] = Counter()
        self._by_caller: Counter[Caller] = Counter()
        self._lock = threading.Lock()

    def caller_max(self, caller: Caller) -> int:
        """Return the caller's share: what it may use at once."""
        if caller.is_anonymous:
            return max(1, min(self._caller_max, self._group_max(caller)) // 2)
        return max(1, self._caller_max // 2) if caller.is_reader else self._caller_max

    def is_full(self) -> bool:
        """Return whether the total is used up, so that no caller can acquire anything."""
        return self._used >= self._total_max()

    def has_room(self, caller: Caller, amount: int) -> bool:
        """Return whether `amount` fits the caller's share, its group's and the total."""
        return (
            _fits(self._by_caller[caller], amount, self.caller_max(caller))
            and _fits(self._by_group[caller.group], amount, self._group_max(caller))
            and self._has_network_room(caller, amount)
            and self._has_family_room(caller, amount)
            and _fits(self._used, amount, self._total_max())
        )

    def try_acquire(self, caller: Caller, amount: int = 1) -> bool:
        """Acquire `amount` if it fits; return whether it did."""
        with self._lock:
            fits = self.has_room(caller, amount)
            if fits:
                self._add(caller, amount)
            return fits

    def acquire(self, caller: Caller, amount: int = 1) -> None:
        """Acquire `amount` without waiting. Raises TooManyRequests if it does not fit."""
        if not self.try_acquire(caller, amount):
            raise self.over_share_error(caller)

    def acquire_unchecked(self, caller: Caller, amount: int) -> None:
        """Count `amount` as used even if it does not fit: for work that has already started."""
        with self._lock:
            self._add(caller, amount)

    def release(self, caller: Caller, amount: int = 1) -> None:
        """Release `amount` that the caller acquired."""
        with self._lock:
            self._add(caller, -amount)

    def over_share_error(self, caller: Caller) -> TooManyRequests:
        """Count a refusal in the metrics and return its error."""
        metrics.observe_over_share(self.what)
        users = "callers without a token" if caller.is_anonymous else "one account"
        share = f"{self.caller_max(caller)} of {self._total} {self.what}"
        return TooManyRequests(
            f"{users} may use {share} of this server at once, and others use it too; try again"
        )

    def _has_network_room(self, caller: Caller, amount: int) -> bool:
        """Return whether the network of an address has room; customers of one share it."""
        if not caller.is_anonymous or not caller.network:
            return True
        network_max = max(self.caller_max(caller), self._group_max(caller) * 3 // 4)
        return _fits(self._by_network[caller.network], amount, network_max)

    def _has_family_room(self, caller: Caller, amount: int) -> bool:
        """Return whether each family of an account has room."""
        return all(
            _fits(self._by_family[family], amount, self._family_max(level))
            for level, family in enumerate(caller.families)
        )

    def _family_max(self, level: int) -> int:
        quarters = _FAMILY_QUARTERS[min(level, len(_FAMILY_QUARTERS) - 1)]
        return max(self._caller_max, self._total * quarters // 4)

    def _total_max(self) -> int:
        return self._total

    def _group_max(self, caller: Caller) -> int:
        return max(1, self._total // 4) if caller.is_anonymous else self._caller_max

    def _add(self, caller: Caller, amount: int) -> None:
        self._used += amount
        _count(self._by_group, caller.group, amount)
        if caller.is_anonymous and caller.network:
            _count(self._by_network, caller.network, amount)
        for family in caller.families:
            _count(self._by_family, family, amount)
        _count(self._by_caller, caller, amount)


def _count(counter: Counter[_Key], key: _Key, amount: int) -> None:
    counter[key] += amount
    # Counters keep zeros: with a key for each address, memory would grow for ever.
    if not counter[key]:
        del counter[key]


def _fits(used: int, amount: int, maximum: int) -> bool:
    # `or not used`: a single use that is larger than the share could never start.
    return used + amount <= maximum or not used
