"""Migrations of a database with 100 million scalars while batches arrive: how long locks are held, and
how long a batch waits at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
from bench import Bench
from filling import upload_and_fill
from logdirs import MILLION
from machine import report
from service import Service

from support.batches import PROTOBUF, batch, scalars, segment, stream
from support.later_migrations import Migrations
from tbservice.db import migrate

COPIES = 100
BYTES_PER_POINT = 20
"""Of the disk, for a while: blocks, indexes, the write-ahead log, and a table that is rewritten."""

TAGS = 50
UPLOADERS = 2
BASELINE_SECONDS = 10
READER_SECONDS = 6.0
"""How long another transaction keeps the table: longer than a migration waits for it."""

PAUSE_SECONDS = 0.01
TARGET = "at most 3 s, MIGRATE_LOCK_SECONDS_MAX, and a batch"
LOCKS = """
    SELECT l.pid, l.relation::regclass::text, l.mode FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
    WHERE l.granted AND c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
        AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
ONE_TABLE = {"time_series": "ACCESS EXCLUSIVE"}

ONLINE = {
    "a new table with a foreign key": (
        ['CREATE TABLE notes (experiment_id text COLLATE "C" REFERENCES experiments, note text)'],
        {"LOCKS": {"experiments": "SHARE ROW EXCLUSIVE"}},
    ),
    "two columns of the series": (
        [
            "ALTER TABLE time_series ADD COLUMN note text, ADD COLUMN weight integer NOT NULL DEFAULT 1"
        ],
        {"LOCKS": ONE_TABLE},
    ),
    "a column of the blocks": (
        ["ALTER TABLE scalar_blocks ADD COLUMN note text"],
        {"LOCKS": {"scalar_blocks": "ACCESS EXCLUSIVE"}},
    ),
    "a constraint, not valid": (
        ["ALTER TABLE scalar_blocks ADD CONSTRAINT few CHECK (count <= 8192) NOT VALID"],
        {"LOCKS": {"scalar_blocks": "ACCESS EXCLUSIVE"}},
    ),
    "its validation": (
        ["ALTER TABLE scalar_blocks VALIDATE CONSTRAINT few"],
        {"LOCKS": {"scalar_blocks": "SHARE UPDATE EXCLUSIVE"}, "CONCURRENT": True},
    ),
    "an index of the blocks": (
        [
            "DROP INDEX CONCURRENTLY IF EXISTS blocks_by_size",
            "CREATE INDEX CONCURRENTLY blocks_by_size ON scalar_blocks (experiment_id, length(data), count)",
        ],
        {"LOCKS": {"scalar_blocks": "SHARE UPDATE EXCLUSIVE"}, "CONCURRENT": True},
    ),
}
REFUSED = {
    "an index, not concurrently": "CREATE INDEX blocked ON scalar_blocks (experiment_id, length(data), count)",
    "a column with a volatile default": "ALTER TABLE scalar_blocks ADD COLUMN drawn float8 DEFAULT random()",
}
"""What `test_migration_rules.py` refuses, for comparison."""


def measure(bench: Bench) -> None:
    """Fills a database, then migrates it in steps while two uploaders send flushes."""
    copies = max(2, round(COPIES * bench.scale))
    bench.need_disk(MILLION.points * copies * BYTES_PER_POINT)
    with bench.new_service() as service, ExitStack() as stack:
        upload_and_fill(service, copies)
        migrations = Migrations(bench.directory / "migrations", stack.enter_context(patches()))
        load = stack.enter_context(uploading(service))
        rehearse(service, load, migrations)


@contextmanager
def patches() -> Iterator[pytest.MonkeyPatch]:
    """What replaces the program's migrations by a copy, until the block ends."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch


@dataclass
class Load:
    """Flushes that are sent one after the other, and locks that are seen meanwhile."""

    service: Service
    flushes: list[float] = field(default_factory=list)
    """Seconds of each since the last `reset`."""

    locks: dict[tuple[int, str, str], list[float]] = field(default_factory=dict)
    """Times at which a process was seen to hold a lock on a table."""

    stop: threading.Event = field(default_factory=threading.Event)

    def reset(self) -> None:
        self.flushes, self.locks = [], {}

    def send(self, number: int) -> None:
        """Send flushes of a point of each tag until the end."""
        api = self.service.api
        path = f"/experiments/{api.new_experiment(name=f'live {number}')}/batches"
        step = 0
        while not self.stop.is_set():
            series = [
                scalars(f"metrics/{tag}", [step], [0.5], [1.7e9 + step]) for tag in range(TAGS)
            ]
            content = batch(segment(stream(), step * 1000, (step + 1) * 1000, *series))
            began = time.perf_counter()
            api.request("POST", path, content=content, headers=PROTOBUF).raise_for_status()
            self.flushes.append(time.perf_counter() - began)
            step += 1
            time.sleep(PAUSE_SECONDS)

    def watch(self) -> None:
        """Look for locks that keep writers out."""
        postgres = self.service.servers.instance.postgres
        with postgres.connect_as_superuser(self.service.database_name) as db:
            while not self.stop.is_set():
                for key in db.execute(LOCKS).fetchall():
                    self.locks.setdefault(key, []).append(time.perf_counter())
                time.sleep(PAUSE_SECONDS)

    def longest_lock(self) -> str:
        spans = {key: times[-1] - times[0] for key, times in self.locks.items()}
        if not spans:
            return "no lock seen"
        key = max(spans, key=lambda key: spans[key])
        return f"{spans[key]:.3f} s {key[2]} on {key[1]}"


@contextmanager
def uploading(service: Service) -> Iterator[Load]:
    """Upload and watch until the block ends."""
    load = Load(service)
    threads = [threading.Thread(target=load.send, args=(number,)) for number in range(UPLOADERS)]
    threads.append(threading.Thread(target=load.watch))
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join()


def rehearse(service: Service, load: Load, migrations: Migrations) -> None:
    """Run each migration, and report its longest lock and the longest flush."""
    _during(load, "nothing", lambda: time.sleep(BASELINE_SECONDS))
    for number, (name, (statements, constants)) in enumerate(ONLINE.items(), start=9001):
        migrations.add(f"{number}_rehearsed", *statements, **constants)
        _during(load, name, lambda: migrate.upgrade(service.live.database_url), TARGET)

    migrations.add(
        "9101_rehearsed", "ALTER TABLE time_series ADD COLUMN late text", LOCKS=ONE_TABLE
    )
    reader = threading.Thread(target=_read, args=(service,))
    reader.start()
    time.sleep(1)
    name = f"a column, behind a reader of {READER_SECONDS:.0f} s"
    _during(load, name, lambda: migrate.upgrade(service.live.database_url), TARGET)
    reader.join()

    print("  what the tests refuse:")
    for name, statement in REFUSED.items():
        _during(load, name, lambda statement=statement: service.query(statement))


def _read(service: Service) -> None:
    with psycopg.connect(service.live.database_url, application_name="a long read") as db:
        db.execute("SELECT count(*) FROM time_series")
        time.sleep(READER_SECONDS)


def _during(load: Load, name: str, work: Callable[[], object], target: str = "") -> None:
    load.reset()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    time.sleep(1)  # for the flushes that waited
    slowest = max(load.flushes)
    report(
        f"{name}: took {seconds:.2f} s; longest flush of {len(load.flushes)}",
        f"{slowest:.3f} s",
        target,
    )
    if target:
        report("  longest lock that keeps writers out", load.longest_lock())
