"""Katib's services on the gRPC port of a running service: tokens, tenants and hostile input."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.grpc_calls import failure, raw_client
from support.handler_processes import suggestion_processes
from support.katib_client import METHODS, TIME, katib_client
from support.katib_controller import Controller
from support.katib_seen import check_sweep, experiments, scalars
from support.sweeps import experiment, parameter, sphere
from support.uploading import Reader, wait_until
from tbservice import limits
from tbservice.api.grpc.call import GRPC_MESSAGE_FIELDS_MAX
from tbservice.katib import katib_pb2 as pb

X = parameter("x", "double", -5, 5)


@pytest.fixture
def token(grpc_service):
    return grpc_service[0].new_owner()


@pytest.fixture
def katib(grpc_service, token):
    with ExitStack() as stack:
        yield katib_client(stack, grpc_service[1], token)


@pytest.fixture
def reader(grpc_service, token):
    """The HTTP API with the same token."""
    with Reader(grpc_service[0].url, token).http as http:
        yield http


def test_report_is_read_back_and_is_scalar(katib, reader):
    katib.report(
        "sweep-bcdfghjk",
        ("loss", "0.10"),
        ("loss", "unavailable", "2026-01-02T03:04:06+09:00"),
        ("acc", "nan"),
        ("loss", "-1e-3", "0001-01-01T00:00:00Z"),
    )
    assert katib.logs("sweep-bcdfghjk") == [
        ("loss", "-1e-3", "0001-01-01T00:00:00Z"),
        ("loss", "unavailable", "2026-01-01T18:04:06Z"),
        ("loss", "0.10", TIME),
        ("acc", "nan", TIME),
    ]
    assert katib.logs("sweep-bcdfghjk", "acc", TIME, TIME) == [("acc", "nan", TIME)]
    points = scalars(reader, experiments(reader)["sweep"])
    assert points == {"sweep-bcdfghjk": {"loss": [0.1, -0.001], "acc": ["NaN"]}}
    katib.delete("sweep-bcdfghjk")
    assert katib.logs("sweep-bcdfghjk") == katib.logs("never seen") == []


@pytest.mark.parametrize(
    ("token", "text"), [(None, "a token is needed"), ("tb_unknown", "unknown, expired")]
)
def test_every_method_needs_valid_token(grpc_service, token, text):
    with ExitStack() as stack:
        client = katib_client(stack, grpc_service[1], token)
        for method in METHODS:
            request = getattr(pb, f"{method}Request")()
            status, said, _ = failure(lambda of=(method, request): client.call(*of))
            assert (method, status, text in said) == (method, "UNAUTHENTICATED", True)


def test_sweep_with_early_stopping_is_stored_and_seen(katib, reader):
    """A sweep with repeated reports, lost replies, and one trial that never ends."""
    stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
    options = {"early_stopping": stopping, "parallel_trial_count": 3, "max_trial_count": 40}
    space = [parameter(name, "double", -5, 5, step="0.05") for name in ("x", "y")]
    sweep = experiment("cmaes", *space, name="sweep-cmaes", **options)
    controller = Controller(katib, sweep, sphere, trials=15, parallel=3, has_late_trial=True)
    controller.run()
    assert any(item.is_stopped for item in controller.items)
    check_sweep(controller, katib, reader)


def test_eight_million_empty_items_are_refused_in_little_memory(grpc_service, token):
    """Built, they would take half a gigabyte in the worker, and as much where suggestions are made."""
    process_id = grpc_service[0].process.pid
    before = peak_bytes(process_id)
    with raw_client(grpc_service[1], token, "api.v1.beta1.Suggestion") as call:
        message = b"\x20\x01" + b"\x12\x00" * 8_000_000
        status, said, _ = failure(lambda: call("GetSuggestions", message))
    assert (status, str(GRPC_MESSAGE_FIELDS_MAX) in said) == ("INVALID_ARGUMENT", True)
    assert peak_bytes(process_id) - before < 150 * limits.MIB


def peak_bytes(process_id):
    """Return the largest resident size that a process has had."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * limits.KIB


def test_report_is_answered_while_suggestions_are_made(grpc_service, katib):
    """They are made in processes of their own: those that are there are stopped meanwhile."""
    request = pb.GetSuggestionsRequest(
        experiment=experiment("random", X, name="busy"), current_request_number=1
    )
    katib.suggest(request)  # a process is there now
    stopped = suggestion_processes(grpc_service[0])
    assert stopped
    for process in stopped:
        process.suspend()
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(stopped) + 1))
        tokens = [grpc_service[0].new_owner() for _ in range(len(stopped) + 1)]
        clients = [katib_client(stack, grpc_service[1], token) for token in tokens]
        asked = [threads.submit(client.suggest, request) for client in clients]
        wait_until(lambda: any(each.done() for each in asked))  # by a new process
        katib.report("other-bcdfghjk", ("loss", 1))
        assert [each.done() for each in asked].count(False) == len(stopped)
        for process in stopped:
            process.resume()
        assert [len(each.result().parameter_assignments) for each in asked] == [1] * len(asked)
