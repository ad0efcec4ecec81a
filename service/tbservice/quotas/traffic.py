"""Requests and exported bytes of workspaces: counted in memory, added to the database by seconds.

By workspace, and in it by person and by experiment; limits are on workspaces and accounts.

A worker knows what was stored when it looked last, and what it has counted since; that decides
whether a request is let in. So no request waits for a row that others change, and what other
workers have let in since counts at most `STORE_SECONDS` late.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import QuotaExceeded, ServiceError
from tbservice.quotas import room
from tbservice.quotas.tables import traffic_groups, workspace_traffic
from tbservice.types.grants import Scope
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.quotas import (
    EXPERIMENT,
    MONTHLY,
    NO_TRAFFIC,
    OTHERS,
    PERSON,
    UNITS,
    GroupKey,
    Traffic,
)

STORE_SECONDS: Final = 10.0
"""Seconds after which a worker adds what it has counted; a crash loses what came since."""

KNOWN_WORKSPACES_ITEMS_MAX: Final = 10_000
"""Workspaces (items) above which a worker forgets those that nothing is to be stored of."""

_LIMITS_OF: Final[dict[Scope, tuple[str, ...]]] = {
    Scope.READ: ("requests", "export_bytes"),
    Scope.APPEND: ("requests",),
    Scope.ADMIN: (),
}
"""The limits by which a request is refused that needs a scope: what manages a workspace, or shares
and deletes experiments, is counted, and never refused.
"""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A limit of a month, and what was used of it when this worker looked last."""

    name: str
    holder: str
    """`workspace` or `account`."""
    limit: int
    used: int


@dataclass(slots=True)
class _Counter:
    """Counts of a workspace that are not stored yet, and its limits.

    `allowances` are of a month that ends at `ends`, and are not looked at again before
    `fresh_until`; both are monotonic seconds.
    """

    pending: Traffic = NO_TRAFFIC
    groups: dict[GroupKey, list[int]] = field(default_factory=dict)
    """Requests and exported bytes of these that are not stored yet."""
    allowances: tuple[Allowance, ...] = ()
    month: workspace_traffic.Month | None = None
    ends: float = 0.0
    fresh_until: float = 0.0
    is_wanted: bool = False
    """Whether the thread is to look at it now."""

    def add(self, groups: Iterable[GroupKey], index: int, amount: int) -> None:
        """Count requests (index 0) or bytes (1) for people and experiments."""
        for group in groups:
            counts = self.groups.get(group)
            if counts is None:
                is_full = len(self.groups) >= 2 * traffic_groups.TRAFFIC_GROUPS_ITEMS_MAX
                shown = (group[0], OTHERS) if is_full else group
                counts = self.groups.setdefault(shown, [0, 0])
            counts[index] += amount

    def take(self, added: Traffic, groups: dict[GroupKey, Traffic]) -> None:
        """Take away what is stored."""
        self.pending = Traffic(
            self.pending.requests - added.requests,
            self.pending.export_bytes - added.export_bytes,
        )
        for group, stored in groups.items():
            counts = self.groups[group]
            counts[:] = counts[0] - stored.requests, counts[1] - stored.export_bytes
            if not any(counts):
                del self.groups[group]

    def list_allowances(self) -> tuple[Allowance, ...]:
        """Return the allowances, if they are of this month."""
        return self.allowances if time.monotonic() < self.ends else ()

    def is_used_up(self) -> bool:
        """Return whether requests are refused by one of the allowances."""
        return any(self.used(each) >= each.limit for each in self.allowances)

    def used(self, allowance: Allowance) -> int:
        """Return what is used of an allowance, with what is not stored yet."""
        pending: int = getattr(self.pending, allowance.name)
        return allowance.used + pending


class RequestTraffic:
    """The workspaces that one request is counted for, and what its answer adds to them."""

    def __init__(self, meter: TrafficMeter) -> None:
        self._meter = meter
        self._groups: dict[WorkspaceId, tuple[GroupKey, ...]] = {}
        self._member_of: WorkspaceId | None = None

    def count(
        self,
        workspace_id: WorkspaceId,
        scope: Scope,
        who: str,
        experiment_id: str | None = None,
        *,
        is_member: bool,
    ) -> None:
        """Count the request once for a workspace and who asks, and once for each experiment.

        Raises QuotaExceeded.
        """
        groups: tuple[GroupKey, ...] = ()
        if experiment_id is not None:
            groups = ((EXPERIMENT, experiment_id),)
        known = self._groups.get(workspace_id)
        if known is None:
            if is_member:
                self._member_of = workspace_id
            groups = ((PERSON, who), *groups)
            self._meter.count(workspace_id, _LIMITS_OF[scope], groups)
        elif groups and groups[0] not in known:
            self._meter.count_more(workspace_id, groups)
        else:
            return
        self._groups[workspace_id] = (known or ()) + groups

    def add_bytes(self, size: int) -> None:
        """Count bytes of the answer for each workspace whose grant the request got."""
        for workspace_id, groups in tuple(self._groups.items()):  # threads may add to it
            self._meter.add_bytes(workspace_id, size, groups)

    def list_fields(self) -> list[tuple[str, str]]:
        """Return the RateLimit fields of the answer: of limits of a member's workspace.

        As in draft-ietf-httpapi-ratelimit-headers-11.
        """
        if self._member_of is None:
            return []
        return self._meter.list_fields(self._member_of)


_REQUEST: Final[ContextVar[RequestTraffic | None]] = ContextVar("traffic", default=None)


def count_request(
    workspace_id: WorkspaceId,
    scope: Scope,
    who: str,
    experiment_id: str | None = None,
    *,
    is_member: bool = True,
) -> None:
    """Count the request of this task or thread, if it is one, for a workspace.

    Call it with each grant. `who` is a person's id, `LINKS` or `MACHINES`. Raises QuotaExceeded, of
    a request with a scope that quotas limit.
    """
    request = _REQUEST.get()
    if request is not None:
        request.count(workspace_id, scope, who, experiment_id, is_member=is_member)


class TrafficMeter:
    """The requests and exported bytes that a worker has counted, and a thread that stores them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._counters: dict[WorkspaceId, _Counter] = {}
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Store what was counted, and end the thread; wait for it a few seconds."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(limits.COMPACTION_STOP_SECONDS_MAX)

    def begin_request(self) -> RequestTraffic:
        """Return what counts a request from now on, in this task and the threads that it uses."""
        request = RequestTraffic(self)
        _REQUEST.set(request)
        return request

    def count(
        self, workspace_id: WorkspaceId, names: Iterable[str], groups: Iterable[GroupKey]
    ) -> None:
        """Count a request for a workspace, and in it for these.

        Raises QuotaExceeded if one of the limits is reached.
        """
        with self._lock:
            counter = self._counters.setdefault(workspace_id, _Counter())
            if time.monotonic() > counter.fresh_until and not counter.is_wanted:
                counter.is_wanted = True
                self._wake.set()
            for allowance in counter.list_allowances():
                if allowance.name in names and counter.used(allowance) >= allowance.limit:
                    raise _make_error(counter, allowance)
            counter.pending = counter.pending.plus(Traffic(requests=1))
            counter.add(groups, 0, 1)

    def count_more(self, workspace_id: WorkspaceId, groups: Iterable[GroupKey]) -> None:
        """Count a request, which was counted for the workspace, for these, too."""
        with self._lock:
            self._counters.setdefault(workspace_id, _Counter()).add(groups, 0, 1)

    def add_bytes(self, workspace_id: WorkspaceId, size: int, groups: Iterable[GroupKey]) -> None:
        """Count bytes of an answer."""
        with self._lock:
            counter = self._counters.setdefault(workspace_id, _Counter())
            counter.pending = counter.pending.plus(Traffic(export_bytes=size))
            counter.add(groups, 1, size)

    def list_fields(self, workspace_id: WorkspaceId) -> list[tuple[str, str]]:
        """Return the RateLimit fields for the limits of a workspace; none if it has no limit."""
        with self._lock:
            counter = self._counters.get(workspace_id)
            if counter is None or not (allowances := counter.list_allowances()):
                return []
            policies, states = [], []
            for each in allowances:
                name = each.name if each.holder == "workspace" else f"{each.holder}_{each.name}"
                unit = ';qu="content-bytes"' if each.name == "export_bytes" else ""
                rest = max(0, each.limit - counter.used(each))
                policies.append(f'"{name}";q={each.limit}{unit};w={_month_of(counter).seconds}')
                states.append(f'"{name}";r={rest};t={_seconds_left(counter)}')
        return [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states))]

    def store(self, *, is_due: bool = True) -> None:
        """Add to the database what was counted, and look at the limits of these workspaces.

        Only of those that are not fresh and had a request, unless `is_due`. Raises Unavailable;
        what was not stored is kept.
        """
        with self._storing:
            for workspace_id, counter in self._list_due(is_due=is_due):
                self._store_counter(workspace_id, counter)

    def _list_due(self, *, is_due: bool) -> list[tuple[WorkspaceId, _Counter]]:
        with self._lock:
            if len(self._counters) > KNOWN_WORKSPACES_ITEMS_MAX:
                counted = {each: own for each, own in self._counters.items() if any(own.pending)}
                self._counters = counted
            return [
                (workspace_id, counter)
                for workspace_id, counter in self._counters.items()
                # Of those used up, none is counted: a greater limit is noticed here.
                if counter.is_wanted or (is_due and (any(counter.pending) or counter.is_used_up()))
            ]

    def _store_counter(self, workspace_id: WorkspaceId, counter: _Counter) -> None:
        now = time.monotonic()
        with self._lock:
            added = counter.pending
            groups = {group: Traffic(*counts) for group, counts in counter.groups.items()}
        month, allowances = None, tuple[Allowance, ...]()
        with self._database.transaction(workspace_id) as db:
            if workspace_traffic.exist(db):  # else, before the migration, it is not counted
                if (any(added) or groups) and workspace_traffic.lock_workspace(db, workspace_id):
                    workspace_traffic.add(db, workspace_id, added)
                    traffic_groups.add(db, workspace_id, groups)
                month, allowances = workspace_traffic.read_month(db), _look(db, workspace_id)
        with self._lock:
            counter.take(added, groups)
            counter.month, counter.allowances = month, allowances
            counter.ends = now + (0.0 if month is None else month.seconds_left)
            counter.fresh_until = now + STORE_SECONDS
            counter.is_wanted = False

    def _run(self) -> None:
        due = time.monotonic() + STORE_SECONDS
        is_last = False
        while not is_last:
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            is_last = self._is_stopping
            is_due = is_last or time.monotonic() >= due
            if is_due:
                due = time.monotonic() + STORE_SECONDS
            try:
                self.store(is_due=is_due)
            except ServiceError as error:  # no database: what was counted is kept
                _log.warning("requests and exported bytes were not stored: %s", error)
            except Exception:  # noqa: BLE001 - else the thread ends, and nothing more is counted
                _log.exception("storing requests and exported bytes failed")


def _look(db: Connection, workspace_id: WorkspaceId) -> tuple[Allowance, ...]:
    """Return the limits on what a workspace has in a month, its own and those of its account."""
    allowances = []
    for level in room.find_levels(db, workspace_id):
        limits_by_name = level.quota.as_dict()
        if all(limits_by_name[name] is None for name in MONTHLY):
            continue
        used = NO_TRAFFIC
        for each in level.visit(db):
            used = used.plus(workspace_traffic.find_present(db, each))
        for name in MONTHLY:
            limit = limits_by_name[name]
            if limit is not None:
                allowances.append(Allowance(name, level.holder, limit, getattr(used, name)))
    return tuple(allowances)


def _month_of(counter: _Counter) -> workspace_traffic.Month:
    assert counter.month is not None  # noqa: S101 - set with the allowances
    return counter.month


def _seconds_left(counter: _Counter) -> int:
    """Return the seconds until the month ends, at least 1."""
    return max(1, math.ceil(counter.ends - time.monotonic()))


def _make_error(counter: _Counter, allowance: Allowance) -> QuotaExceeded:
    return QuotaExceeded(
        allowance.name,
        UNITS[allowance.name],
        counter.used(allowance),
        allowance.limit,
        1,
        allowance.holder,
        resets=(_month_of(counter).ends_at, _seconds_left(counter)),
    )
