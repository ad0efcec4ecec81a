"""The server alone: prepared batches to committed, against COPY of the same points into a bare
row-per-point table.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bench import Bench, say
from logdirs import Size, write_scalars
from machine import report, spent, told
from read_logdir import LIMITS
from recording import recorded, send
from rivals import copy_rows, upsert_rows, write_rows
from service import Service
from upload import check_readable, upload

from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter

SIZE = Size(10, 20, 10_000)
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
)
_POINT = np.dtype([("series", "i4"), ("step", "i8"), ("wall_time", "f8"), ("value", "f8")])


def measure(bench: Bench) -> None:
    """Sends what `tbupload` sent, in turns with COPY and upserts of the same points on the same
    PostgreSQL.
    """
    size = SIZE.scaled(bench.scale)
    logdir = bench.directory / "logdir"
    say(f"writing and recording {size.points:,} scalars in {size.runs} runs of {size.tags} tags")
    write_scalars(logdir, size)
    with bench.new_service() as service:
        with recorded(service.live.url) as recording:
            upload(service, logdir, server=recording.url)
        say(f"{len(recording.requests)} batches of {recording.size / size.points:.1f} B a scalar")
        say(_settings(service))
        rows = copy_rows(_points(logdir))
        ours, copies, upserts = [], [], []
        for number in range(bench.rounds):
            experiment_id = service.api.new_experiment(name="prepared")
            before = service.cpu_seconds()
            ours.append(send(service.live.url, experiment_id, recording.requests))
            used = spent(before, service.cpu_seconds())
            with service.servers.instance.postgres.connect_as_superuser(
                service.database_name
            ) as db:
                copies.append(write_rows(db, rows))
                upserts.append(upsert_rows(db, rows))
            say(
                f"round {number + 1}: {ours[-1]:.2f} s (CPU: {told(used)}), COPY {copies[-1]:.2f} s"
            )
            check_readable(service, experiment_id, size)
        _report(size, ours, copies, upserts)
        service.query("CHECKPOINT")


def _report(size: Size, ours: list[float], copies: list[float], upserts: list[float]) -> None:
    seconds = statistics.median(ours)
    report("prepared batches to committed, one worker: scalars/s", f"{size.points / seconds:,.0f}")
    copied, upserted = statistics.median(copies), statistics.median(upserts)
    report("binary COPY into rows with key (series, step): rows/s", f"{size.points / copied:,.0f}")
    report("  ours : COPY", f"{copied / seconds:.1f} x", "at least 5 x")
    report("COPY, then INSERT … ON CONFLICT: rows/s", f"{size.points / upserted:,.0f}")
    report("  ours : this, which does what ours does", f"{upserted / seconds:.1f} x")


def _settings(service: Service) -> str:
    return ", ".join(f"{name} {service.query(f'SHOW {name}')[0][0]}" for name in SETTINGS)


def _points(logdir: Path) -> Iterator[npt.NDArray[np.void]]:
    """The logdir's scalars in the order in which they are sent: file by file, chunk by chunk,
    series by series.
    """
    numbers: dict[tuple[Path, str], int] = {}
    for path in sorted(logdir.rglob("*tfevents*")):
        file = EventFileReader(path, start=0, series_filter=SeriesFilter(), limits=LIMITS)
        while (chunk := file.read(final=True)) is not None:
            for series in chunk.series:
                points = np.zeros(len(series.columns.steps), _POINT)
                points["series"] = numbers.setdefault((path, series.tag), len(numbers))
                points["step"] = series.columns.steps
                points["wall_time"] = series.columns.wall_times
                points["value"] = series.columns.values
                yield points
