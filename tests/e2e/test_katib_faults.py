"""Katib's calls from outside while things break: a worker is killed, the database goes away, a call
is cut off, many come at once. What was acknowledged is stored, once.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import grpc
import pytest

from support.grpc_calls import failure, live_grpc_service, raw_client
from support.grpc_forwarder import forwarder
from support.katib_client import METHODS, katib_client, report
from support.process_kills import started_workers
from support.uploading import wait_until
from tbservice.katib import katib_pb2 as pb
from tbservice.local.embedded.ports import LOOPBACK

REPORT = "/api.v1.beta1.DBManager/ReportObservationLog"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""Serialized answers of health checks."""

METRICS = ("loss", "acc")
KILLS = 2
LOGS = 3_000
ATTEMPTS = 300
"""Before a test gives up, 0.1 seconds apart."""

CALLS = 600
"""Reports at once, as of an experiment whose trials all end at the same moment."""


@pytest.fixture(scope="module")
def service(servers, tmp_path_factory):
    """A running service that no test harms, and the port of Katib's calls."""
    directory = tmp_path_factory.mktemp("katib")
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_grpc_service(settings, directory) as live,
    ):
        yield live


def stored_values(katib, trial):
    """Return the values of a trial's log, as numbers, in order."""
    return [int(value) for _, value, _ in katib.logs(trial)]


def time_of(number):
    return f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"


def burst(port, metadata, numbers):
    """Report these numbers at once, on a fresh connection; return {number: status} of failed ones."""
    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        call = channel.unary_unary(REPORT)
        started = {
            number: call.future(
                report("burst-bcdfghjk", ("loss", number)).SerializeToString(),
                timeout=100,
                metadata=metadata,
            )
            for number in numbers
        }
        return {number: each.code().name for number, each in started.items() if each.exception()}


def test_burst_on_fresh_connection_is_stored_or_refused(service):
    """The client learns how many calls it may have open only with the server's first frame."""
    live, port = service
    with ExitStack() as stack:
        token = live.new_owner()
        metadata = (("authorization", f"Bearer {token}"),)
        katib = katib_client(stack, port, token)
        failed = burst(port, metadata, range(CALLS))
        assert set(failed.values()) <= {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
        assert sorted(stored_values(katib, "burst-bcdfghjk")) == sorted(
            set(range(CALLS)) - {*failed}
        )
        for _ in range(10):
            failed = burst(port, metadata, failed)
        assert sorted(stored_values(katib, "burst-bcdfghjk")) == list(range(CALLS))


def test_burst_through_forwarder_is_stored(service):
    """It repeats what the server refused: also clients that never repeat a call lose none."""
    live, port = service
    with ExitStack() as stack:
        token = live.new_owner()
        process = stack.enter_context(forwarder(f"http://{LOOPBACK}:{port}", token))
        assert burst(process.port, (), range(CALLS)) == {}
        katib = katib_client(stack, port, token)
        assert sorted(stored_values(katib, "burst-bcdfghjk")) == list(range(CALLS))


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
def test_killed_workers_lose_and_repeat_no_report(settings, tmp_path):
    """Trials of several connections report while one worker after the other is killed."""
    with live_grpc_service(settings, tmp_path, TBHUB_WORKERS="2") as (live, port):
        token, ended = live.new_owner(), threading.Event()
        database_port = urlsplit(settings.database_url.get_secret_value()).port
        wait_until(lambda: len(started_workers(live, database_port)) == 2)

        def run(trial):
            """Report until the end; return how many steps, and the statuses of failed attempts."""
            steps, statuses = 0, []
            with ExitStack() as stack:
                katib = katib_client(stack, port, token)
                while not ended.wait(0.05):
                    logs = [(metric, steps, time_of(steps)) for metric in METRICS]
                    statuses += insist(lambda logs=logs: katib.report(trial, *logs))
                    steps += 1
            return steps, statuses

        trials = [f"killed-bcdfghj{letter}" for letter in "klmnpqrs"]
        with ThreadPoolExecutor(len(trials)) as threads:
            running = [threads.submit(run, trial) for trial in trials]
            try:
                for _ in range(KILLS):
                    time.sleep(1)
                    started_workers(live, database_port)[0].kill()
                    wait_until(lambda: len(started_workers(live, database_port)) == 2)
            finally:
                ended.set()
            done = [each.result() for each in running]
        assert {status for _, statuses in done for status in statuses} == {"UNAVAILABLE"}
        with ExitStack() as stack:
            katib = katib_client(stack, port, token)
            for trial, (steps, _) in zip(trials, done, strict=True):
                expected = [str(step) for step in range(steps)]
                for metric in METRICS:
                    assert [value for _, value, _ in katib.logs(trial, metric)] == expected


@pytest.mark.own_database
def test_calls_without_database_are_unavailable_and_then_stored(servers, settings, tmp_path):
    name = settings.database_url.get_secret_value().rpartition("/")[2].partition("?")[0]
    with (
        live_grpc_service(settings, tmp_path) as (live, port),
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


@pytest.mark.parametrize("way", ["cancel", "deadline"])
def test_report_cut_off_by_client_is_stored_whole_or_not(service, way):
    """At any moment of it; sent again, it is stored once."""
    live, port = service
    with ExitStack() as stack:
        token = live.new_owner()
        katib = katib_client(stack, port, token)
        call = stack.enter_context(raw_client(port, token, "api.v1.beta1.DBManager"))
        seen = set()
        for number in range(12):
            trial, seconds = f"cut-bcdfghj{'bcdfghjklmnp'[number]}", 0.002 * 1.8**number
            logs = [("loss", value, time_of(value)) for value in range(LOGS)]
            message = report(trial, *logs).SerializeToString()
            running = call(
                "ReportObservationLog",
                message,
                start=True,
                timeout=seconds if way == "deadline" else 60,
            )
            if way == "cancel":
                time.sleep(seconds)
                running.cancel()
            with suppress(grpc.RpcError, grpc.FutureCancelledError):
                running.result()
            seen.add(running.code().name)
            assert len(katib.logs(trial)) in {0, LOGS}
            insist(lambda message=message: call("ReportObservationLog", message))
            assert stored_values(katib, trial) == list(range(LOGS))
        assert "CANCELLED" in seen or "DEADLINE_EXCEEDED" in seen
