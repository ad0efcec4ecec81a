"""One database with 1,000 million scalars, against one with a million: uploads, flushes, samples,
lists, search, compaction, vacuum, in turns.

The points are packed blocks, copied within PostgreSQL: `--scale 0.01` is 10 million.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import Bench, say
from filling import fill
from logdirs import MILLION, Size
from machine import report, spent, told
from prepared import make_batches, send
from service import Service
from storage import wait_for_merge

COPIES = 1_000
DISK_BYTES_PER_POINT = 16
"""For a while: blocks, their indexes, the write-ahead log."""

FLUSHES = 200
READS = 30
SAMPLE = 1_000
TARGET = "at most 1.2 x"


@dataclass
class Seconds:
    """Figures of both databases."""

    small: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)

    def report(self, name: str, target: str = TARGET) -> None:
        few, many = statistics.median(self.small), statistics.median(self.large)
        report(f"{name}: small, large", f"{few * 1e3:,.1f}, {many * 1e3:,.1f} ms")
        report("  large : small", f"{many / few:.2f} x", target)


def measure(bench: Bench) -> None:
    """Fills one database, and leaves another with one million."""
    copies = max(2, round(COPIES * bench.scale))
    bench.need_disk(MILLION.points * copies * DISK_BYTES_PER_POINT)
    batches = make_batches(MILLION)
    with bench.new_service("small") as small, bench.new_service("large") as large:
        for service in (small, large):
            send(service, service.api.new_experiment(name="prepared"), batches)
            wait_for_merge(service)
        experiments = fill(large, copies)
        pair = Pair(small, large, experiments, max(3, bench.rounds))
        for step in (vacuum_all, flush, send_bulk(batches), sample, list_all, vacuum):
            step(pair)
        report_size(large)


@dataclass(frozen=True)
class Pair:
    """Both services, the experiments of the large one, and how often to measure in turns."""

    small: Service
    large: Service
    experiments: list[str]
    rounds: int

    def in_turns(self, work: Callable[[Service], object], times: int = 0) -> Seconds:
        """Time the work on both, in turns."""
        seconds = Seconds()
        for _ in range(times or self.rounds):
            for service, of_it in ((self.small, seconds.small), (self.large, seconds.large)):
                began = time.perf_counter()
                work(service)
                of_it.append(time.perf_counter() - began)
        return seconds


def vacuum_all(pair: Pair) -> None:
    """Vacuum all for the first time, as autovacuum does during the weeks in which points come."""
    pair.in_turns(lambda service: service.query("VACUUM ANALYZE"), 1).report(
        "first VACUUM ANALYZE of all", "grows with the points"
    )
    pair.large.query("CHECKPOINT")


def flush(pair: Pair) -> None:
    """Send flushes of 50 tags, one after the other; then wait until they are compacted."""
    batches = make_batches(Size(1, 50, FLUSHES), batch_steps=1)
    used: dict[str, list[str]] = {"small": [], "large": []}
    totals = {"small": 0.0, "large": 0.0}

    def work(service: Service) -> None:
        before = service.cpu_seconds()
        send(service, service.api.new_experiment(name="flushed"), batches)
        cpu = spent(before, service.cpu_seconds())
        name = "small" if service is pair.small else "large"
        used[name].append(told(cpu))
        totals[name] += cpu["server"] + cpu["PostgreSQL"]

    pair.in_turns(work).report(f"{FLUSHES} flushes of 50 tags")
    say(f"CPU of each: small {'; '.join(used['small'])}; large {'; '.join(used['large'])}")
    report(
        "  CPU of both servers, large : small", f"{totals['large'] / totals['small']:.2f} x", TARGET
    )
    pair.in_turns(wait_for_merge, 1).report(
        "until they are compacted", "the idle time is most of it"
    )


def send_bulk(batches: list[list[bytes]]) -> Callable[[Pair], None]:
    """Return what sends a million scalars in prepared batches, as a new experiment."""

    def bulk(pair: Pair) -> None:
        def work(service: Service) -> None:
            send(service, service.api.new_experiment(name="bulk"), batches)

        pair.in_turns(work).report(f"{MILLION.points:,} scalars in prepared batches")
        for service in (pair.small, pair.large):
            wait_for_merge(service)

    return bulk


def sample(pair: Pair) -> None:
    """Read a sample of a run: of one experiment again and again, and of others that are not cached."""
    readers = {id(service): service.reader for service in (pair.small, pair.large)}
    first = {id(pair.small): _only_experiment(pair.small), id(pair.large): pair.experiments[0]}
    others = iter(pair.experiments[1:] * READS)

    def read(service: Service, experiment_id: str) -> None:
        answer = readers[id(service)].http.get(
            f"/api/v1/experiments/{experiment_id}/scalars/data",
            params={"run": "run_0003", "downsample": SAMPLE},
        )
        answer.raise_for_status()
        assert len(answer.json()["run_0003"]) == MILLION.tags

    name = f"a sample of {SAMPLE} of a run with {MILLION.tags} tags"
    pair.in_turns(lambda service: read(service, first[id(service)]), READS).report(name)
    pair.in_turns(
        lambda service: read(
            service, next(others) if service is pair.large else first[id(service)]
        ),
        READS,
    ).report(f"{name}, each of another experiment", "small is cached, large is not")


def _only_experiment(service: Service) -> str:
    rows = service.query("SELECT experiment_id FROM experiments ORDER BY created_at LIMIT 1")
    return str(rows[0][0])


def list_all(pair: Pair) -> None:
    """Read lists: of experiments, of those with a word, and of the runs and tags of one."""
    readers = {id(service): service.reader for service in (pair.small, pair.large)}
    first = {id(pair.small): _only_experiment(pair.small), id(pair.large): pair.experiments[-1]}
    paths = {
        "first page of experiments": lambda _: "/api/v1/experiments?limit=50",
        "the same by size": lambda _: "/api/v1/experiments?limit=50&sort=size",
        "search for a word of most": lambda _: "/api/v1/experiments?limit=50&q=prepared",
        "search for a word of few": lambda _: "/api/v1/experiments?limit=50&q=flushed",
        "series of one experiment": lambda s: f"/api/v1/experiments/{first[id(s)]}/scalars",
    }
    for name, path in paths.items():

        def read(service: Service, path: Callable[[Service], str] = path) -> None:
            readers[id(service)].http.get(path(service)).raise_for_status()

        pair.in_turns(read, READS).report(name)


def vacuum(pair: Pair) -> None:
    """Delete the points of one experiment, and vacuum: the whole index is read for that."""

    def work(service: Service) -> None:
        service.query("VACUUM scalar_blocks")

    for service in (pair.small, pair.large):
        rows = service.query("SELECT experiment_id FROM experiments WHERE name = 'bulk' LIMIT 1")
        service.query(f"DELETE FROM scalar_blocks WHERE experiment_id = '{rows[0][0]}'")  # noqa: S608 - our own id
    pair.in_turns(work, 1).report("VACUUM after an experiment was deleted", "grows with the index")
    for service, name in ((pair.small, "small"), (pair.large, "large")):
        rows = service.query(
            "SELECT sum(autovacuum_count), sum(n_dead_tup) FROM pg_stat_user_tables"
        )
        say(f"{name}: autovacuums {rows[0][0]}, dead rows {rows[0][1]}")


def report_size(service: Service) -> None:
    """Report what the large database takes."""
    ((points,),) = service.query("SELECT sum(count) FROM scalar_blocks WHERE level <= 0")
    rows = service.query(
        "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    size = sum(table + indexes for _, table, indexes in rows)
    report("the large database", f"{size / 2**20:,.0f} MiB", f"{points:,} scalars")
    report("  a scalar", f"{size / float(points):.2f} B")
    for name, table, indexes in sorted(rows, key=lambda row: -row[1])[:3]:
        report(f"  {name}: table, indexes", f"{table / 2**20:,.0f}, {indexes / 2**20:,.0f} MiB")
