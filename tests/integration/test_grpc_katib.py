"""Katib's methods in a server of this process, whose shares can be used up: what its clients get."""

import threading

import pytest
from grpc_health.v1 import health_pb2

from support.grpc_calls import call_server, failure, raw_client
from support.katib_client import METHODS
from support.uploading import wait_until
from tbservice import limits
from tbservice.admission.worker_shares import CALLER_REQUESTS_ITEMS_MAX
from tbservice.api.grpc.health import make_health_handler
from tbservice.handlers.pool import HandlerPool
from tbservice.katib.methods import KatibMethods

VALIDATIONS = ["ValidateAlgorithmSettings", "ValidateEarlyStoppingSettings"]


@pytest.fixture
def free():
    """An event at which the calls of `Work` end."""
    free = threading.Event()
    yield free
    free.set()


@pytest.fixture
def server(client, settings, database, free):
    """Katib's methods, and one that holds its turn until `free` is set."""
    processes = HandlerPool("tbservice.katib.suggestions.handler_jobs")
    methods = KatibMethods(client.app.state.ingest, processes)

    async def work(call):
        await call.in_thread(free.wait, 20)
        return b""

    with call_server(settings, database, more_handlers=methods.handlers, Work=work) as server:
        yield server
    processes.close()


def katib_call(server, owner_token, method):
    return raw_client(server.port, owner_token, service=f"api.v1.beta1.{METHODS[method]}")


@pytest.mark.parametrize("method", [VALIDATIONS[0], "GetSuggestions"])
def test_validation_without_turn_is_no_consent(server, free, owner_token, monkeypatch, method):
    """Katib's controller takes a validation for valid that ends with RESOURCE_EXHAUSTED."""
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.5)
    with raw_client(server.port, owner_token) as call:
        held = [call("Work", start=True) for _ in range(CALLER_REQUESTS_ITEMS_MAX)]
        wait_until(lambda: server.shares.turns._used == CALLER_REQUESTS_ITEMS_MAX)
        with katib_call(server, owner_token, method) as katib:
            status, _, code = failure(lambda: katib(method))
        free.set()
        assert [each.result() for each in held] == [b""] * CALLER_REQUESTS_ITEMS_MAX
    expected = "UNAVAILABLE" if method in VALIDATIONS else "RESOURCE_EXHAUSTED"
    assert (status, code) == (expected, "too_many_requests")


@pytest.mark.parametrize("method", [VALIDATIONS[1], "SetTrialStatus"])
def test_validation_that_is_too_slow_is_no_consent(server, owner_token, monkeypatch, method):
    monkeypatch.setattr("tbservice.api.grpc.calls.GRPC_MESSAGE_SECONDS_MAX", 0.5)
    silent = threading.Event()

    def nothing():
        silent.wait(20)
        yield b""

    with katib_call(server, owner_token, method) as katib:
        stream = katib.channel.stream_unary(f"/api.v1.beta1.{METHODS[method]}/{method}")
        metadata = (("authorization", f"Bearer {owner_token}"),)
        status, _, code = failure(lambda: stream(nothing(), metadata=metadata, timeout=20))
        silent.set()
    expected = "UNAVAILABLE" if method in VALIDATIONS else "DEADLINE_EXCEEDED"
    assert (status, code) == (expected, "too_slow")


def test_suggestions_are_not_serving_until_libraries_are_loaded(client, settings, database):
    slow, quick = HandlerPool("support.slow_handler_jobs"), HandlerPool("support.handler_jobs")

    def states(pool):
        pool.warm()
        with (
            call_server(
                settings,
                database,
                more_handlers=lambda runner: [
                    make_health_handler(runner, client.app.state.readiness, lambda: pool.is_warm)
                ],
            ) as server,
            raw_client(server.port, service="grpc.health.v1.Health") as call,
        ):
            if pool is quick:
                wait_until(lambda: check(call, "manager.v1beta1.Suggestion") == "SERVING")
            return [check(call, name) for name in NAMES]

    assert states(slow) == ["SERVING"] * 4 + ["NOT_SERVING"] * 2
    assert states(quick) == ["SERVING"] * 6
    slow.close()
    quick.close()


NAMES = ["", "grpc.health.v1.Health", "api.v1.beta1.DBManager", "api.v1.beta1.EarlyStopping"]
NAMES += ["manager.v1beta1.Suggestion", "api.v1.beta1.Suggestion"]


def check(call, name):
    """Return the state of a service by its name."""
    reply = call("Check", health_pb2.HealthCheckRequest(service=name).SerializeToString())
    status = health_pb2.HealthCheckResponse.FromString(reply).status
    return health_pb2.HealthCheckResponse.ServingStatus.Name(status)
