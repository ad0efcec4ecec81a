"""Sessions in columns: with 100,000 of them, an object for each would cost half of the time."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tbservice.types.identifiers import Float64s, Int64s
from tbwire.hparams import HparamValue, SessionEnd, Status

HPARAMS_RUNNING_SECONDS_MAX: Final = 900.0
"""Seconds since the newest data of a session without an end for which it counts as running."""

NO_POSITION: Final = -1


class HparamNames:
    """The names of a session's hyperparameters, shared by all sessions with the same ones."""

    __slots__ = ("names", "positions")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.positions = {name: position for position, name in enumerate(names)}


@dataclass(frozen=True, slots=True)
class StoredStart:
    """A `SessionStart` in little memory: names and values apart."""

    names: HparamNames
    values: tuple[HparamValue, ...]
    group_name: str = ""
    model_uri: str = ""
    monitor_url: str = ""
    start_time: float = 0.0

    @property
    def hparams(self) -> dict[str, HparamValue]:
        """The hyperparameters by name."""
        return dict(zip(self.names.names, self.values, strict=True))


NO_START: Final = StoredStart(HparamNames(()), ())
"""The start of a session that logged none."""


@dataclass(frozen=True, slots=True)
class SessionTable:
    """Sessions by name; each sequence has an element per session.

    `start_wall_times` are those of the records, in seconds. For sessions whose status is needed,
    `ends` has the end, if there is one, and `newest` the greatest wall time of all data otherwise.
    """

    names: Sequence[str]
    starts: Sequence[StoredStart]
    start_wall_times: Float64s
    ends: Mapping[int, SessionEnd] = field(default_factory=dict)
    newest: Mapping[int, float] = field(default_factory=dict)
    now: float = field(default_factory=time.time)

    def __len__(self) -> int:
        return len(self.names)

    def status(self, session: int) -> Status:
        """Return the status of a session: that of its end, or by the age of its newest data.

        A session without an end is running while its data are younger than
        `HPARAMS_RUNNING_SECONDS_MAX`; after that, or without data, its status is unknown.
        """
        end = self.ends.get(session)
        if end is not None:
            return end.status
        age = self.now - self.newest.get(session, -np.inf)
        is_running = age < HPARAMS_RUNNING_SECONDS_MAX
        return Status.STATUS_RUNNING if is_running else Status.STATUS_UNKNOWN

    def list_allowed(self, statuses: Collection[Status]) -> list[int]:
        """Return the sessions with one of these statuses."""
        if allows_all(statuses):
            return list(range(len(self)))
        return [session for session in range(len(self)) if self.status(session) in statuses]


def allows_all(statuses: Collection[Status]) -> bool:
    """Return whether every session has one of these statuses, whatever it is."""
    return len(statuses) == len(Status)


def depends_on_age(statuses: Collection[Status]) -> bool:
    """Return whether the age of data decides which sessions have one of these statuses."""
    return (Status.STATUS_RUNNING in statuses) != (Status.STATUS_UNKNOWN in statuses)


@dataclass(frozen=True, slots=True)
class SessionGroups:
    """Groups of sessions, by name; `group_of` has the group of each session.

    Sessions that are in no group, as their status is not allowed, have the group -1. The sessions
    of group i are `sessions[offsets[i]:offsets[i + 1]]`, ascending, which is their order by name.
    """

    names: list[str]
    group_of: Int64s
    sessions: Int64s
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.names)

    def members(self, group: int) -> list[int]:
        """Return the sessions of a group, at least one, by name."""
        members: list[int] = self.sessions[self.offsets[group] : self.offsets[group + 1]].tolist()
        return members

    @property
    def first_members(self) -> Int64s:
        """The first session by name of each group."""
        return self.sessions[self.offsets[:-1]]


def group_sessions(table: SessionTable, sessions: Sequence[int]) -> SessionGroups:
    """Return these sessions by the group that they name; one that names none is a group alone."""
    keys = _group_keys(table, sessions)
    names = sorted(set(keys))
    index_of = {name: index for index, name in enumerate(names)}
    groups = np.array([index_of[key] for key in keys], np.int64)
    ids = np.array(sessions, np.int64)
    group_of = np.full(len(table), NO_POSITION, np.int64)
    group_of[ids] = groups
    order = np.argsort(groups, kind="stable")
    offsets = np.searchsorted(groups[order], np.arange(len(names) + 1))
    return SessionGroups(names, group_of, ids[order], offsets)


def separate_sessions(table: SessionTable, sessions: Sequence[int]) -> SessionGroups:
    """Return each of these sessions as a group alone, in their order.

    A group still has the name of the group that its session names, so that names may be equal.
    """
    ids = np.array(sessions, np.int64)
    group_of = np.full(len(table), NO_POSITION, np.int64)
    group_of[ids] = np.arange(len(ids))
    return SessionGroups(_group_keys(table, sessions), group_of, ids, np.arange(len(ids) + 1))


def _group_keys(table: SessionTable, sessions: Sequence[int]) -> list[str]:
    return [table.starts[session].group_name or table.names[session] for session in sessions]


def session_values(table: SessionTable, name: str) -> list[HparamValue | None]:
    """Return each session's value of a hyperparameter; None for one that has none."""
    values: list[HparamValue | None] = []
    names, position = None, None
    for start in table.starts:
        if start.names is not names:
            names, position = start.names, start.names.positions.get(name)
        values.append(None if position is None else start.values[position])
    return values


def count_values(table: SessionTable) -> Counter[str]:
    """Return how many groups have each hyperparameter, or a few more: an upper bound.

    Sessions of a group that have other hyperparameters than the rest of it are counted for each.
    """
    keys_by_names: defaultdict[HparamNames, set[str]] = defaultdict(set)
    for start, key in zip(table.starts, _group_keys(table, range(len(table))), strict=True):
        keys_by_names[start.names].add(key)
    counts: Counter[str] = Counter()
    for names, keys in keys_by_names.items():
        for name in names.names:
            counts[name] += len(keys)
    return counts


def group_values(
    groups: SessionGroups, values: Sequence[HparamValue | None]
) -> list[HparamValue | None]:
    """Return each group's value of a hyperparameter, of its sessions' `values`."""
    of_groups = [values[session] for session in groups.first_members.tolist()]
    for group in np.flatnonzero(np.diff(groups.offsets) > 1).tolist():
        of_groups[group] = agreed([values[session] for session in groups.members(group)])
    return of_groups


def agreed(values: Sequence[HparamValue | None]) -> HparamValue | None:
    """Return the value that all sessions of a group have that have any; None if they disagree."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    first = present[0]
    return first if all(_is_same(value, first) for value in present) else None


def agreed_hparams(starts: Sequence[StoredStart]) -> dict[str, HparamValue]:
    """Return the hyperparameters of a group, without those on which its sessions disagree."""
    if len(starts) == 1:
        return starts[0].hparams
    by_name: defaultdict[str, list[HparamValue]] = defaultdict(list)
    for start in starts:
        for name, value in zip(start.names.names, start.values, strict=True):
            by_name[name].append(value)
    values = {name: agreed(listed) for name, listed in by_name.items()}
    return {name: value for name, value in values.items() if value is not None}


def _is_same(value: HparamValue, other: HparamValue) -> bool:
    is_nan = value != value and other != other  # noqa: PLR0124 - only NaN differs from itself
    return type(value) is type(other) and (value == other or is_nan)
