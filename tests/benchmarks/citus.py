"""Citus beside plain PostgreSQL of the same binaries: bulk upload, live flushes and the CPU that
PostgreSQL uses for them, samples, in turns.

Needs CITUS_TOOLS: see docs/citus.md. The service enters the cluster by its coordinator. The plain
server is one of its own, with the cluster's configuration without the preloaded library, whose
hooks would slow a database without the extension too. All files are in memory if there is room:
no commit waits for a disk, so that ratios of latency are the worst there are.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from bench import Bench, say
from logdirs import MILLION, write_scalars
from machine import cpu_seconds, report, spent
from prepared import make_batches, send
from service import Service
from storage import wait_for_merge
from upload import await_merges, upload

from support import citus
from support.batches import PROTOBUF, batch, metadata, scalars, segment, stream
from support.servers import live_service
from tbservice.db import migrate
from tbservice.local.embedded.ports import LOOPBACK

DATABASE = "bench"
TAGS = 50
FLUSHES = 300
FLUSHES_PER_TURN = 30
WARM_UP_FLUSHES = 40
"""Requests before those that count: then all connections have prepared the statements."""

READS = 40
SAMPLE = 1_000


@dataclass(frozen=True)
class Side(Service):
    """A service, its PostgreSQL servers by name, and how to connect to the first."""

    postmasters: dict[str, int] = field(default_factory=dict)
    connect: Callable[[], psycopg.Connection[Any]] = psycopg.connect

    def cpu_seconds(self) -> dict[str, float]:
        """Return what its processes have used until now: the server, and each PostgreSQL."""
        server = {"server": cpu_seconds(self.live.process.pid)}
        return server | {name: cpu_seconds(number) for name, number in self.postmasters.items()}

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows of a statement of the superuser's."""
        with self.connect() as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@dataclass(frozen=True)
class Pair:
    """Both sides, batches of a million scalars, and how often to measure."""

    plain: Side
    cluster: Side
    batches: list[list[bytes]]
    logdir: Path
    rounds: int
    scale: float

    def in_turns(self, work: Callable[[Side], float], times: int, target: str, name: str) -> None:
        """Report the median of what the work returns, in seconds, and the ratio of medians."""
        seconds: dict[str, list[float]] = {"plain": [], "cluster": []}
        for number in range(times):
            for side in ("plain", "cluster") if number % 2 else ("cluster", "plain"):
                seconds[side].append(work(getattr(self, side)))
        self.report(name, seconds, target)

    @staticmethod
    def report(name: str, seconds: dict[str, list[float]], target: str) -> None:
        plain, cluster = (statistics.median(seconds[side]) for side in ("plain", "cluster"))
        report(f"{name}: plain, Citus", f"{plain * 1e3:,.2f}, {cluster * 1e3:,.2f} ms")
        report("  Citus : plain", f"{cluster / plain:.2f} x", target)


def measure(bench: Bench) -> None:
    """Start a cluster, a plain server and a service of each; then measure in turns."""
    if not citus.TOOLS:
        raise SystemExit("this needs a cluster: CITUS_TOOLS names the folder with cluster.sh")
    logdir = bench.directory / "logdir"
    write_scalars(logdir, MILLION)
    with ExitStack() as stack:
        cluster = stack.enter_context(citus.running_cluster())
        nodes = ["coordinator", *(f"worker{number + 1}" for number in range(cluster.workers))]
        cluster.make_database(DATABASE, None)
        migrate.upgrade(cluster.url(DATABASE, role=citus.OWNER))
        port = stack.enter_context(_plain_server(cluster))
        plain = stack.enter_context(_serve(bench, cluster, ["plain"], port))
        distributed = stack.enter_context(_serve(bench, cluster, nodes, cluster.port))

        rounds = max(3, bench.rounds)
        pair = Pair(plain, distributed, make_batches(MILLION), logdir, rounds, bench.scale)
        cases = {"bulk": bulk, "uploader": uploader, "flushes": flushes, "samples": sample}
        for name, case in cases.items():
            if bench.is_chosen(name):
                case(pair)


@contextmanager
def _plain_server(cluster: citus.Cluster) -> Iterator[int]:
    """Run a server of the cluster's binaries and configuration, without Citus; yield its port."""
    data, source = cluster.directory / "plain", cluster.directory / "coordinator"
    port = cluster.ports[-1] + 1
    data.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(data, source.stat().st_uid, source.stat().st_gid)
    programs = cluster.directory / "pg/bin"
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    _run(cluster, data, [programs / "initdb", "-D", data, *options])
    lines = (source / "postgresql.conf").read_text().splitlines()
    kept = [line for line in lines if "citus" not in line and not line.startswith("port = ")]
    (data / "postgresql.conf").write_text("\n".join([*kept, f"port = {port}"]))

    control = [programs / "pg_ctl", "-D", data, "-w", "-t", "60", "-l", data / "log"]
    _run(cluster, data, [*control, "start"])
    try:
        with _connect("postgres", port) as db:
            db.execute(f"CREATE ROLE {citus.OWNER} LOGIN NOSUPERUSER NOBYPASSRLS")
            db.execute(f"CREATE DATABASE {DATABASE} OWNER {citus.OWNER}")
        migrate.upgrade(_url(port, citus.OWNER))
        yield port
    finally:
        _run(cluster, data, [*control, "-m", "fast", "stop"])


def _run(cluster: citus.Cluster, data: Path, command: list[object]) -> None:
    subprocess.run(
        citus.as_account(data, command),
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"LC_ALL": "C", "LD_LIBRARY_PATH": str(cluster.directory / "pg/lib")},
    )


def _connect(database: str, port: int) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=LOOPBACK, port=port, user="postgres", dbname=database, autocommit=True
    )


def _url(port: int, role: str) -> str:
    return f"postgresql://{role}:secret@{LOOPBACK}:{port}/{DATABASE}"


@contextmanager
def _serve(
    bench: Bench, cluster: citus.Cluster, names: list[str], database_port: int
) -> Iterator[Side]:
    """Run a service with the database at this port, whose servers have these directories."""
    directory = bench.directory / names[0]
    directory.mkdir()
    postmasters = {
        name: int((cluster.directory / name / "postmaster.pid").read_text().split()[0])
        for name in names
    }
    role = citus.OWNER if names == ["plain"] else citus.APPLICATION
    with (
        bench.servers.settings(_url(database_port, role)) as settings,
        live_service(settings, directory / "service.log") as live,
    ):
        token = live.new_owner()
        yield Side(
            live,
            bench.servers,
            token,
            directory,
            postmasters,
            lambda: _connect(DATABASE, database_port),
        )


def bulk(pair: Pair) -> None:
    """Send a million scalars in prepared batches, each time as a new experiment."""
    used: defaultdict[int, list[float]] = defaultdict(list)

    def work(side: Side) -> float:
        experiment_id = side.api.new_experiment(name="bulk")
        gc.collect()
        before = side.cpu_seconds()
        seconds = send(side, experiment_id, pair.batches)
        await_merges(side)
        cpu = spent(before, side.cpu_seconds())
        used[id(side)].append(sum(cpu[name] for name in side.postmasters))
        return seconds

    for side in (pair.plain, pair.cluster):
        work(side)
    used.clear()
    name = f"{MILLION.points:,} scalars in prepared batches"
    pair.in_turns(work, 2 * pair.rounds, "at most 1.15 x", name)
    each = (statistics.median(used[id(side)]) for side in (pair.plain, pair.cluster))
    report("  PostgreSQL's CPU, compacted: plain, Citus", "{:.2f}, {:.2f} s".format(*each))


def uploader(pair: Pair) -> None:
    """Upload the same scalars by `tbupload`."""

    def work(side: Side) -> float:
        seconds = upload(side, pair.logdir).seconds
        await_merges(side)
        return seconds

    name = f"{MILLION.points:,} scalars by tbupload"
    pair.in_turns(work, 2 * pair.rounds, "at most 1.15 x", name)


def flushes(pair: Pair) -> None:
    """Send flushes of 50 tags as a training job does, each after the answer to the one before."""
    latencies: dict[str, list[float]] = {"plain": [], "cluster": []}
    used: defaultdict[str, float] = defaultdict(float)
    turns = max(2, round(FLUSHES * pair.scale / FLUSHES_PER_TURN))
    for _ in range(pair.rounds):
        loops = {name: _Loop(getattr(pair, name)) for name in ("plain", "cluster")}
        for loop in loops.values():
            loop.flush(WARM_UP_FLUSHES)
        for turn in range(turns):
            for name in loops if turn % 2 else reversed(loops):
                before = loops[name].side.cpu_seconds()
                latencies[name] += loops[name].flush(FLUSHES_PER_TURN)
                for process, seconds in spent(before, loops[name].side.cpu_seconds()).items():
                    used[f"{name}'s {process}" if process == "server" else process] += seconds
    pair.report(f"a flush of {TAGS} tags", latencies, "at most 1.3 x")

    count = pair.rounds * turns * FLUSHES_PER_TURN
    nodes = pair.cluster.postmasters
    report(
        "PostgreSQL's CPU a flush: plain, Citus",
        f"{used['plain'] / count * 1e3:.2f}, {sum(used[n] for n in nodes) / count * 1e3:.2f} ms",
    )
    ratio = sum(used[name] for name in nodes) / used["plain"]
    report("  Citus : plain", f"{ratio:.2f} x", "at most 2 x")
    each = ", ".join(f"{name} {used[name] / count * 1e3:.2f} ms" for name in nodes)
    say(f"of it: {each}")
    servers = (used[f"{name}'s server"] / count * 1e3 for name in ("plain", "cluster"))
    report("CPU of the service a flush: plain, Citus", "{:.2f}, {:.2f} ms".format(*servers))


class _Loop:
    """A training job's flushes, one after the other: a new experiment, one point of each tag."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._api = side.api
        self._path = f"/experiments/{self._api.new_experiment(name='flushes')}/batches"
        self._step = 0
        self._values = np.random.default_rng(0).normal(size=TAGS)

    def flush(self, count: int) -> list[float]:
        """Send so many; return the seconds of each."""
        return [self._send() for _ in range(count)]

    def _send(self) -> float:
        step = self._step
        self._step += 1
        described = b"" if step else metadata()  # as the uploader: once
        series = [
            scalars(
                f"metrics/tag_{tag:02d}",
                [step],
                [self._values[tag] + step],
                [1.7e9 + step],
                summary_metadata=described,
            )
            for tag in range(TAGS)
        ]
        content = batch(segment(stream(), step * 1000, (step + 1) * 1000, *series))
        began = time.perf_counter()
        answer = self._api.request("POST", self._path, content=content, headers=PROTOBUF)
        seconds = time.perf_counter() - began
        answer.raise_for_status()
        return seconds


def sample(pair: Pair) -> None:
    """Read 1,000 points of each series of a run."""
    paths = {}
    for side in (pair.plain, pair.cluster):
        experiment_id = side.api.new_experiment(name="sampled")
        send(side, experiment_id, pair.batches)
        paths[id(side)] = f"/api/v1/experiments/{experiment_id}/scalars/data"
    for side in (pair.plain, pair.cluster):
        wait_for_merge(side)
    readers = {id(side): side.reader for side in (pair.plain, pair.cluster)}
    parameters = {"run": "run_0003", "downsample": SAMPLE}

    def work(side: Side) -> float:
        began = time.perf_counter()
        answer = readers[id(side)].http.get(paths[id(side)], params=parameters)
        seconds = time.perf_counter() - began
        answer.raise_for_status()
        assert len(answer.json()[parameters["run"]]) == MILLION.tags
        return seconds

    for side in (pair.plain, pair.cluster):
        for _ in range(8):
            work(side)
    name = f"a sample of {SAMPLE:,} of a run with {MILLION.tags} tags"
    pair.in_turns(work, READS, "at most 1.2 x", name)
