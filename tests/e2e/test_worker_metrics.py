"""A scrape of a service with several workers covers all of them, whichever answers and whichever
has ended.
"""

import signal
from contextlib import contextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.servers import http_client, live_service
from support.waiting import wait_until
from tbservice import limits

pytestmark = pytest.mark.own_database

HEALTH = {"route": "/healthz", "method": "GET", "status": "204"}


@pytest.fixture
def operator():
    """A client with the operator's token that opens a connection per request, so that any worker
    may accept it.
    """
    with http_client(
        headers={"Authorization": "Bearer operator"},
        limits=httpx2.Limits(max_keepalive_connections=0),
    ) as client:
        yield client


def samples(operator):
    """Return {name: [(labels, value)]} as the operator reads them."""
    values = {}
    for family in text_string_to_metric_families(operator.get("/metrics").raise_for_status().text):
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return values


def health_requests(operator):
    return [
        value
        for labels, value in samples(operator)["tbhub_http_requests_total"]
        if labels == HEALTH
    ]


def worker_ids(operator):
    return {int(labels["pid"]) for labels, _ in samples(operator)["process_resident_memory_bytes"]}


@contextmanager
def standing_still(process):
    """Stop the process until the block ends: the others accept all connections."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def is_reserved(path):
    """Return whether a file of metrics has its blocks, which a worker that starts reserves late."""
    file = path.stat()
    return file.st_blocks * 512 >= file.st_size == limits.METRICS_FILE_BYTES


def test_scrape_adds_up_workers_also_those_that_are_gone(operator, settings, tmp_path):
    more = {"TBHUB_WORKERS": "2", "TBHUB_METRICS_TOKEN": "operator"}
    with live_service(settings, tmp_path / "log", **more) as live:
        operator.base_url = live.url
        wait_until(lambda: len(worker_ids(operator)) == 2)
        workers = [psutil.Process(pid) for pid in sorted(worker_ids(operator))]
        (file,) = [
            mapped.path
            for mapped in workers[0].memory_maps()
            if mapped.path.endswith(f"/counter_{workers[0].pid}.db")
        ]
        directory = Path(file).parent
        wait_until(lambda: samples(operator)["tbhub_database_connections_max"] == [({}, 2 * 10)])
        for worker in workers:
            for kind in ("counter", "histogram"):  # a write to a hole on a full disk would kill it
                wait_until(lambda path=directory / f"{kind}_{worker.pid}.db": is_reserved(path))
            with standing_still(worker):
                for _ in range(3):
                    operator.get("/healthz")
        wait_until(
            lambda: health_requests(operator) == [6]
        )  # a request is counted when its answer has gone out
        for worker in workers:
            with standing_still(worker):
                assert health_requests(operator) == [6]

        workers[0].send_signal(signal.SIGKILL)
        wait_until(lambda: not workers[0].is_running() and len(worker_ids(operator)) == 2)
        assert workers[0].pid not in worker_ids(operator)
        left = [file.stat().st_size for file in directory.glob(f"*_{workers[0].pid}.db")]
        assert 0 < sum(left) < 64 * 1024  # what it had not used is free again
        wait_until(lambda: samples(operator)["tbhub_database_connections_max"] == [({}, 2 * 10)])
        assert health_requests(operator) == [6]
        operator.get("/healthz")
        wait_until(lambda: health_requests(operator) == [7])
        assert directory.is_dir()
    assert not directory.exists()
