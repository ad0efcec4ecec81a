"""Eight uploaders into one workspace, in turns: without counters, with them, and with a quota that
is far, or near, of the workspace or of its account; the sums that a look at a quota reads, over
10,000 experiments; and what it costs to count a request, and to store the counts.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import urllib3
from bench import Bench, say
from machine import report, spent, told
from service import Service

from support.batches import PROTOBUF, batch, scalars, segment, stream
from tbservice.db.database import Database
from tbservice.quotas import plans
from tbservice.quotas.tables import usage_counters
from tbservice.quotas.traffic import TrafficMeter
from tbservice.types.grants import Scope
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import QUOTA_NAMES

UPLOADERS = 8
BATCHES = 40
"""Batches of an uploader in a turn: small, as those of a job that is followed."""

TAGS, POINTS = 20, 10
NO_COUNTERS, NO_QUOTA, FAR, NEAR = "no counters", "no quota", "quota far", "quota near"
ACCOUNT_FAR, ACCOUNT_NEAR = "account's quota far", "account's quota near"
ACCOUNT, ACCOUNT_WORKSPACES = UserId("bench"), 5
"""An account has as many workspaces as a person may create; one is uploaded to."""

EXPERIMENTS = 10_000
REQUESTS = 20_000


def measure(bench: Bench) -> None:
    """Upload in turns to two services on one PostgreSQL; print processor time as ratios."""
    bodies = list(map(make_body, range(BATCHES)))
    with ExitStack() as stack:
        before = stack.enter_context(bench.new_service("before"))
        # As a database without the migration: the service looks for this table.
        before.query("ALTER TABLE quota_plans RENAME TO unknown")
        counted = stack.enter_context(bench.new_service("counted"))
        _make_account(counted)
        sides = (NO_QUOTA, FAR, NEAR, ACCOUNT_FAR, ACCOUNT_NEAR)
        places = {NO_COUNTERS: before, **dict.fromkeys(sides, counted)}
        cpu: defaultdict[str, list[float]] = defaultdict(list)
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        for number in range(bench.rounds + 1):
            for side, service in places.items():
                if service is counted:
                    set_quota(service, side)
                used, took = upload(service, bodies)
                if number:  # the first turn of each creates pools and plans
                    cpu[side].append(sum(used.values()))
                    seconds[side].append(took)
                say(f"{side}: {took:.2f} s ({told(used)} CPU)")
        for side in sides:
            report_ratio(side, "processor time", cpu[side], NO_COUNTERS, cpu[NO_COUNTERS])
            report_ratio(side, "time", seconds[side], NO_COUNTERS, seconds[NO_COUNTERS])
        _measure_sums(counted)
        _measure_traffic(counted)


def make_body(number: int) -> bytes:
    steps = range(number * POINTS, (number + 1) * POINTS)
    series = [scalars(f"tag {tag}", steps) for tag in range(TAGS)]
    return batch(segment(stream(), number, number + 1, *series))


def report_ratio(side: str, what: str, values: list[float], other: str, base: list[float]) -> None:
    """Report the median of the ratios of the turns of a round."""
    ratio = statistics.median(mine / its for mine, its in zip(values, base, strict=True))
    report(f"  {side} : {other}, {what}", f"{ratio:.3f} x", "at most 1.03 x")


def _make_account(service: Service) -> None:
    """Let the workspace belong to an account with others."""
    names = f"SELECT 'bench', '{ACCOUNT}' FROM generate_series(2, {ACCOUNT_WORKSPACES})"  # noqa: S608 - constants
    service.query(f"UPDATE workspaces SET created_by = '{ACCOUNT}'")  # noqa: S608 - a constant
    service.query(f"INSERT INTO workspaces (name, created_by) {names}")


def set_quota(service: Service, side: str) -> None:
    """Set a quota of points: none, one that is far, or one with room for two turns."""
    (number,) = service.query("SELECT min(workspace_id) FROM workspaces")[0]
    workspace_id = WorkspaceId(number)
    database = Database(service.live.database_url, 1)
    with database.transaction(workspace_id) as db:
        used = usage_counters.sum_all(db, workspace_id).points
        near = used + 2 * UPLOADERS * BATCHES * TAGS * POINTS
        limit = {FAR: 10**12, NEAR: near, ACCOUNT_FAR: 10**12, ACCOUNT_NEAR: near}.get(side)
        own = {"points": None if side in (ACCOUNT_FAR, ACCOUNT_NEAR) else limit}
        plans.set_quota(db, workspace_id, None, dict.fromkeys(QUOTA_NAMES) | own)
    with database.transaction() as db:
        together = {"points": limit if side in (ACCOUNT_FAR, ACCOUNT_NEAR) else None}
        plans.set_quota(db, ACCOUNT, None, dict.fromkeys(QUOTA_NAMES) | together)
    database.close()


def upload(service: Service, bodies: list[bytes]) -> tuple[dict[str, float], float]:
    """Upload to as many new experiments as there are uploaders; return CPU by group, and seconds."""
    experiments = [service.api.new_experiment() for _ in range(UPLOADERS)]
    before, began = service.cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(UPLOADERS) as pool:
        list(pool.map(partial(_send_all, service, bodies), experiments))
    took = time.perf_counter() - began
    return spent(before, service.cpu_seconds()), took


def _send_all(service: Service, bodies: list[bytes], experiment: str) -> None:
    headers = {**PROTOBUF, "Authorization": f"Bearer {service.token}"}
    url = f"{service.live.url}/api/v1/experiments/{experiment}/batches"
    with urllib3.PoolManager(maxsize=1) as http:
        for body in bodies:
            status = 429
            while status == 429:
                status = http.request("POST", url, body=body, headers=headers).status
            assert status == 200, status


def _measure_sums(service: Service) -> None:
    """Measure the statements of a look at the quota, in a workspace of many experiments."""
    (workspace_id,) = service.query("SELECT min(workspace_id) FROM workspaces")[0]
    columns = "(experiment_id, workspace_id, scalars)"
    numbers = f"generate_series(1, {EXPERIMENTS}) AS n"
    rows = f"SELECT 'bench' || n, {workspace_id}, n FROM {numbers}"  # noqa: S608 - numbers
    service.query(f"INSERT INTO usage_counters {columns} {rows}")
    service.query("ANALYZE usage_counters")
    database = Database(service.live.database_url, 1)
    looks = []
    for _ in range(20):
        with database.transaction(WorkspaceId(workspace_id)) as db:
            began = time.perf_counter()
            usage_counters.sum_granted(db, [WorkspaceId(workspace_id)], "bench1")
            looks.append(time.perf_counter() - began)
    database.close()
    took = statistics.median(looks)
    report(f"sum over {EXPERIMENTS:,} experiments, at a look at the quota", f"{took * 1e3:.1f} ms")


def _measure_traffic(service: Service) -> None:
    """Measure the processor time of what each request does, and of a visit every ten seconds."""
    (number,) = service.query("SELECT min(workspace_id) FROM workspaces")[0]
    workspace_id = WorkspaceId(number)
    database = Database(service.live.database_url, 1)
    for side, limits in (
        ("no limit", {}),
        ("two limits", {"requests": 10**9, "export_bytes": 10**15}),
    ):
        with database.transaction(workspace_id) as db:
            plans.set_quota(db, workspace_id, None, dict.fromkeys(QUOTA_NAMES) | limits)
        meter = TrafficMeter(database)
        _count_request(meter, workspace_id)
        meter.store()
        began = time.process_time()
        for _ in range(REQUESTS):
            _count_request(meter, workspace_id)
        took = (time.process_time() - began) / REQUESTS
        report(f"counting a request, {side}", f"{took * 1e6:.1f} µs", "at most 3 % of a small read")
        began = time.process_time()
        meter.store()
        report(f"storing the counts, {side}", f"{(time.process_time() - began) * 1e3:.1f} ms")
    database.close()


def _count_request(meter: TrafficMeter, workspace_id: WorkspaceId) -> None:
    request = meter.begin_request()
    request.count(workspace_id, Scope.READ, "a person", "an experiment", is_member=True)
    request.list_fields()
    request.add_bytes(1000)
