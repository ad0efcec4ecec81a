"""Reading a series that arrived in 10,000 small flushes, against the same points uploaded in bulk."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from bench import Bench, say
from machine import report
from service import Service
from storage import wait_for_merge

from support.batches import PROTOBUF, ApiClient, batch, scalars, segment, stream

FLUSHES = 10_000
TAGS = 50
POINTS_A_FLUSH = (1, 10)
SAMPLE = 1_000
READS = 40
BULK_POINTS = 100_000

COUNTS = """
    SELECT (SELECT count(*) FROM scalar_tail), (SELECT count(*) FROM scalar_blocks WHERE level = 0),
        (SELECT count(*) FROM scalar_blocks WHERE level = -1), (SELECT count(*) FROM scalar_blocks WHERE level > 0)
"""
INSERTED = (
    "SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_user_tables WHERE relname = 'scalar_blocks'"
)


@dataclass(frozen=True)
class Shape:
    """What arrives: how many flushes, and how many points of each tag in one."""

    flushes: int
    points: int

    @property
    def steps(self) -> int:
        return self.flushes * self.points


def measure(bench: Bench) -> None:
    """Sends small batches one after the other, as fast as they are taken; reads in turns, merged
    and not yet merged.
    """
    for number, points in enumerate(POINTS_A_FLUSH):
        shape = Shape(round(FLUSHES * bench.scale), points)
        print(f"  {shape.flushes:,} flushes of {TAGS} tags with {points} points each")
        with bench.new_service(f"service_{number}") as service:
            _measure(service, shape)


def _measure(service: Service, shape: Shape) -> None:
    api = service.api
    bulk = api.new_experiment(name="bulk")
    send_all(api, bulk, make_batches(shape, BULK_POINTS // TAGS))
    say("merging what came in bulk")
    wait_for_merge(service)
    inserted_before = _inserted(service)
    flushed = api.new_experiment(name="flushes")
    batches = list(make_batches(shape, shape.points))
    wal = _wal(service)
    seconds = send_all(api, flushed, batches)
    count = shape.steps * TAGS
    report(
        "flushes, one after the other",
        f"{shape.flushes / seconds:,.0f}/s",
        f"{count / seconds:,.0f} points/s",
    )
    report("write-ahead log a point", f"{(_wal(service) - wal) / count:.0f} B")
    _compare(service, shape, bulk, flushed, "at once after the last flush", inserted_before)
    say("waiting until everything is merged")
    wait_for_merge(service)
    _compare(service, shape, bulk, flushed, "when all is merged", inserted_before)


def make_batches(shape: Shape, steps_a_batch: int) -> Iterator[bytes]:
    """The same points, however they are cut."""
    random = np.random.default_rng(0)
    values = random.normal(size=(TAGS, shape.steps)).astype(np.float32)
    wall_times = 1.7e9 + np.cumsum(random.exponential(0.3, shape.steps))
    for start in range(0, shape.steps, steps_a_batch):
        steps = np.arange(start, min(start + steps_a_batch, shape.steps))
        series = [
            scalars(f"metrics/tag_{tag:02d}", steps, values[tag, steps], wall_times[steps])
            for tag in range(TAGS)
        ]
        yield batch(segment(stream(), start * 1000, int(steps[-1] + 1) * 1000, *series))


def send_all(api: ApiClient, experiment_id: str, batches: Iterable[bytes]) -> float:
    """Seconds until all are committed, one after the other."""
    began = time.perf_counter()
    for content in batches:
        api.request(
            "POST", f"/experiments/{experiment_id}/batches", content=content, headers=PROTOBUF
        ).raise_for_status()
    return time.perf_counter() - began


def _compare(
    service: Service, shape: Shape, bulk: str, flushed: str, when: str, inserted_before: int
) -> None:
    print(f"  {when}:")
    tail, sealed, still_open, thinned = service.query(COUNTS)[0]
    report(
        "  tail rows, sealed, open and thinned blocks, in both",
        f"{tail} {sealed} {still_open} {thinned}",
    )
    report(
        "  block rows written for the flushes, a series",
        f"{(_inserted(service) - inserted_before) / TAGS:.1f}",
    )
    for name, points, target in (
        ("in full", shape.steps, "at most 1.3 x"),
        ("1,000 points", SAMPLE, "at most 2 x"),
    ):
        seconds = _read_in_turns(service, shape, (bulk, flushed), points)
        report(
            f"  a series of {shape.steps:,} points {name}: bulk, flushes",
            f"{seconds[bulk] * 1000:.2f}, {seconds[flushed] * 1000:.2f} ms",
        )
        report("    flushes : bulk", f"{seconds[flushed] / seconds[bulk]:.2f} x", target)


def _read_in_turns(
    service: Service, shape: Shape, experiments: tuple[str, str], points: int
) -> dict[str, float]:
    """Median seconds of a request for one series, by experiment."""
    seconds: dict[str, list[float]] = {experiment_id: [] for experiment_id in experiments}
    reader = service.reader
    for number in range(READS):
        for experiment_id, of_it in seconds.items():
            tag = f"metrics/tag_{number % TAGS:02d}"
            began = time.perf_counter()
            answer = reader.http.get(
                f"/api/v1/experiments/{experiment_id}/scalars/data",
                params={"tag": tag, "downsample": points},
            )
            of_it.append(time.perf_counter() - began)
            assert len(answer.json()["train"][tag]["steps"]) == min(points, shape.steps)
    return {experiment_id: statistics.median(of_it) for experiment_id, of_it in seconds.items()}


def _inserted(service: Service) -> int:
    service.query("SELECT pg_stat_force_next_flush()")
    return int(service.query(INSERTED)[0][0])


def _wal(service: Service) -> int:
    return int(service.query("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")[0][0])
