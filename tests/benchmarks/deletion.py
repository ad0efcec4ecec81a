"""Experiments of 10 million points and their images erased while others upload: their p95 : idle,
and the bytes in PostgreSQL and in the bucket before and after.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import urllib3
from bench import Bench, say
from machine import report
from service import Service

from support.batches import PROTOBUF, batch, images, packed_scalars, scalars, segment, stream
from support.servers import s3_client

CASES = {"long series": (20, 100, 5_000), "short series": (100, 1_000, 100)}
"""Runs, tags, and points of each series: 10 million points at scale 1."""

IMAGES, IMAGE_BYTES = 400, 20_000
UPLOADERS, PAUSE_SECONDS = 4, 0.05
IDLE_SECONDS, AFTER_SECONDS = 30.0, 30.0
UPLOADER_TAGS = 20
TABLES = ("time_series", "scalar_blocks", "scalar_tail", "blob_points", "experiment_blobs")
WAIT_SECONDS_MAX = 600.0


class Uploads:
    """Uploaders into experiments of their own; `seconds` has begin and length of each request."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._ended = threading.Event()
        self.seconds: list[tuple[float, float]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Upload while the block lasts."""
        experiments = [self._service.api.new_experiment() for _ in range(UPLOADERS)]
        with ThreadPoolExecutor(UPLOADERS) as pool:
            threads = [pool.submit(self._send_all, each) for each in experiments]
            try:
                yield
            finally:
                self._ended.set()
        for thread in threads:
            thread.result()

    def between(self, began: float, ended: float) -> list[float]:
        """Return the seconds of the requests that were under way then."""
        return [took for start, took in self.seconds if start + took > began and start < ended]

    def _send_all(self, experiment: str) -> None:
        headers = {**PROTOBUF, "Authorization": f"Bearer {self._service.token}"}
        url = f"{self._service.live.url}/api/v1/experiments/{experiment}/batches"
        number = 0
        with urllib3.PoolManager(maxsize=1) as http:
            while not self._ended.wait(PAUSE_SECONDS):
                steps = range(10 * number, 10 * number + 10)
                series = [scalars(f"tag {tag}", steps) for tag in range(UPLOADER_TAGS)]
                body = batch(segment(stream(), number, number + 1, *series))
                began = time.monotonic()
                answer = http.request("POST", url, body=body, headers=headers)
                assert answer.status == 200, answer.data
                self.seconds.append((began, time.monotonic() - began))
                number += 1


def measure(bench: Bench) -> None:
    """For each case: upload, delete it for good, and wait until all of it is gone."""
    for case, (runs, tags, points) in CASES.items():
        if bench.is_chosen(case):
            say(case)
            _measure(bench, max(1, int(runs * bench.scale)), tags, points)


def _measure(bench: Bench, runs: int, tags: int, points: int) -> None:
    sweeping = {"TBHUB_SWEEP_OLDER_THAN_DAYS": "0", "TBHUB_SWEEP_HOURS": "0.01"}
    with bench.new_service(f"service of {tags}", **sweeping) as service:
        large = _fill(service, runs, tags, points)
        kept = _fill(service, 1, 100, 100)
        uploads = Uploads(service)
        with uploads.running():
            began = time.monotonic()
            time.sleep(IDLE_SECONDS)
            idle = uploads.between(began, time.monotonic())
            _tell(service, "before", large)
            path = f"/experiments/{large}?final=true"
            service.api.request("DELETE", path).raise_for_status()
            began = _wait(service, large, "erase_at > 'epoch'")
            ended = _wait(service, large, "true")
            during = uploads.between(began, ended)
            time.sleep(AFTER_SECONDS)  # autovacuum and checkpoints follow
            after = uploads.between(ended, time.monotonic())
            _wait_for_sweep(service)
        _tell(service, "after", large)
        service.query("VACUUM")
        _tell(service, "after VACUUM", large)
        assert service.api.request("GET", f"/experiments/{kept}").status_code == 200
        report(f"{runs * tags * points:,} points erased in", f"{ended - began:.1f} s")
        _report("while it is erased", idle, during)
        _report(f"in the {AFTER_SECONDS:.0f} s after it", idle, after)


def _fill(service: Service, runs: int, tags: int, points: int) -> str:
    """Upload an experiment with so many points in each series, and images."""
    experiment = service.api.new_experiment()
    steps = np.arange(points)
    draw = np.random.default_rng(list(experiment.encode()))
    say(f"uploading {runs * tags * points:,} points")
    for run in range(runs):
        values = draw.normal(size=points).cumsum()
        series = [packed_scalars(f"tag {tag}", steps, values + tag) for tag in range(tags)]
        shown = [[draw.bytes(IMAGE_BYTES)] for _ in range(max(1, IMAGES // runs))]
        series.append(images("samples", range(len(shown)), shown))
        service.api.write(experiment, segment(stream(f"run {run}", f"f{run}"), 0, 1, *series))
    return experiment


def _wait(service: Service, experiment: str, condition: str) -> float:
    """Return when no row of an experiment fulfils the condition any more."""
    statement = f"""
        SELECT 1 FROM experiments WHERE experiment_id = '{experiment}' AND {condition}
    """  # noqa: S608 - constants
    end = time.monotonic() + WAIT_SECONDS_MAX
    while service.query(statement):
        assert time.monotonic() < end, condition
        time.sleep(0.1)
    return time.monotonic()


def _wait_for_sweep(service: Service) -> None:
    say("waiting for the sweep of the bucket")
    end = time.monotonic() + WAIT_SECONDS_MAX
    while _count_objects(service)[0] > IMAGES:
        assert time.monotonic() < end, "objects are left"
        time.sleep(1)


def _count_objects(service: Service) -> tuple[int, int]:
    """Return number and bytes of the objects in the bucket."""
    client = s3_client(service.live.settings)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=service.live.settings.s3_bucket)
    sizes = [item["Size"] for page in pages for item in page.get("Contents", ())]
    return len(sizes), sum(sizes)


def _tell(service: Service, when: str, experiment: str) -> None:
    ((database,),) = service.query("SELECT pg_database_size(current_database())")
    rows = sum(
        service.query(f"SELECT count(*) FROM {table} WHERE experiment_id = '{experiment}'")[0][0]  # noqa: S608 - constants
        for table in TABLES
    )
    objects, size = _count_objects(service)
    report(f"{when}: PostgreSQL", f"{database / 2**20:,.1f} MiB", f"{rows:,} rows of it")
    report(f"{when}: bucket", f"{size / 2**20:,.1f} MiB", f"{objects:,} objects")


def _report(when: str, idle: list[float], during: list[float]) -> None:
    for share in (0.5, 0.95):
        before, then = (float(np.quantile(each, share)) for each in (idle, during))
        name = f"p{100 * share:.0f} of an upload, idle and {when}"
        report(name, f"{before * 1e3:.1f}, {then * 1e3:.1f} ms", f"of {len(idle)}, {len(during)}")
    report(f"p95 {when} : idle", f"{then / before:.2f} x", "at most 1.5 x")
