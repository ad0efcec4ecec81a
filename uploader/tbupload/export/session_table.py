"""Sessions as a table: its columns, and the cells of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Optional, Union

from tbupload.export.sessions import HparamValue, Session

FIXED_COLUMNS: Final = (
    "run",
    "group",
    "status",
    "start_time",
    "end_time",
    "model_uri",
    "monitor_url",
)
"""The first columns: the fields of `Session` with these names."""

FIXED_TYPES: Final = (str, str, str, float, float, str, str)

Cell = Optional[HparamValue]

Row = dict[int, Cell]
"""The cells of a session by index of the column, without those of missing values."""

_ColumnKey = Union[str, tuple[str, str]]
"""A hyperparameter's name, or the group and tag of a metric."""


class SessionColumns:
    """The columns of the sessions that were added until now, and the types of their values.

    After the fixed ones, `hparams.NAME` and `metrics.GROUP/TAG` in the order in which sessions have
    them. If two metrics have the same name so (group "a", tag "b/c", and group "a/b", tag "c"), the
    later one also gets its group: `metrics.a/b/c [a/b]`.
    """

    def __init__(self) -> None:
        self.names = list(FIXED_COLUMNS)
        self._types: list[set[type]] = [{type_} for type_ in FIXED_TYPES]
        self._index_of: dict[_ColumnKey, int] = {}
        self._taken = set(self.names)

    def add(self, session: Session) -> Row:
        """Add the columns of a session, and return its row."""
        row: Row = {
            index: getattr(session, name)
            for index, name in enumerate(FIXED_COLUMNS)
            if getattr(session, name) is not None
        }
        cells: Iterable[tuple[_ColumnKey, HparamValue]]
        cells = (*session.hparams.items(), *session.metrics.items())
        for key, value in cells:
            index = self._index_of.get(key, -1)
            if index < 0:
                index = self._add_column(key)
            self._types[index].add(type(value))
            row[index] = value
        return row

    def _add_column(self, key: _ColumnKey) -> int:
        if isinstance(key, str):
            name = f"hparams.{key}"
        else:
            group, tag = key
            name = f"metrics.{group}/{tag}" if group else f"metrics.{tag}"
            while name in self._taken:
                name += f" [{group}]"
        self._index_of[key] = len(self.names)
        self._taken.add(name)
        self.names.append(name)
        self._types.append(set())
        return len(self.names) - 1

    def type_of(self, index: int) -> type:
        """Return float, bool or str; str also for a column with values of several types."""
        types = self._types[index]
        return next(iter(types)) if len(types) == 1 else str

    def unify(self, index: int, values: Iterable[Cell]) -> list[Cell]:
        """Return values of a column as values of its type, None for missing ones."""
        if len(self._types[index]) == 1:
            return list(values)
        return [None if value is None else to_text(value) for value in values]


def to_text(value: HparamValue) -> str:
    """Return a value as text: a string itself, another as in JSON (1.0, true, NaN)."""
    return value if isinstance(value, str) else json.dumps(value)


def iter_columns(columns: SessionColumns, rows: Sequence[Row]) -> Iterator[list[Cell]]:
    """Yield the values of each column, in their order."""
    for index in range(len(columns.names)):
        yield columns.unify(index, (row.get(index) for row in rows))
