"""Katib's calls from outside while things break: a worker is killed, the database goes away. What
was acknowledged is stored, once.
"""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import grpc
import psutil
import pytest

from support.grpc_calls import failure, live_grpc_service, raw_client
from support.katib_client import METHODS, katib_client
from support.process_kills import started_workers, workers_of
from support.uploading import wait_until
from tbservice.katib import katib_pb2 as pb

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""Serialized answers of health checks."""

METRICS = ("loss", "acc")
ATTEMPTS = 300
"""Before a test gives up, 0.1 seconds apart."""


def stored_values(katib, trial):
    """Return the values of a trial's log, as numbers, in order."""
    return [int(value) for _, value, _ in katib.logs(trial)]


def time_of(number):
    return f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"


def insist(call):
    """Call until it is answered, as the forwarder does; return the statuses of failed attempts."""
    statuses = []
    while True:
        try:
            call()
        except grpc.RpcError as error:
            statuses.append(error.code().name)
            assert len(statuses) < ATTEMPTS, statuses
            time.sleep(0.1)
        else:
            return statuses


@pytest.mark.own_database
def test_killed_worker_loses_and_repeats_no_report(settings, tmp_path):
    """Trials report while the one of the workers that takes their reports is killed."""
    with live_grpc_service(settings, tmp_path, TBHUB_WORKERS="2") as (live, port):
        token, ended = live.new_owner(), threading.Event()
        database_port = urlsplit(settings.database_url.get_secret_value()).port
        wait_until(lambda: len(started_workers(live, database_port)) == 2)
        wait_until(
            lambda: all(port in ports_of(each, psutil.CONN_LISTEN) for each in workers_of(live))
        )
        trials = [f"killed-bcdfghj{letter}" for letter in "klm"]
        steps = dict.fromkeys(trials, 0)

        def run(trial):
            """Report until the end; return the statuses of failed attempts."""
            statuses = []
            with ExitStack() as stack:
                katib = katib_client(stack, port, token)
                while not ended.wait(0.1):
                    logs = [(metric, steps[trial], time_of(steps[trial])) for metric in METRICS]
                    statuses += insist(lambda logs=logs: katib.report(trial, *logs))
                    steps[trial] += 1
            return statuses

        def wait_for_reports(more):
            least = min(steps.values()) + more
            wait_until(lambda: min(steps.values()) >= least or any(map(Future.done, running)))

        with ThreadPoolExecutor(len(trials)) as threads:
            running = [threads.submit(run, trial) for trial in trials]
            try:
                wait_for_reports(5)
                # gRPC gives the clients of one process one connection.
                at_work = psutil.CONN_ESTABLISHED
                (worker,) = [each for each in workers_of(live) if port in ports_of(each, at_work)]
                worker.kill()
                wait_until(lambda: len({*started_workers(live, database_port)} - {worker}) == 2)
                wait_for_reports(5)
            finally:
                ended.set()
            statuses = {status for each in running for status in each.result()}
        assert statuses <= {"UNAVAILABLE"}  # none, where it was between two calls
        with ExitStack() as stack:
            katib = katib_client(stack, port, token)
            for trial in trials:
                expected = [str(step) for step in range(steps[trial])]
                for metric in METRICS:
                    assert [value for _, value, _ in katib.logs(trial, metric)] == expected


def ports_of(process, status):
    """Return the process's own ports of its TCP connections with this status."""
    return {
        connection.laddr.port
        for connection in process.net_connections(kind="tcp")
        if connection.status == status
    }


def test_calls_without_database_are_unavailable_and_then_stored(servers, grpc_service):
    live, port = grpc_service
    name = live.database_url.rpartition("/")[2].partition("?")[0]
    with (
        ExitStack() as stack,
        servers.instance.postgres.connect_as_superuser("postgres") as superuser,
    ):
        katib = katib_client(stack, port, live.new_owner())
        health = stack.enter_context(raw_client(port, service="grpc.health.v1.Health"))
        katib.report("away-bcdfghjk", ("loss", 0))
        superuser.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        superuser.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        for method in METHODS:
            request = getattr(pb, f"{method}Request")()
            status, text, _ = failure(
                lambda method=method, request=request: katib.call(method, request)
            )
            assert (method, status) == (method, "UNAVAILABLE"), text
        assert failure(lambda: katib.report("away-bcdfghjk", ("loss", 1)))[0] == "UNAVAILABLE"
        wait_until(lambda: health("Check") == NOT_SERVING)
        superuser.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert set(insist(lambda: katib.report("away-bcdfghjk", ("loss", 1)))) <= {"UNAVAILABLE"}
        katib.report("away-bcdfghjk", ("loss", 1))
        wait_until(lambda: health("Check") == SERVING)
        assert stored_values(katib, "away-bcdfghjk") == [0, 1]
