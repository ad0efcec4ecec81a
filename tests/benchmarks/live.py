"""From `flush()` to visible in the read API: many `tbupload` that follow, each with 50 new points a
second.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench import Bench, say
from live_writer import RUN, TAGS, log_of
from machine import cpu_seconds, peak_memory, report, spent
from service import Service
from upload import environment

UPLOADERS = 50
STEADY_SECONDS = 60
SETTLING_SECONDS = 15
START_SECONDS_MAX = 300
WATCHERS = 4
WATCH_SECONDS = 0.1
"""How often a watcher asks: that much, at most, and a request's time are in each latency."""

VISIBLE_SECONDS_MAX = 60
WRITER = Path(__file__).with_name("live_writer.py")
CASES = {"an experiment each": False, "all into one experiment": True}


@dataclass(frozen=True)
class Host:
    """A training job: its logdir, its uploader, and the experiment and run it uploads to."""

    logdir: Path
    process: subprocess.Popen
    experiment_id: str
    run: str


def measure(bench: Bench) -> None:
    """Lets everything run for a while, measures costs for a minute and latency for another; a
    database each case.
    """
    count = max(1, round(UPLOADERS * bench.scale))
    for number, (name, shares_experiment) in enumerate(CASES.items()):
        if bench.is_chosen(name):
            print(f"  {count} uploaders, {name}, {TAGS} tags a second each")
            with (
                bench.new_service(f"service_{number}") as service,
                _hosts(service, count, shares_experiment) as hosts,
            ):
                _measure(service, hosts)


@contextmanager
def _hosts(service: Service, count: int, shares_experiment: bool) -> Iterator[list[Host]]:
    """Uploaders that run with the options they have by themselves, on logdirs whose files are still
    to come.
    """
    shared = service.api.new_experiment(name="live") if shares_experiment else None
    root = service.directory / "hosts"
    say(f"starting {count} uploaders")
    with ExitStack() as stack:
        started = [
            stack.enter_context(_uploader(service, root / f"{n:03d}", shared)) for n in range(count)
        ]
        yield [
            Host(
                directory, process, shared or _experiment_id(directory), f"host_{number:03d}/{RUN}"
            )
            for number, (directory, process) in enumerate(started)
        ]


@contextmanager
def _uploader(
    service: Service, directory: Path, experiment_id: str | None
) -> Iterator[tuple[Path, subprocess.Popen]]:
    (directory / "logdir" / f"host_{directory.name}" / RUN).mkdir(parents=True)
    command = [sys.executable, "-m", "tbupload", "--logdir", str(directory / "logdir")]
    if experiment_id is not None:
        command += ["--experiment", experiment_id]
    with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
        process = subprocess.Popen(
            command, env=environment(service), stdout=out, stderr=err, cwd=directory
        )
    try:
        yield directory, process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _experiment_id(directory: Path) -> str:
    deadline = time.monotonic() + START_SECONDS_MAX
    while "/experiment/" not in (text := (directory / "out").read_text()):
        assert time.monotonic() < deadline, (directory / "err").read_text()
        time.sleep(0.05)
    return text.split("/experiment/")[1].split("/")[0].strip()


def _measure(service: Service, hosts: list[Host]) -> None:
    seconds = SETTLING_SECONDS + 2 * STEADY_SECONDS + 15
    directories = [str(next((host.logdir / "logdir").iterdir()) / RUN) for host in hosts]
    command = [sys.executable, str(WRITER), str(seconds), *directories]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        began = float(writer.stdout.readline())
        say(f"settling for {SETTLING_SECONDS} s")
        time.sleep(max(0.0, began + SETTLING_SECONDS - time.time()))
        say(f"measuring what it costs for {STEADY_SECONDS} s, without a look")
        before, used_before = _levels(service), _used(service, hosts, writer)
        time.sleep(STEADY_SECONDS)
        after, used = _levels(service), spent(used_before, _used(service, hosts, writer))
        say(f"measuring how long it takes for {STEADY_SECONDS} s")
        with _watching(service, hosts) as watch:
            time.sleep(STEADY_SECONDS)
        _check_alive(hosts)
        _report_latency(watch)
        _report_cost(before, after, used)
        memory = max(peak_memory(host.process.pid) for host in hosts)
        report("most memory of an uploader", f"{memory / 2**20:.0f} MiB")
    finally:
        writer.kill()
        writer.wait()


def _check_alive(hosts: list[Host]) -> None:
    for host in hosts:
        assert host.process.poll() is None, (host.logdir / "err").read_text()


def _used(service: Service, hosts: list[Host], writer: subprocess.Popen) -> dict[str, float]:
    return service.cpu_seconds() | {
        "uploaders": cpu_seconds(*(host.process.pid for host in hosts)),
        "writer": cpu_seconds(writer.pid),
    }


def _levels(service: Service) -> dict[str, float]:
    """Where the write-ahead log, the commits and the points stand, and when."""
    rows = service.query(
        "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, "
        "(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), "
        "(SELECT count(*) FROM scalar_tail), (SELECT coalesce(sum(count), 0) FROM time_series)"
    )
    wal, commits, tail_rows, points = map(float, rows[0])
    return {
        "time": time.time(),
        "wal": wal,
        "commits": commits,
        "tail_rows": tail_rows,
        "points": points,
    }


class Watch:
    """Latencies in seconds, and how long the requests took that asked."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.requests: list[float] = []
        self.lost = 0


@contextmanager
def _watching(service: Service, hosts: list[Host]) -> Iterator[Watch]:
    """A few threads, each of which picks a flush that has just happened and asks until one of its
    points is there.
    """
    watch, end = Watch(), threading.Event()
    threads = [
        threading.Thread(target=_watch, args=(service, hosts, watch, end, n))
        for n in range(WATCHERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield watch
    finally:
        end.set()
        for thread in threads:
            thread.join()


def _watch(
    service: Service, hosts: list[Host], watch: Watch, end: threading.Event, seed: int
) -> None:
    choice, reader = np.random.default_rng(seed), service.reader
    while not end.is_set():
        host = hosts[choice.integers(len(hosts))]
        log = log_of(next((host.logdir / "logdir").iterdir()) / RUN)
        step, flushed = _next_flush(log)
        tag = f"metrics/tag_{choice.integers(TAGS):02d}"
        while True:
            asked = time.time()
            listed = reader.get(host.experiment_id, "scalars", run=host.run, tag=tag)
            seen = time.time()
            watch.requests.append(seen - asked)
            series = listed.get(host.run, {}).get(tag)
            if series is not None and series["max_step"] >= step:
                watch.latencies.append(seen - flushed)
                break
            if seen - flushed > VISIBLE_SECONDS_MAX:
                watch.lost += 1
                break
            time.sleep(WATCH_SECONDS)


def _next_flush(log: Path) -> tuple[int, float]:
    """Waits for the next flush; its step, and when it was."""
    size = log.stat().st_size
    while log.stat().st_size == size:
        time.sleep(0.01)
    step, flushed = json.loads(log.read_text().splitlines()[-1])
    return step, flushed


def _report_latency(watch: Watch) -> None:
    quantiles = np.quantile(watch.latencies, [0.5, 0.95, 1.0])
    asked = statistics.median(watch.requests)
    report(
        f"flush to visible, median of {len(watch.latencies)}",
        f"{quantiles[0]:.2f} s",
        f"with up to {WATCH_SECONDS + asked:.2f} s between two looks",
    )
    report("flush to visible, 95th percentile", f"{quantiles[1]:.2f} s", "under 2 s")
    report("flush to visible, longest", f"{quantiles[2]:.2f} s")
    report(
        "a look, median",
        f"{asked * 1000:.0f} ms",
        f"{len(watch.requests)} looks, {watch.lost} points not seen",
    )


def _report_cost(before: dict[str, float], after: dict[str, float], used: dict[str, float]) -> None:
    seconds = after["time"] - before["time"]
    gone = {name: (after[name] - before[name]) / seconds for name in before}
    report("points committed", f"{gone['points']:,.0f}/s", f"{gone['commits']:.0f} transactions/s")
    for name, each in used.items():
        target = "at most 15 %" if name == "PostgreSQL" else ""
        report(f"CPU of the {name}, of one core", f"{each / seconds:.1%}", target)
    report("write-ahead log", f"{gone['wal'] / 1e6:.2f} MB/s", "at most 3 MB/s")
    report(
        "tail rows at the end",
        f"{after['tail_rows']:,.0f}",
        f"{before['tail_rows']:,.0f} at the beginning",
    )
