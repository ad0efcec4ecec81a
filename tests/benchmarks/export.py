"""Reading everything back: points a second at the client in each format, and the memory of both
sides.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from threading import Event

import numpy as np
from bench import Bench, say
from machine import cpu_seconds, peak_memory, report, resident_memory, spent, told
from service import Service
from storage import wait_for_merge

from support.batches import packed_scalars, segment, stream
from support.servers import live_service
from support.uploading import Reader, Uploader
from tbupload.export.points import read_points
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport
from tbupload.notebook.experiment import Experiment

RUNS, TAGS, POINTS = 5_000, 10, 1_000
RUNS_A_BATCH = 20
TARGET = "at least 3,000,000"


def measure(bench: Bench) -> None:
    """Fills an experiment of 5,000 runs of 10 tags of 1,000 points, and reads all of it in every
    format.
    """
    runs = max(RUNS_A_BATCH, round(RUNS * bench.scale))
    bench.need_disk(runs * TAGS * POINTS * 150)
    with bench.new_service() as service:
        experiment_id = service.api.new_experiment()
        say(f"writing {runs:,} runs of {TAGS} tags of {POINTS:,} points")
        _fill(service, experiment_id, runs)
        say("waiting until everything is merged")
        wait_for_merge(service)
        points = runs * TAGS * POINTS
        for format_ in ("parquet", "arrow", "csv", "json"):
            if bench.is_chosen(format_):
                _measure_http(bench, service, experiment_id, points, format_)
        for format_ in ("parquet", "arrow", "json"):
            if bench.is_chosen(f"halves {format_}"):
                _measure_halves(bench, service, experiment_id, runs, format_)
        if bench.is_chosen("frame"):
            _measure_data_frame(bench, service, experiment_id, points)
        if bench.is_chosen("points"):
            _measure_frames(bench, service, experiment_id, points)
        for format_ in ("parquet", "events"):
            if bench.is_chosen(f"export {format_}"):
                _measure_export(bench, service, experiment_id, points, format_)


def _fill(service: Service, experiment_id: str, runs: int) -> None:
    rng = np.random.default_rng(7)
    steps = np.arange(POINTS) * 10

    def write(first: int) -> None:
        segments = []
        for run in range(first, min(first + RUNS_A_BATCH, runs)):
            series = []
            for tag in range(TAGS):
                wall_times = 1.7e9 + run + np.cumsum(rng.uniform(0.1, 0.2, POINTS))
                values = np.exp(-steps / 3e3) + rng.normal(0, 0.01, POINTS)
                series.append(
                    packed_scalars(f"tag{tag}/loss", steps, values.astype("<f4"), wall_times)
                )
            segments.append(segment(stream(_name_run(run)), 0, 1, *series))
        service.api.write(experiment_id, *segments)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(0, runs, RUNS_A_BATCH)))


def _name_run(run: int) -> str:
    return f"run{run:05d}"


def _measure_http(
    bench: Bench, service: Service, experiment_id: str, points: int, format_: str
) -> None:
    reader = service.reader
    path = f"/api/v1/experiments/{experiment_id}/scalars/data"
    rounds = []
    size = 0
    for _ in range(bench.rounds):
        before, began, size = service.cpu_seconds(), time.perf_counter(), 0
        with reader.http.stream(
            "GET", path, params={"sampling": "all", "format": format_}
        ) as answer:
            for piece in answer.iter_raw():
                size += len(piece)
        rounds.append((time.perf_counter() - began, spent(before, service.cpu_seconds())))
    _report(
        f"{format_}: points/s",
        points,
        rounds,
        f"{size / points:.1f} B a point",
        TARGET if format_ == "parquet" else "",
    )
    report(
        f"{format_}: the server's memory",
        f"{resident_memory(service.live.process.pid) / 2**20:.0f} MiB",
    )


def _measure_halves(
    bench: Bench, service: Service, experiment_id: str, runs: int, format_: str
) -> None:
    """Read two halves of the runs at once from a service of two workers."""
    points = runs * TAGS * POINTS
    names = [_name_run(run) for run in range(runs)]
    halves = [names[: runs // 2], names[runs // 2 :]]
    log = service.directory / "two_workers.log"
    with (
        live_service(service.live.settings, log, TBHUB_WORKERS="2") as live,
        ThreadPoolExecutor(len(halves)) as pool,
    ):
        path = f"{live.url}/api/v1/experiments/{experiment_id}/scalars/data"

        def read(half: Sequence[str], has_begun: Event) -> int:
            # A worker takes all connections that wait: the second half comes when one is at work.
            if half is halves[1]:
                has_begun.wait()
            wanted = {"run": half, "sampling": "all", "format": format_}
            size = 0
            with Reader(live.url, service.token).http.stream("POST", path, json=wanted) as answer:
                has_begun.set()
                for piece in answer.raise_for_status().iter_raw():
                    size += len(piece)
            return size

        rounds = []
        for _ in range(bench.rounds):
            before, has_begun = cpu_seconds(live.process.pid), Event()
            began = time.perf_counter()
            size = sum(pool.map(read, halves, repeat(has_begun)))
            seconds = time.perf_counter() - began
            rounds.append((seconds, {"server": cpu_seconds(live.process.pid) - before}))
    _report(
        f"{format_}, two halves of two workers: points/s",
        points,
        rounds,
        f"{size / points:.1f} B a point",
        "at least 5,000,000",
    )


def _measure_data_frame(bench: Bench, service: Service, experiment_id: str, points: int) -> None:
    rounds = []
    experiment = Experiment(experiment_id, token=service.token, server=service.live.url)
    for _ in range(bench.rounds):
        before, began = service.cpu_seconds(), time.perf_counter()
        assert len(experiment.scalars()) == points
        rounds.append((time.perf_counter() - began, spent(before, service.cpu_seconds())))
    _report("DataFrame of all: points/s", points, rounds, target="at least 5,000,000")


def _measure_frames(bench: Bench, service: Service, experiment_id: str, points: int) -> None:
    rounds = []
    transport = Transport(service.live.url, service.token, None, RetryPolicy(10), print)
    for _ in range(bench.rounds):
        before, began = service.cpu_seconds(), time.perf_counter()
        read = sum(
            len(part.columns.steps) for part in read_points(transport, experiment_id, "scalars")
        )
        rounds.append((time.perf_counter() - began, spent(before, service.cpu_seconds())))
        assert read == points
    _report("points (frames, decoded): points/s", points, rounds)


def _measure_export(
    bench: Bench, service: Service, experiment_id: str, points: int, format_: str
) -> None:
    uploader = Uploader(service.live.url, service.token, service.directory)
    directory = Path(service.directory, "exported")
    rounds, memory = [], 0
    for _ in range(bench.rounds):
        shutil.rmtree(directory, ignore_errors=True)
        before, began = service.cpu_seconds(), time.perf_counter()
        command = [
            "export",
            "--experiment",
            experiment_id,
            "--format",
            format_,
            "--output",
            str(directory),
            "--quiet",
        ]
        with subprocess.Popen(
            [sys.executable, "-m", "tbupload", *command],
            env=uploader.environment(),
            stdout=subprocess.DEVNULL,
        ) as process:
            while process.poll() is None:
                memory = max(memory, peak_memory(process.pid))
                time.sleep(0.05)
            assert process.returncode == 0
        rounds.append((time.perf_counter() - began, spent(before, service.cpu_seconds())))
    _report(f"tbupload export, {format_}: points/s", points, rounds)
    report("  its memory", f"{memory / 2**20:.0f} MiB")


def _report(
    name: str,
    points: int,
    rounds: list[tuple[float, dict[str, float]]],
    more: str = "",
    target: str = "",
) -> None:
    seconds = statistics.median(seconds for seconds, _ in rounds)
    used = {group: statistics.median(cpu[group] for _, cpu in rounds) for group in rounds[0][1]}
    cpu = told(used)
    report(name, f"{points / seconds:,.0f}", target or f"{seconds:.1f} s; CPU: {cpu}; {more}")
    if target:
        report("", f"{seconds:.1f} s", f"CPU: {cpu}; {more}")
