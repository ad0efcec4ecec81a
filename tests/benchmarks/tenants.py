"""100 tenants, one of whom does its worst for an hour (times the scale), one attack after the other:
p95 of the requests of the 99 others against the same without it, and what has grown by then.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
from attacking.catalog import KNOWN
from attacking.victim import Latencies
from attacking.world import MIB, Attacker, Serving, World, new_world
from bench import Bench, say
from machine import report

from support.batches import PROTOBUF, ApiClient, batch, scalars, segment, stream
from support.servers import new_owner, s3_client
from support.uploading import Reader

TENANTS = 99
PAUSE_SECONDS = 6.0
"""Seconds between two rounds of a tenant: a flush, a sample, its list; about 50 requests a second."""

WARM_SECONDS, HOSTILE_SECONDS = 15.0, 3600.0
IDLE_SHARE = 1 / 10
"""Seconds without the attacker before each attack, for each second of it."""

ATTACKS = (
    "M4-extremes",
    "M4-digests",
    "H4",
    "H2",
    "M3",
    "M5-tails",
    "H1-batch",
    "S1-churn",
    "S2-refused-1000",
)
"""Attacks that need one account and one address only."""

DATA_SCALE = 0.05
KINDS = ("write", "read", "list")
TARGET = 3.0
TABLES = 6
"""Tables that have grown most, which are named at the end."""

_OK = 200
_SECONDS_MAX = 20.0


def _new_latencies() -> dict[str, Latencies]:
    return {kind: Latencies() for kind in KINDS}


@dataclass
class Tenant:
    """A workspace with an experiment, which is written to and read."""

    number: int
    token: str
    experiment: str
    latencies: dict[str, Latencies] = field(default_factory=_new_latencies)
    steps: int = 0

    def work(self, host: str, port: int) -> None:
        """Do one round."""
        series = [scalars(f"tag {tag}", [self.steps]) for tag in range(20)]
        body = batch(segment(stream(), self.steps, self.steps + 1, *series))
        place = f"/api/v1/experiments/{self.experiment}"
        # A flush that failed is sent again in the next round.
        self.steps += self._ask("write", host, port, "POST", f"{place}/batches", body)
        self._ask("read", host, port, "GET", f"{place}/scalars/data?downsample=100")
        self._ask("list", host, port, "GET", "/api/v1/experiments")

    def _ask(
        self, kind: str, host: str, port: int, method: str, path: str, body: bytes | None = None
    ) -> bool:
        headers = {
            # Through a proxy: a client on the service's own machine is not paced.
            "X-Forwarded-For": f"198.51.100.{self.number}",
            "Authorization": f"Bearer {self.token}",
            **(PROTOBUF if body else {}),
        }
        latencies, began = self.latencies[kind], time.monotonic()
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS_MAX)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            latencies.failures[type(error).__name__] += 1
            return False
        finally:
            connection.close()
        if answer.status != _OK:
            latencies.failures[str(answer.status)] += 1
            return False
        latencies.seconds.append(time.monotonic() - began)
        return True


def measure(bench: Bench) -> None:
    """Measure idle and hostile in turns, for each attack its part of the time."""
    names = [name for name in ATTACKS if bench.is_chosen(name)]
    seconds = HOSTILE_SECONDS * bench.scale / len(names)
    idle, hostile = _new_latencies(), _new_latencies()
    with new_world(bench, DATA_SCALE) as world:
        world.prepare(*(each for name in names for each in KNOWN[name].experiments))
        with world.serving() as serving:
            say(f"making {TENANTS} tenants")
            tenants = [_make(serving, number + 1) for number in range(TENANTS)]
            with _at_work(tenants, serving):
                time.sleep(WARM_SECONDS)
                first = _sizes(world)
                _tell_growth("before the attacks", world, serving)
                for name in names:
                    before = _phase(tenants, max(PAUSE_SECONDS, seconds * IDLE_SHARE))
                    attacker = Attacker(name, world.target(serving, 1.0, is_owner=True), 10**6)
                    try:
                        during = _phase(tenants, seconds)
                    finally:
                        say(f"{name}: answers to the attacker: {attacker.stop()}")
                    time.sleep(PAUSE_SECONDS)
                    _tell(name, during, before)
                    _tell_growth(f"after {name}", world, serving)
                    _add(idle, before)
                    _add(hostile, during)
            _tell(f"hostile for {seconds * len(names):.0f} s in all", hostile, idle)
        sizes = _sizes(world)
        for table in sorted(sizes, key=lambda each: first.get(each, 0) - sizes[each])[:TABLES]:
            grown = (sizes[table] - first.get(table, 0)) / MIB
            report(f"{table} has grown by", f"{grown:.1f} MiB", f"to {sizes[table] / MIB:.1f}")


def _sizes(world: World) -> dict[str, int]:
    """Return the bytes of each table, with its indexes."""
    with psycopg.connect(world.settings.database_url.get_secret_value()) as db:  # type: ignore[attr-defined]  # Settings
        return dict(
            db.execute("""
                SELECT relname, pg_total_relation_size(oid) FROM pg_class
                WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            """)
        )


def _tell_growth(when: str, world: World, serving: Serving) -> None:
    worker, others = serving.memory()
    report(f"{when}: memory of the worker", f"{worker / MIB:.0f} MiB", f"{others / MIB:.0f} others")
    pages = s3_client(world.settings).get_paginator("list_objects_v2")
    bucket = world.settings.s3_bucket  # type: ignore[attr-defined]  # Settings
    listed = [each for page in pages.paginate(Bucket=bucket) for each in page.get("Contents", ())]
    stored = sum(each["Size"] for each in listed) / MIB
    size = sum(_sizes(world).values()) / MIB
    report(f"{when}: tables", f"{size:.1f} MiB", f"{len(listed)} objects of {stored:.1f} MiB")


def _add(united: dict[str, Latencies], phase: dict[str, Latencies]) -> None:
    for kind, latencies in phase.items():
        united[kind].seconds += latencies.seconds
        united[kind].failures += latencies.failures


def _make(serving: Serving, number: int) -> Tenant:
    token = new_owner(serving.live.database_url)
    api = ApiClient(Reader(serving.live.url, token).http, token)
    return Tenant(number, token, api.new_experiment())


@contextmanager
def _at_work(tenants: Sequence[Tenant], serving: Serving) -> Iterator[None]:
    """Let each tenant work in a thread of its own, evenly spread, while the block lasts."""
    ended = threading.Event()
    host, port = "127.0.0.1", int(serving.live.url.rpartition(":")[2])

    def repeat(tenant: Tenant) -> None:
        ended.wait(PAUSE_SECONDS * tenant.number / TENANTS)
        while not ended.is_set():
            began = time.monotonic()
            tenant.work(host, port)
            ended.wait(max(0.0, began + PAUSE_SECONDS - time.monotonic()))

    threads = [threading.Thread(target=repeat, args=(each,), daemon=True) for each in tenants]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(4 * _SECONDS_MAX)


def _phase(tenants: Sequence[Tenant], seconds: float) -> dict[str, Latencies]:
    """Return the latencies of all tenants in the next seconds."""
    for tenant in tenants:
        tenant.latencies = _new_latencies()
    time.sleep(seconds)
    united = _new_latencies()
    for tenant in tenants:
        _add(united, tenant.latencies)
    return united


def _tell(what: str, phase: dict[str, Latencies], idle: dict[str, Latencies]) -> None:
    for kind in KINDS:
        now, before = (each[kind].quantile(0.95) for each in (phase, idle))
        failed = phase[kind].failures.total()
        of = f"{failed} of {failed + len(phase[kind].seconds)} failed"
        report(f"{what}: p95 of a {kind}", f"{now * 1e3:.0f} ms", of)
        report(f"{what}: p95 : idle, {kind}", f"{now / before:.1f} x", f"at most {TARGET:g} x")
