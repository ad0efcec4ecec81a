"""The server alone: prepared batches to committed, against COPY of the same points into a bare
row-per-point table.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np
import psycopg
from bench import Bench, say
from logdirs import Size
from machine import report, spent, told
from prepared import make_batches, make_columns, send
from service import Service
from upload import check_readable

SIZE = Size(10, 20, 10_000)
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
)
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_FOOTER = b"\xff\xff"
_COLUMNS = {"series": ">i4", "step": ">i8", "wall_time": ">f8", "value": ">f8"}
_ROW = np.dtype(
    [("fields", ">i2")]
    + [
        field
        for name, kind in _COLUMNS.items()
        for field in ((f"{name}_size", ">i4"), (name, kind))
    ]
)


def measure(bench: Bench) -> None:
    """Send the batches in turns with COPY of the same points into the same PostgreSQL."""
    size = SIZE.scaled(bench.scale)
    say(f"encoding {size.points:,} scalars of {size.runs} runs with {size.tags} tags")
    batches, rows = make_batches(size), list(_encode_rows(size))
    ours, copies = [], []
    with bench.new_service() as service:
        say(", ".join(f"{name} {service.query(f'SHOW {name}')[0][0]}" for name in SETTINGS))
        for number in range(bench.rounds):
            experiment_id = service.api.new_experiment(name="prepared")
            before = service.cpu_seconds()
            ours.append(send(service, experiment_id, batches))
            used = spent(before, service.cpu_seconds())
            copies.append(_copy(service, rows))
            say(f"round {number + 1}: {ours[-1]:.2f} s ({told(used)} CPU), COPY {copies[-1]:.2f} s")
            check_readable(service, experiment_id, size)
        service.query("CHECKPOINT")
    seconds, copied = statistics.median(ours), statistics.median(copies)
    report("prepared batches to committed, one worker: scalars/s", f"{size.points / seconds:,.0f}")
    report("binary COPY into rows with key (series, step): rows/s", f"{size.points / copied:,.0f}")
    report("  ours : COPY", f"{copied / seconds:.1f} x", "at least 5 x")


def _encode_rows(size: Size) -> Iterator[bytes]:
    """Encode the points of each series as rows of PostgreSQL's binary COPY format."""
    series = 0
    for run in make_columns(size):
        for columns in run:
            rows = np.zeros(size.steps, _ROW)
            rows["fields"] = len(_COLUMNS)
            for name in _COLUMNS:
                rows[f"{name}_size"] = rows.dtype[name].itemsize
            rows["series"], series = series, series + 1
            rows["step"], rows["wall_time"] = columns.steps, columns.wall_times
            rows["value"] = columns.values
            yield rows.tobytes()


def _copy(service: Service, pieces: list[bytes]) -> float:
    """Return the seconds of COPY into a bare table, committed; the table is dropped after."""
    with service.servers.instance.postgres.connect_as_superuser(service.database_name) as db:
        columns = "series integer, step bigint, wall_time double precision, value double precision"
        db.execute(f"CREATE TABLE bench_rows ({columns}, PRIMARY KEY (series, step))")
        try:
            began = time.perf_counter()
            _write(db, [_COPY_HEADER, *pieces, _COPY_FOOTER])
            return time.perf_counter() - began
        finally:
            db.execute("DROP TABLE bench_rows")


def _write(db: psycopg.Connection, pieces: list[bytes]) -> None:
    with db.cursor().copy("COPY bench_rows FROM STDIN (FORMAT binary)") as copy:
        for piece in pieces:
            copy.write(piece)
