"""Reads the sessions of a source, one experiment or a comparison, and their metrics on demand.

Each method reads all it needs with the same few statements, however many sessions there are. Each
reads in a snapshot of its own: what is deleted in between is missing in the later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice.hparams.metric_rows import MetricRows
from tbservice.hparams.owners import find_owner, find_root, metric_group
from tbservice.hparams.record_cache import ExperimentRecords
from tbservice.hparams.record_reader import read_ends, read_records
from tbservice.hparams.requests import MetricId
from tbservice.hparams.schema import LoggedSummary, merge_summaries
from tbservice.hparams.session_table import NO_POSITION, SessionTable, StoredStart
from tbservice.reading.comparison import ComparisonReader, Source, name_in_comparison
from tbservice.reading.source import ExperimentReader
from tbservice.series.tables import hparams_rows
from tbservice.series.tables.hparams_rows import LastPoints
from tbservice.types.identifiers import ExperimentId, Int64s
from tbwire.hparams import ExperimentSummary, SessionEnd

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_OWN_GROUP = 0
"""The index of the group of the metrics in a session's own run."""


@dataclass(frozen=True, slots=True)
class _OwnedRuns:
    """The runs of an experiment that belong to a session.

    `run_ids` ascend. `sessions` has the session of each run, `groups` the index of the group of its
    metrics in the list of all groups.
    """

    reader: ExperimentReader
    run_ids: Int64s
    sessions: Int64s
    groups: Int64s

    def read(
        self,
        query: Callable[Concatenate[Connection, ExperimentId, _Parameters], _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Call a query of the experiment in a snapshot of its own."""
        return self.reader.read(lambda db, grant: query(db, grant.experiment_id, *args, **kwargs))

    def runs_of(self, sessions: Collection[int]) -> Int64s:
        """Return the ids of the runs of these sessions."""
        wanted = np.fromiter(sessions, np.int64, len(sessions))
        return self.run_ids[np.isin(self.sessions, wanted)]

    def own_sessions(self, run_ids: Sequence[int]) -> list[int]:
        """Return the session that each run itself is, -1 for none."""
        sessions = np.full(len(run_ids), NO_POSITION)
        positions, rows = self.find(np.array(run_ids, np.int64))
        is_own = self.groups[positions] == _OWN_GROUP
        sessions[rows[is_own]] = self.sessions[positions[is_own]]
        return sessions.tolist()

    def find(self, run_ids: Int64s) -> tuple[Int64s, Int64s]:
        """Return the positions of the `run_ids` that are here, and their indices in `run_ids`."""
        if not len(self.run_ids):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        positions = np.searchsorted(self.run_ids, run_ids)
        positions[positions == len(self.run_ids)] = 0
        rows = np.flatnonzero(self.run_ids[positions] == run_ids)
        return positions[rows], rows


@dataclass(slots=True)
class SessionReader:
    """The sessions of a source, and the experiment summary that unites all of its experiments.

    `malformed` counts the records that were left out, because they cannot be decoded.
    """

    table: SessionTable
    declared: ExperimentSummary
    malformed: int
    _owned: Sequence[_OwnedRuns] = ()
    _groups: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise NotFound if an experiment was deleted: what was read since only looks complete."""
        for owned in self._owned:
            owned.reader.list_experiments()

    def read_metrics(self, metrics: Collection[MetricId]) -> tuple[MetricRows, list[MetricId]]:
        """Return the last points of these metrics of all sessions.

        The rows' metrics are indices into the list that is returned, which may have others too.
        """
        tags = {metric.tag for metric in metrics}
        return self._read_points(
            (owned, *owned.read(hparams_rows.list_last_points_of_tags, tags))
            for owned in self._owned
        )

    def read_all_metrics(self, sessions: Collection[int]) -> tuple[MetricRows, list[MetricId]]:
        """Return the last points of all metrics of some sessions, as `read_metrics` does."""
        return self._read_points(
            (owned, *owned.read(hparams_rows.list_last_points_of_runs, run_ids))
            for owned in self._owned
            if len(run_ids := owned.runs_of(sessions))
        )

    def list_metrics(self) -> set[MetricId]:
        """Return the metrics that any session has."""
        found: set[MetricId] = set()
        for owned in self._owned:
            run_ids, tag_ids = owned.read(hparams_rows.list_scalar_names)
            positions, rows = owned.find(run_ids)
            pairs = [
                divmod(pair, _TAG_ID_MAX)
                for pair in np.unique(_pair(owned.groups[positions], tag_ids[rows])).tolist()
            ]
            names = owned.read(hparams_rows.list_tag_names, sorted({tag for _, tag in pairs}))
            found |= {
                MetricId(self._groups[group], names[tag]) for group, tag in pairs if tag in names
            }
        return found

    def read_ends(self, sessions: Sequence[int]) -> None:
        """Add the ends of these sessions to the table.

        An end that is older than the start of its run is an earlier attempt's, and does not count.
        """
        ends: dict[int, SessionEnd] = {}
        for owned in self._owned:
            is_all = len(sessions) == len(self.table)
            run_ids = None if is_all else owned.runs_of(sessions)
            found = owned.reader.read(read_ends, run_ids)
            session_of = owned.own_sessions([run_id for run_id, _, _ in found])
            for session, (_, end, wall_time) in zip(session_of, found, strict=True):
                if session != NO_POSITION and wall_time >= self.table.start_wall_times[session]:
                    ends[session] = end
        self.table = replace(self.table, ends=ends)

    def read_ages(self, sessions: Sequence[int]) -> None:
        """Add to the table what tells which of these sessions run, of those without an end."""
        unfinished = [session for session in sessions if session not in self.table.ends]
        if unfinished:
            self.table = replace(self.table, newest=self._read_newest(unfinished))

    def _read_newest(self, sessions: Sequence[int]) -> dict[int, float]:
        """Return the greatest wall time of all that each of these sessions logged, in seconds."""
        newest = self.table.start_wall_times.copy()
        for owned in self._owned:
            run_ids = owned.runs_of(sessions)
            if len(run_ids):
                ids, wall_times = owned.read(hparams_rows.list_newest_wall_times, run_ids)
                positions, rows = owned.find(ids)
                np.maximum.at(newest, owned.sessions[positions], wall_times[rows])
        return dict(zip(sessions, newest[sessions].tolist(), strict=True))

    def _read_points(
        self, reads: Iterable[tuple[_OwnedRuns, LastPoints, dict[int, str]]]
    ) -> tuple[MetricRows, list[MetricId]]:
        codes: dict[MetricId, int] = {}
        parts = [
            self._to_rows(owned, points, tag_names, codes) for owned, points, tag_names in reads
        ]
        columns = [
            np.concatenate([np.empty(0, dtype), *(part[index] for part in parts)])
            for index, dtype in enumerate((np.int64, np.int64, np.float64, np.int64, np.float64))
        ]
        return MetricRows(*columns), list(codes)

    def _to_rows(
        self,
        owned: _OwnedRuns,
        points: LastPoints,
        tag_names: dict[int, str],
        codes: dict[MetricId, int],
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.generic]], ...]:
        """Return the columns of `MetricRows`; adds new metrics to `codes`."""
        positions, rows = owned.find(points.run_ids)
        groups, tag_ids = owned.groups[positions], points.tag_ids[rows]
        pairs, inverse = np.unique(_pair(groups, tag_ids), return_inverse=True)
        code_of = np.empty(len(pairs), np.int64)
        for index, pair in enumerate(pairs.tolist()):
            group, tag_id = divmod(pair, _TAG_ID_MAX)
            metric = MetricId(self._groups[group], tag_names.get(tag_id, ""))
            code_of[index] = codes.setdefault(metric, len(codes))
        return (
            owned.sessions[positions],
            code_of[inverse],
            points.values[rows],
            points.steps[rows],
            points.wall_times[rows],
        )


_TAG_ID_MAX = 2**40
"""Ids of tags are below: they come from a sequence."""


def _pair(groups: Int64s, tag_ids: Int64s) -> Int64s:
    """Return pairs as one number each, as `divmod(pair, _TAG_ID_MAX)`: these are sorted fast."""
    return groups * _TAG_ID_MAX + tag_ids


def open_sessions(source: Source) -> SessionReader:
    """Read the records of a source.

    Runs, sessions and the groups that sessions name have their experiment's name as a prefix in a
    comparison, as everywhere. Raises as `read_records`.
    """
    builder = _TableBuilder()
    malformed = 0
    summaries: list[LoggedSummary] = []
    for name, reader in _list_readers(source):
        records = reader.read(read_records)
        builder.add(name, reader, records)
        malformed += records.malformed
        summaries += records.summaries
    table, owned, groups = builder.build()
    return SessionReader(table, merge_summaries(summaries), malformed, owned, groups)


def _list_readers(source: Source) -> list[tuple[str | None, ExperimentReader]]:
    """Return the experiments of a source with their names in a comparison, None outside one."""
    if isinstance(source, ComparisonReader):
        return list(source.session_readers.items())
    assert isinstance(source, ExperimentReader)  # noqa: S101 - there are no other sources
    return [(None, source)]


class _TableBuilder:
    """Puts the sessions of several experiments into one table, by name."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._starts: list[StoredStart] = []
        self._wall_times: list[float] = []
        self._groups: dict[str, int] = {"": _OWN_GROUP}
        self._owned: list[_OwnedRuns] = []

    def add(self, name: str | None, reader: ExperimentReader, records: ExperimentRecords) -> None:
        """Add an experiment; `name` is its name in a comparison."""
        run_names, starts = records.run_names, records.starts
        runs = [run_names[run_id] for run_id in starts]
        session_of = dict(
            zip(runs, range(len(self._names), len(self._names) + len(runs)), strict=True)
        )
        self._wall_times += [records.wall_times[run_id] for run_id in starts]
        if name is None:
            self._names += runs
            self._starts += starts.values()
        else:
            self._names += [name_in_comparison(name, run) for run in runs]
            self._starts += [_prefix_group(start, name) for start in starts.values()]
        self._owned.append(self._own_runs(reader, run_names, session_of))

    def _own_runs(
        self, reader: ExperimentReader, run_names: Mapping[int, str], session_of: dict[str, int]
    ) -> _OwnedRuns:
        """Return the runs with a session; most are a session themselves."""
        root = find_root(session_of)
        run_ids = np.fromiter(run_names, np.int64, len(run_names))
        own = map(session_of.get, run_names.values(), repeat(NO_POSITION))
        sessions = np.fromiter(own, np.int64, len(run_names))
        groups = np.zeros(len(run_names), np.int64)
        names = list(run_names.values())
        for row in np.flatnonzero(sessions == NO_POSITION).tolist():
            owner = find_owner(names[row], session_of, root)
            if owner is not None:
                sessions[row] = session_of[owner]
                group = metric_group(names[row], owner)
                groups[row] = self._groups.setdefault(group, len(self._groups))
        order = np.argsort(run_ids)
        order = order[sessions[order] != NO_POSITION]
        return _OwnedRuns(reader, run_ids[order], sessions[order], groups[order])

    def build(self) -> tuple[SessionTable, list[_OwnedRuns], list[str]]:
        """Return the table, by name of the sessions, the runs that they own, and all groups."""
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        table = SessionTable(
            [self._names[session] for session in order],
            [self._starts[session] for session in order],
            np.array(self._wall_times, np.float64)[order],
        )
        position_of = np.empty(len(order) + 1, np.int64)
        position_of[NO_POSITION] = NO_POSITION
        position_of[order] = np.arange(len(order))
        owned = [
            _OwnedRuns(each.reader, each.run_ids, position_of[each.sessions], each.groups)
            for each in self._owned
        ]
        return table, owned, list(self._groups)


def _prefix_group(start: StoredStart, name: str) -> StoredStart:
    """Return the start with its session group, if any, prefixed by the experiment's name.

    Groups of equal names in two experiments stay apart.
    """
    group_name = f"{name}/{start.group_name}"
    return replace(start, group_name=group_name) if start.group_name else start
