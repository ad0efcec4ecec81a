"""The same files read by TensorBoard's two readers, the one in Python and RustBoard; and plain rows
in PostgreSQL.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psycopg
import tensorboard_data_server
from machine import cpu_seconds
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

SECONDS_MAX = 600

_CYCLE = re.compile(r"Finished load cycle \(([\d.]+)(µs|ms|s)\)")
_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}

_ROWS = "series integer, step bigint, wall_time double precision, value double precision, PRIMARY KEY (series, step)"
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_FOOTER = b"\xff\xff"
_COPY_ROW = np.dtype(
    [("fields", ">i2")]
    + [
        part
        for name, kind in (
            ("series", ">i4"),
            ("step", ">i8"),
            ("wall_time", ">f8"),
            ("value", ">f8"),
        )
        for part in ((f"{name}_size", ">i4"), (name, kind))
    ]
)
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Load:
    """A load cycle: how long, and how much CPU time the whole process used until its end."""

    seconds: float
    cpu_seconds: float


def load_with_python(directory: Path) -> tuple[int, float]:
    """Points and seconds of the accumulator that feeds TensorBoard's page, all points kept, for one
    run's files.
    """
    began = time.perf_counter()
    accumulator = EventAccumulator(str(directory), tensor_size_guidance={"scalars": 0})
    accumulator.Reload()
    seconds = time.perf_counter() - began
    return sum(len(accumulator.Tensors(tag)) for tag in accumulator.Tags()["tensors"]), seconds


def load_with_rustboard(logdir: Path, log: Path, *, checksum: bool) -> Load:
    """RustBoard's first load cycle of the logdir, by its log; fails when the log complains of the
    files.
    """
    options = [
        "--port",
        "0",
        "--reload",
        "once",
        "-vv",
        "--checksum" if checksum else "--no-checksum",
    ]
    command = [tensorboard_data_server.server_binary(), "--logdir", str(logdir), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        return Load(_first_cycle(process, log), cpu_seconds(process.pid))
    finally:
        process.kill()
        process.wait()


def _first_cycle(process: subprocess.Popen, log: Path) -> float:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        content = log.read_text()
        if match := _CYCLE.search(content):
            assert " WARN " not in content, content
            assert " ERROR " not in content, content
            return float(match[1]) * _UNITS[match[2]]
        assert process.poll() is None, content
        time.sleep(0.02)
    raise TimeoutError(log.read_text())


def copy_rows(columns: Iterable[npt.NDArray[np.void]]) -> list[bytes]:
    """Points, as structured arrays of series, step, wall_time and value, in PostgreSQL's binary
    COPY format.
    """
    pieces = [_COPY_HEADER]
    for points in columns:
        rows = np.zeros(len(points), _COPY_ROW)
        rows["fields"] = 4
        for name in ("series", "step", "wall_time", "value"):
            rows[f"{name}_size"] = rows.dtype[name].itemsize
            rows[name] = points[name]
        content = rows.tobytes()
        pieces += [
            content[start : start + _PIECE_BYTES] for start in range(0, len(content), _PIECE_BYTES)
        ]
    return [*pieces, _COPY_FOOTER]


def write_rows(db: psycopg.Connection, pieces: list[bytes]) -> float:
    """Seconds of COPY into a bare table with primary key (series, step), committed; the table is
    dropped after.
    """
    with _bare_table(db) as table:
        began = time.perf_counter()
        _copy(db, table, pieces)
        return time.perf_counter() - began


def upsert_rows(db: psycopg.Connection, pieces: list[bytes]) -> float:
    """Seconds of COPY into a temporary table and INSERT … ON CONFLICT from there: the newest point
    of a step wins.
    """
    with _bare_table(db) as table:
        began = time.perf_counter()
        with db.transaction():
            db.execute("CREATE TEMPORARY TABLE arrived (LIKE bench_rows) ON COMMIT DROP")
            _copy(db, "arrived", pieces)
            db.execute(
                f"INSERT INTO {table} SELECT * FROM arrived ON CONFLICT (series, step) DO UPDATE "  # noqa: S608 - ours
                "SET wall_time = excluded.wall_time, value = excluded.value "
                f"WHERE excluded.wall_time >= {table}.wall_time"
            )
        return time.perf_counter() - began


@contextmanager
def _bare_table(db: psycopg.Connection) -> Iterator[str]:
    db.execute(f"CREATE TABLE bench_rows ({_ROWS})")
    try:
        yield "bench_rows"
    finally:
        db.execute("DROP TABLE bench_rows")


def _copy(db: psycopg.Connection, table: str, pieces: list[bytes]) -> None:
    with db.cursor().copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
        for piece in pieces:
            copy.write(piece)
