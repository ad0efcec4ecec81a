"""Reading alone, from a file's bytes to packed columns, one core, against RustBoard's load cycle of
the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import logdirs
from bench import Bench, say
from logdirs import Size, tag_names
from machine import report
from rivals import Load, load_with_rustboard

READER = Path(__file__).with_name("read_logdir.py")
TARGET = "at least 2.0 x"

TAGS = tag_names(20)
SIZE = logdirs.MILLION


@dataclass(frozen=True)
class Case:
    """A logdir to read: its name, and how to write it at a scale; `write` answers its bytes."""

    name: str
    write: Callable[[Path, float], int]


def _case(name: str, size: Size, events: logdirs.Events, presence: float = 1.0) -> Case:
    return Case(
        name,
        lambda logdir, scale: logdirs.write_scalars(
            logdir, size.scaled(scale), events, presence=presence
        ),
    )


CASES = (
    _case("simple_value (TensorFlow 1, PyTorch)", SIZE, logdirs.simple_values(TAGS)),
    _case("TensorFlow 2, metadata in every event", SIZE, logdirs.tensors(TAGS)),
    _case("tensors, metadata in the first event only", SIZE, logdirs.tensors_named_once(TAGS)),
    _case("tensors in float_val without a shape (PyTorch)", SIZE, logdirs.float_vals(TAGS)),
    _case("both sorts interleaved", SIZE, logdirs.both(TAGS)),
    _case(
        "tags that come and go (no period)",
        Size(10, 20, 10_000),
        logdirs.simple_values(TAGS),
        presence=0.5,
    ),
    _case("20 values in an event (merged summaries)", SIZE, logdirs.merged_summaries(TAGS)),
    _case("1 run of 1 tag", Size(1, 1, 10_000_000), logdirs.simple_values(["loss"])),
    Case(
        "1,000 runs of 1,000 events",
        lambda logdir, scale: logdirs.write_scalars(
            logdir, Size(max(1, round(1000 * scale)), 10, 100), logdirs.simple_values(tag_names(10))
        ),
    ),
    Case(
        "mostly images",
        lambda logdir, scale: logdirs.write_images(logdir, round(scale * (500 << 20))),
    ),
)


def measure(bench: Bench) -> None:
    """Reads each logdir in turns with RustBoard; both verify checksums, and the files are in the
    page cache.
    """
    print(
        "  points/s a core; RustBoard's by its CPU time, and by twice its time, as it may use two cores"
    )
    for number, case in enumerate(CASES):
        if bench.is_chosen(case.name):
            logdir = bench.directory / f"logdir_{number}"
            say(f"writing: {case.name}")
            size = case.write(logdir, bench.scale)
            _measure(bench, case.name, logdir, size)
            shutil.rmtree(logdir)


def _measure(bench: Bench, name: str, logdir: Path, size: int) -> None:
    ours: list[dict[str, float]] = []
    theirs: list[Load] = []
    copies: list[float] = []
    log = bench.directory / "rustboard.log"
    for _ in range(bench.rounds):
        ours.append(_read(logdir))
        theirs.append(load_with_rustboard(logdir, log, checksum=True))
        copies.append(_copy(logdir, bench.directory / "copy"))
    points = int(ours[0]["points"])
    cpu = statistics.median(each["cpu_seconds"] for each in ours)
    wall = statistics.median(each["seconds"] for each in ours)
    rust_cpu = statistics.median(load.cpu_seconds for load in theirs)
    rust_wall = statistics.median(load.seconds for load in theirs)
    print(f"  {name}: {points:,} points, {size / 2**20:.0f} MiB")
    report(
        "  ours: points/s",
        f"{points / cpu:,.0f}",
        f"CPU {cpu:.2f} s, {wall:.2f} s, {size / cpu / 1e6:,.0f} MB/s",
    )
    report(
        "  RustBoard: points/s",
        f"{points / rust_cpu:,.0f}",
        f"CPU {rust_cpu:.2f} s, {rust_wall:.2f} s on all cores",
    )
    report("  ours : RustBoard, by its CPU time", f"{rust_cpu / cpu:.2f} x", TARGET)
    report("  ours : RustBoard, by its time on two cores", f"{2 * rust_wall / wall:.2f} x", TARGET)
    copied = statistics.median(copies)
    report(
        "  plain copy of the files, page cache to page cache",
        f"{size / copied / 1e6:,.0f} MB/s",
        f"ours takes {wall / copied:.1f} x as long",
    )


def _read(logdir: Path) -> dict[str, float]:
    """Points, seconds and CPU seconds of a process that reads the logdir."""
    command = [sys.executable, str(READER), str(logdir)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _copy(logdir: Path, target: Path) -> float:
    """Seconds that a copy of the files takes by read and write (shutil's own shortcuts may copy
    nothing).
    """
    began = time.perf_counter()
    with target.open("wb") as copy:
        for path in sorted(logdir.rglob("*tfevents*")):
            copy.seek(0)
            with path.open("rb") as file:
                shutil.copyfileobj(file, copy, 4 << 20)
    seconds = time.perf_counter() - began
    os.truncate(target, 0)
    return seconds
