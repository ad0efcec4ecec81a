"""All sessions of an experiment as one table: columns by name, and rows in chunks.

Its columns are those of the client's export of sessions (`tbupload/export/session_table.py`), with
all hyperparameters before all metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tbservice.hparams.requests import MetricId
from tbservice.hparams.schema import list_metrics
from tbservice.hparams.session_reader import SessionReader, open_sessions
from tbservice.hparams.session_table import SessionTable, StoredStart
from tbservice.hparams.values import to_text
from tbservice.reading.comparison import Source
from tbwire.hparams import HparamValue, Status

SESSION_TABLE_COLUMN_ITEMS_MAX: Final = 20_000
"""Columns (items) of the table of sessions; with more it has no hyperparameters and metrics."""

Cell = HparamValue | None
Column = list[Cell]

FIXED_COLUMNS: Final[dict[str, type]] = {
    "run": str,
    "group": str,
    "status": str,
    "start_time": float,
    "end_time": float,
    "model_uri": str,
    "monitor_url": str,
}
"""The first columns, and the types of their values."""

_STATUSES: Final = {
    Status.STATUS_SUCCESS: "success",
    Status.STATUS_FAILURE: "failure",
    Status.STATUS_RUNNING: "running",
}

_ROWS_PER_CHUNK_MAX: Final = 10_000
_CELLS_PER_CHUNK: Final = 1_000_000
"""Cells in memory at once: a chunk has no more, or one row."""


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """The table of the sessions of an experiment, by name of their runs.

    `types` has the type of each column by name: float, bool or str; str also for values of several
    types, which are texts as in JSON. Over `SESSION_TABLE_COLUMN_ITEMS_MAX` columns, the table has
    none of hyperparameters and metrics.
    """

    types: dict[str, type]
    _sessions: SessionReader
    _hparams: Sequence[str]
    _metrics: dict[MetricId, int]

    def read_chunks(self) -> Iterator[list[Column]]:
        """Yield the values of each column of some sessions; reads their metrics meanwhile.

        Raises NotFound at the end if the experiment was deleted.
        """
        rows = max(1, min(_ROWS_PER_CHUNK_MAX, _CELLS_PER_CHUNK // len(self.types)))
        for start in range(0, len(self._sessions.table), rows):
            yield self._read_chunk(range(start, min(start + rows, len(self._sessions.table))))
        self._sessions.check()

    def _read_chunk(self, sessions: range) -> list[Column]:
        columns = [
            *_fixed_columns(self._sessions.table, sessions),
            *self._hparam_columns(self._sessions.table.starts[sessions.start : sessions.stop]),
        ]
        if self._metrics:
            columns += self._metric_columns(sessions)
        return columns

    def _hparam_columns(self, starts: Sequence[StoredStart]) -> list[Column]:
        position_of = {name: index for index, name in enumerate(self._hparams)}
        columns: list[Column] = [[None] * len(starts) for _ in self._hparams]
        for row, start in enumerate(starts if columns else ()):
            for name, value in zip(start.names.names, start.values, strict=True):
                columns[position_of[name]][row] = value
        return [
            [None if value is None else to_text(value) for value in column]
            if self.types[f"hparams.{name}"] is str
            else column
            for name, column in zip(self._hparams, columns, strict=True)
        ]

    def _metric_columns(self, sessions: range) -> list[Column]:
        columns: list[Column] = [[None] * len(sessions) for _ in self._metrics]
        rows, metrics = self._sessions.read_all_metrics(sessions)
        # A metric that was first logged after the columns were listed has none.
        column_of = [self._metrics.get(metric, -1) for metric in metrics]
        points = zip(rows.owners.tolist(), rows.metrics.tolist(), rows.values.tolist(), strict=True)
        for owner, metric, value in points:
            if column_of[metric] >= 0 and owner in sessions:
                columns[column_of[metric]][owner - sessions.start] = value
        return columns


def open_session_columns(source: Source) -> SessionColumns:
    """Read the sessions of an experiment, except for their metrics. Raises as `open_sessions`."""
    sessions = open_sessions(source)
    everyone = range(len(sessions.table))
    if everyone:
        sessions.read_ends(everyone)
        sessions.read_ages(everyone)

    hparam_types = _hparam_types(sessions.table)
    declared = list_metrics(sessions.declared, seen := sessions.list_metrics())
    metrics = [metric for each in declared if (metric := MetricId(each.group, each.tag)) in seen]
    if len(FIXED_COLUMNS) + len(hparam_types) + len(metrics) > SESSION_TABLE_COLUMN_ITEMS_MAX:
        return SessionColumns(dict(FIXED_COLUMNS), sessions, (), {})
    types = FIXED_COLUMNS | {f"hparams.{name}": type_ for name, type_ in hparam_types.items()}
    types |= dict.fromkeys(_name_metrics(metrics), float)
    positions = {metric: position for position, metric in enumerate(metrics)}
    return SessionColumns(types, sessions, list(hparam_types), positions)


def iter_hparams(source: Source) -> Iterator[tuple[str, str, HparamValue]]:
    """Yield run, name and value of each hyperparameter of each session, by name of the run.

    Raises as `open_sessions`.
    """
    table = open_sessions(source).table
    for run, start in zip(table.names, table.starts, strict=True):
        for name, value in zip(start.names.names, start.values, strict=True):
            yield run, name, value


def _fixed_columns(table: SessionTable, sessions: range) -> list[Column]:
    starts = table.starts[sessions.start : sessions.stop]
    ends = [table.ends.get(session) for session in sessions]
    return [
        list(table.names[sessions.start : sessions.stop]),
        [start.group_name for start in starts],
        [_STATUSES.get(table.status(session)) for session in sessions],
        [start.start_time or None for start in starts],
        [None if end is None else end.end_time or None for end in ends],
        [start.model_uri or None for start in starts],
        [start.monitor_url or None for start in starts],
    ]


def _hparam_types(table: SessionTable) -> dict[str, type]:
    """Return the type of each hyperparameter; those of the first session by name come first."""
    by_names: dict[int, list[StoredStart]] = {}
    for start in table.starts:
        by_names.setdefault(id(start.names), []).append(start)
    types: dict[str, set[type]] = {}
    for starts in by_names.values():
        columns = zip(*(start.values for start in starts), strict=True)
        for name, values in zip(starts[0].names.names, columns, strict=True):
            types.setdefault(name, set()).update(map(type, values))
    return {name: each.pop() if len(each) == 1 else str for name, each in types.items()}


def _name_metrics(metrics: Sequence[MetricId]) -> list[str]:
    """Return the names of their columns; the second of two equal ones gets its group as well."""
    names: dict[str, None] = {}
    for metric in metrics:
        name = f"metrics.{metric.group}/{metric.tag}" if metric.group else f"metrics.{metric.tag}"
        while name in names:
            name += f" [{metric.group}]"
        names[name] = None
    return list(names)
