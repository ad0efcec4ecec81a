"""How many bytes PostgreSQL keeps for a scalar, indexes included: packed and compressed, of real
trainings and of generated logs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench import Bench, say
from logdirs import MILLION, REGULAR, Pace, Size, write_scalars
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
LONG, SHORT = (3, 20_000), (30, 500)
"""Trainings: how many, and steps of each."""

BLOCKS = {"packed": False, "compressed": True}
"""Formats of blocks that are compared: name, and whether blocks of it are compressed."""

READS = {
    "1,000 points of each series": "downsample=1000&format=arrow",
    "all points": "sampling=all&format=parquet",
}
READS_PER_ROUND = 7

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
class Case:
    """A log directory of so many points, and the bytes that a scalar of it is to take."""

    name: str
    logdir: Path
    points: int
    target: str


@dataclass(frozen=True)
class Training(Case):
    """A log of real trainings."""

    runs: int
    steps: int
    log: Log


@dataclass(frozen=True)
class Generated(Case):
    """A log of random numbers."""

    size: Size
    pace: Pace


def measure(bench: Bench) -> None:
    """Uploads the same files twice for each case, packed and compressed, and compares every table
    with what it was.

    The databases have another experiment before: the first row of a table takes pages of which a
    scalar is not the reason.
    """
    cases = [
        case for case in _make_cases(bench.directory, bench.scale) if bench.is_chosen(case.name)
    ]
    for case in cases:
        if isinstance(case, Generated):
            write_scalars(case.logdir, case.size, pace=case.pace)
    for (runs, steps), group in groupby(
        [case for case in cases if isinstance(case, Training)], lambda case: (case.runs, case.steps)
    ):
        say(f"training {runs} networks for {steps:,} steps")
        write_trainings([case.log for case in group], runs, steps)
    for number, case in enumerate(cases):
        print(f"  {case.name}: {case.points:,} scalars")
        file_bytes = sum(path.stat().st_size for path in case.logdir.rglob("*") if path.is_file())
        report("a scalar in its event file", f"{file_bytes / case.points:.2f} B")
        with ExitStack() as stack:
            stored = {}
            for blocks, compresses in BLOCKS.items():
                directory = f"service_{number}_{blocks}"
                service = stack.enter_context(
                    bench.new_service(directory, compresses_blocks=compresses)
                )
                stored[blocks] = service, _measure_blocks(service, case, blocks)
            _compare_reads(stored, bench.rounds)


def _make_cases(directory: Path, scale: float) -> Iterator[Case]:
    torch, tensorflow = read_clock_as_torch, read_clock_as_tensorflow
    both = NOISY_TAGS + SMOOTH_TAGS
    for name, (runs, steps), tags, clock, target in (
        ("training, PyTorch's clock", LONG, both, torch, "at most 5.5"),
        ("training, TensorFlow's clock", LONG, both, tensorflow, "at most 5.5"),
        ("training, noisy tags alone", LONG, NOISY_TAGS, torch, "at most 5.5"),
        ("training, smooth tags alone", LONG, SMOOTH_TAGS, torch, "at most 4"),
        ("short trainings", SHORT, both, torch, ""),
    ):
        scaled = max(1, round(steps * scale))
        log = Log(directory / name, tags, clock)
        yield Training(name, log.directory, runs * scaled * len(tags), target, runs, scaled, log)
    size = MILLION.scaled(scale)
    for name, pace in (
        ("generated, a point every 10 ms or so", REGULAR),
        ("generated, irregular: some steps left out", Pace(stride=50, is_irregular=True)),
    ):
        yield Generated(name, directory / name, size.points, "", size, pace)


def _measure_blocks(service: Service, case: Case, blocks: str) -> str:
    """Upload the files, and print what they take; return the id of the experiment."""
    other = service.directory / "other"
    write_scalars(other, Size(2, 3, 1_000))
    upload(service, other)
    wait_for_merge(service)
    service.query("VACUUM")
    before, contents_before = dict(service.query(SIZES)), service.query(CONTENTS)[0]

    def print_growth(when: str, target: str = "") -> dict[str, float]:
        grown = {name: (size - before[name]) / case.points for name, size in service.query(SIZES)}
        report(f"{blocks}, {when}", f"{sum(grown.values()):.2f} B", target)
        return grown

    used = service.cpu_seconds()
    uploaded = upload(service, case.logdir)
    print_growth("as uploaded")
    wait_for_merge(service)
    used = {
        name: seconds for name, seconds in spent(used, service.cpu_seconds()).items() if seconds
    }
    report(f"{blocks}, upload and compaction", f"{uploaded.seconds:.2f} s", f"CPU: {told(used)}")
    # What autovacuum does within minutes: the space of merged rows is given back.
    service.query("VACUUM")
    is_new = BLOCKS[blocks]
    grown = print_growth("merged and vacuumed", case.target if is_new else "")
    most = sorted(((size, name) for name, size in grown.items()), reverse=True)[:3]
    contents = zip(service.query(CONTENTS)[0], contents_before, strict=True)
    shown, copies, rows = (int(after or 0) - int(earlier or 0) for after, earlier in contents)
    print(
        f"    by table: {', '.join(f'{name} {size:.2f}' for size, name in most)}; blocks: points "
        f"{shown / case.points:.2f}, thinned copies {copies / case.points:.2f}, {rows:,} rows"
    )
    return uploaded.experiment_id


def _compare_reads(stored: dict[str, tuple[Service, str]], rounds: int) -> None:
    """Print how long samples and a full read take, in turns, and their ratio."""
    for what, query in READS.items():
        seconds: dict[str, list[float]] = {blocks: [] for blocks in stored}
        for _ in range(READS_PER_ROUND * rounds):
            for blocks, (service, experiment_id) in stored.items():
                url = f"/api/v1/experiments/{experiment_id}/scalars/data?{query}"
                began = time.perf_counter()
                service.reader.http.get(url).raise_for_status()
                seconds[blocks].append(time.perf_counter() - began)
        packed, compressed = (statistics.median(seconds[blocks]) for blocks in BLOCKS)
        report(
            f"{what}: compressed",
            f"{compressed * 1000:.1f} ms",
            f"{compressed / packed:.2f} x of packed, at most 1.05",
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
