"""How many bytes PostgreSQL keeps for a scalar of real trainings, indexes included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench import Bench, say
from logdirs import Size, write_scalars
from machine import report, spent, told
from service import Service
from trainings import (
    NOISY_TAGS,
    SMOOTH_TAGS,
    Log,
    read_clock_as_tensorflow,
    read_clock_as_torch,
    write_trainings,
)
from upload import upload

from tbservice.series.compaction_thresholds import IDLE_THRESHOLD

MERGE_SECONDS_MAX = 600
LONG, SHORT, SWEEP = (3, 20_000), (30, 500), (100, 100)
"""Trainings: how many, and steps of each."""

SIZES = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
CONTENTS = """
    SELECT sum(length(data)) FILTER (WHERE level <= 0), sum(length(data)) FILTER (WHERE level > 0),
        count(*)
    FROM scalar_blocks
"""


@dataclass(frozen=True)
class Training:
    """A log of real trainings, and the bytes that a scalar of it is to take."""

    name: str
    log: Log
    runs: int
    steps: int
    target: str

    @property
    def points(self) -> int:
        return self.runs * self.steps * len(self.log.tags)


def measure(bench: Bench) -> None:
    """Uploads the files of each training, and compares every table with what it was.

    The database has another experiment before: the first row of a table takes pages of which a
    scalar is not the reason.
    """
    cases = [
        case for case in _make_cases(bench.directory, bench.scale) if bench.is_chosen(case.name)
    ]
    for (runs, steps), group in groupby(cases, lambda case: (case.runs, case.steps)):
        say(f"training {runs} networks for {steps:,} steps")
        write_trainings([case.log for case in group], runs, steps)
    for number, case in enumerate(cases):
        print(f"  {case.name}: {case.points:,} scalars")
        files = (path for path in case.log.directory.rglob("*") if path.is_file())
        file_bytes = sum(path.stat().st_size for path in files)
        report("a scalar in its event file", f"{file_bytes / case.points:.2f} B")
        with bench.new_service(f"service_{number}") as service:
            _measure(service, case)


def _make_cases(directory: Path, scale: float) -> Iterator[Training]:
    torch, tensorflow = read_clock_as_torch, read_clock_as_tensorflow
    both = NOISY_TAGS + SMOOTH_TAGS
    for name, (runs, steps), tags, clock, target in (
        ("training, PyTorch's clock", LONG, both, torch, "at most 5.5"),
        ("training, TensorFlow's clock", LONG, both, tensorflow, "at most 5.5"),
        ("training, noisy tags alone", LONG, NOISY_TAGS, torch, "at most 5.5"),
        ("training, smooth tags alone", LONG, SMOOTH_TAGS, torch, "at most 4"),
        ("short trainings", SHORT, both, torch, ""),
        ("sweep of 100 steps each", SWEEP, both, torch, ""),
    ):
        log = Log(directory / name, tags, clock)
        yield Training(name, log, runs, max(1, round(steps * scale)), target)


def _measure(service: Service, case: Training) -> None:
    """Upload the files, and print what they take."""
    other = service.directory / "other"
    write_scalars(other, Size(2, 3, 1_000))
    upload(service, other)
    wait_for_merge(service)
    service.query("VACUUM")
    before, contents_before = dict(service.query(SIZES)), service.query(CONTENTS)[0]

    def print_growth(when: str, target: str = "") -> dict[str, float]:
        grown = {name: (size - before[name]) / case.points for name, size in service.query(SIZES)}
        report(when, f"{sum(grown.values()):.2f} B", target)
        return grown

    used = service.cpu_seconds()
    uploaded = upload(service, case.log.directory)
    print_growth("as uploaded")
    wait_for_merge(service)
    used = {
        name: seconds for name, seconds in spent(used, service.cpu_seconds()).items() if seconds
    }
    report("upload and compaction", f"{uploaded.seconds:.2f} s", f"CPU: {told(used)}")
    # What autovacuum does within minutes: the space of merged rows is given back.
    service.query("VACUUM")
    grown = print_growth("merged and vacuumed", case.target)
    most = sorted(((size, name) for name, size in grown.items()), reverse=True)[:3]
    contents = zip(service.query(CONTENTS)[0], contents_before, strict=True)
    shown, copies, rows = (int(after or 0) - int(earlier or 0) for after, earlier in contents)
    print(
        f"    by table: {', '.join(f'{name} {size:.2f}' for size, name in most)}; blocks: points "
        f"{shown / case.points:.2f}, thinned copies {copies / case.points:.2f}, {rows:,} rows"
    )


def wait_for_merge(service: Service) -> float:
    """Return the seconds until compaction has nothing to do, not even once all runs are idle."""
    rows, points = IDLE_THRESHOLD
    due = f"SELECT 1 FROM time_series WHERE tail_rows >= {rows} OR tail_points >= {points} LIMIT 1"  # noqa: S608 - constants
    began = time.monotonic()
    while service.query(due):
        assert time.monotonic() < began + MERGE_SECONDS_MAX
        time.sleep(0.5)
    return time.monotonic() - began
