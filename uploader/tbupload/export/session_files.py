"""Export of the sessions of an experiment into one file: CSV, Parquet or JSON, a row per session.

In CSV and Parquet all columns come first, or in a schema, so the rows are kept in a temporary file
until all sessions are read: the memory needed is that of a page.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

from tbupload.errors import OutputError, UsageError
from tbupload.export.destination import as_output_errors, atomic_file, temporary_path
from tbupload.export.session_table import Cell, Row, SessionColumns, iter_columns, to_text
from tbupload.export.sessions import SessionPage

FORMATS: Final = (".csv", ".parquet", ".json")

COLUMNS_MAX: Final = 20_000
"""Columns of a CSV or Parquet file, every row of which has every column."""

_ROWS_PER_GROUP_MAX: Final = 10_000
_CELLS_PER_GROUP: Final = 1_000_000
"""Cells that are in memory at once of a Parquet file; a row group has no more."""


@dataclass(frozen=True)
class SessionFileSummary:
    """Counts of a written file."""

    sessions: int
    columns: int
    bytes: int


def check_file(path: Path) -> None:
    """Check that a file can be written, before anything is read.

    Raises UsageError for an unknown suffix, a file that exists, or Parquet without pyarrow.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: the name must end with {', '.join(FORMATS)}")
    if path.exists():
        raise UsageError(f"{path} exists: use another name, or delete it")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed: run `pip install pyarrow`, or write CSV"
        )


def write_sessions(
    pages: Iterable[SessionPage], path: Path, on_sessions: Callable[[int, int], None]
) -> SessionFileSummary:
    """Write a file of all sessions atomically; its suffix is the format.

    Args:
        pages: The sessions.
        path: The file to write, as `check_file` accepts it.
        on_sessions: Called after each page with the sessions of the page, and those of all pages.

    Raises:
        OutputError: The file cannot be written, or has over COLUMNS_MAX columns.
        ServerError: As `read_sessions`; no file is left then.
    """
    columns = SessionColumns()
    # Nothing locks the file: two exports to it at once must not write into one another's.
    temporary = temporary_path(path.with_name(f"{path.name}.{os.getpid()}"))
    with atomic_file(path, temporary) as file:
        counted = _count_pages(pages, on_sessions)
        if path.suffix == ".json":
            sessions = _write_json(counted, columns, file)
        else:
            write = _write_csv if path.suffix == ".csv" else _write_parquet
            sessions = _write_spooled(counted, columns, path, file, write)
        return SessionFileSummary(sessions, len(columns.names), file.tell())


def _count_pages(
    pages: Iterable[SessionPage], on_sessions: Callable[[int, int], None]
) -> Iterator[SessionPage]:
    for page in pages:
        yield page
        on_sessions(len(page.sessions), page.total)


def _write_json(pages: Iterable[SessionPage], columns: SessionColumns, file: IO[bytes]) -> int:
    """Write an array of objects, a line each; a value that a session lacks is not in its object."""
    count = 0
    for page in pages:
        for session in page.sessions:
            row = columns.add(session)
            fields = {columns.names[index]: _json_value(value) for index, value in row.items()}
            file.write(b",\n" if count else b"[\n")
            file.write(json.dumps(fields, ensure_ascii=False, allow_nan=False).encode())
            count += 1
    file.write(b"\n]\n" if count else b"[]\n")
    return count


def _json_value(value: Cell) -> Cell:
    """Return a value for JSON, which has no NaN and no infinities: they are strings."""
    is_finite = not isinstance(value, float) or value - value == 0
    return value if value is None or is_finite else to_text(value)


def _write_spooled(
    pages: Iterable[SessionPage],
    columns: SessionColumns,
    path: Path,
    file: IO[bytes],
    write: Callable[[Iterable[Row], SessionColumns, IO[bytes]], None],
) -> int:
    """Keep the rows in a temporary file beside `path`; write them when the columns are known."""
    count = 0
    with as_output_errors(path), tempfile.TemporaryFile(dir=path.parent) as spool:
        for page in pages:
            for session in page.sessions:
                row = columns.add(session)
                spool.write(json.dumps([list(row), list(row.values())]).encode() + b"\n")
            if len(columns.names) > COLUMNS_MAX:
                raise OutputError(
                    f"{path}: over {COLUMNS_MAX:,} columns, the limit of such a file; "
                    "write a .json file, which has only the values that there are"
                )
            count += len(page.sessions)
        spool.seek(0)
        write((dict(zip(*json.loads(line))) for line in spool), columns, file)
    return count


def _write_csv(rows: Iterable[Row], columns: SessionColumns, file: IO[bytes]) -> None:
    """Write a header and a line per row, in the dialect of the CSV that the server writes."""
    file.write(_csv_line(columns.names))
    width = range(len(columns.names))
    for row in rows:
        file.write(_csv_line([row.get(index) for index in width]))


def _csv_line(cells: Iterable[Cell]) -> bytes:
    return (",".join(map(_csv_field, cells)) + "\n").encode()


def _csv_field(cell: Cell) -> str:
    """Return a field; quoted also around spaces, which some readers strip, and if it is empty.

    So an empty string differs from a missing value, which is nothing.
    """
    if cell is None:
        return ""
    text = to_text(cell)
    if text and not any(character in text for character in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _write_parquet(rows: Iterable[Row], columns: SessionColumns, file: IO[bytes]) -> None:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    types = {str: arrow.string(), float: arrow.float64(), bool: arrow.bool_()}
    schema = arrow.schema(
        [(name, types[columns.type_of(index)]) for index, name in enumerate(columns.names)]
    )
    size = max(1, min(_ROWS_PER_GROUP_MAX, _CELLS_PER_GROUP // len(columns.names)))
    remaining = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(remaining, size)):
            arrays = [
                arrow.array(values, field.type)
                for field, values in zip(schema, iter_columns(columns, group))
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
