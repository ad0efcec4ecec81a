"""Katib's services on the gRPC port of a running service: tokens, tenants and hostile input."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.grpc_calls import failure, live_grpc_service, raw_client
from support.handler_processes import suggestion_processes
from support.katib_client import METHODS, TIME, katib_client, report
from support.katib_seen import experiments, scalars
from support.sweeps import experiment, parameter, sphere, trial
from support.uploading import Reader, wait_until
from tbservice import limits
from tbservice.api.grpc.call import GRPC_MESSAGE_FIELDS_MAX
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.trials import KATIB_TRIALS_ITEMS_MAX

X = parameter("x", "double", -5, 5)
Y = parameter("y", "double", -5, 5)


@pytest.fixture(scope="module")
def service(servers, tmp_path_factory):
    """A running service with a gRPC port: the service, and the port."""
    directory = tmp_path_factory.mktemp("katib")
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_grpc_service(settings, directory) as live,
    ):
        yield live


@pytest.fixture
def token(service):
    return service[0].new_owner()


@pytest.fixture
def katib(service, token):
    with ExitStack() as stack:
        yield katib_client(stack, service[1], token)


@pytest.fixture
def reader(service, token):
    """The HTTP API with the same token."""
    with Reader(service[0].url, token).http as http:
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


def test_workspaces_have_equal_names(service, katib):
    katib.report("same-bcdfghjk", ("loss", "1"))
    with ExitStack() as stack:
        other = katib_client(stack, service[1], service[0].new_owner())
        assert other.logs("same-bcdfghjk") == []
        other.report("same-bcdfghjk", ("loss", "2"))
        other.delete("same-bcdfghjk")
    assert katib.logs("same-bcdfghjk") == [("loss", "1", TIME)]


@pytest.mark.parametrize("method", METHODS)
def test_method_needs_valid_token(service, method):
    request = getattr(pb, f"{method}Request")()
    with ExitStack() as stack:
        for token, text in ((None, "a token is needed"), ("tb_unknown", "unknown, expired")):
            client = katib_client(stack, service[1], token)
            status, said, _ = failure(lambda client=client: client.call(method, request))
            assert (status, text in said) == ("UNAUTHENTICATED", True)


@pytest.mark.parametrize("method", METHODS)
def test_hostile_messages_get_status(service, token, method):
    """Random bytes, and valid messages with fields cut out: an answer, or INVALID_ARGUMENT."""
    generator = random.Random(method)  # noqa: S311 - a test
    full = {
        "ReportObservationLog": report("t", ("loss", "1", "no time")),
        "GetObservationLog": pb.GetObservationLogRequest(trial_name="t", start_time="yesterday"),
    }.get(method)
    seeds = [full.SerializeToString()] if full else []
    if method in {"GetSuggestions", "GetEarlyStoppingRules", "ValidateAlgorithmSettings"}:
        whole = pb.GetSuggestionsRequest(
            experiment=experiment("tpe", X, Y), trials=[trial("t", {"x": "1"}, "nan")]
        )
        seeds.append(whole.SerializeToString())
    seen = Counter()
    with raw_client(service[1], token, f"api.v1.beta1.{METHODS[method]}") as call:
        for number in range(20):
            message = bytes(generator.randbytes(generator.randint(0, 60)))
            if seeds and number % 2:
                message = bytearray(generator.choice(seeds))
                for _ in range(generator.randint(1, 4)):
                    message[generator.randrange(len(message))] = generator.randrange(256)
            try:
                call(method, bytes(message))
                seen["OK"] += 1
            except Exception as error:  # noqa: BLE001 - its status is what is tested
                seen[error.code().name] += 1
    assert set(seen) <= {"OK", "INVALID_ARGUMENT"}, seen


def test_too_many_trials_in_request_are_refused(katib, reader):
    sweep, trials = experiment("random", X), [pb.Trial(name="t")] * (KATIB_TRIALS_ITEMS_MAX + 1)
    status, said, _ = failure(lambda: katib.rules(sweep, trials))
    limit = f"{KATIB_TRIALS_ITEMS_MAX} trials (katib_trials_items_max)"
    assert (status, limit in said) == ("INVALID_ARGUMENT", True), said
    assert experiments(reader) == {}


def test_eight_million_empty_items_are_refused_in_little_memory(service, token):
    """Built, they would take half a gigabyte in the worker, and as much where suggestions are made."""
    process_id = service[0].process.pid
    before = peak_bytes(process_id)
    with raw_client(service[1], token, "api.v1.beta1.Suggestion") as call:
        message = b"\x20\x01" + b"\x12\x00" * 8_000_000
        status, said, _ = failure(lambda: call("GetSuggestions", message))
    assert (status, str(GRPC_MESSAGE_FIELDS_MAX) in said) == ("INVALID_ARGUMENT", True)
    assert peak_bytes(process_id) - before < 150 * limits.MIB


def peak_bytes(process_id):
    """Return the largest resident size that a process has had."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * limits.KIB


def test_invalid_experiment_is_refused_and_not_recorded(katib, reader):
    unknown = experiment("enas", X)
    expected = ("INVALID_ARGUMENT", "unknown algorithm name enas", "invalid")
    assert failure(lambda: katib.validate(unknown)) == expected
    request = pb.GetSuggestionsRequest(experiment=unknown, current_request_number=1)
    assert failure(lambda: katib.suggest(request)) == expected
    wrong = pb.ValidateEarlyStoppingSettingsRequest(
        early_stopping=pb.EarlyStoppingSpec(algorithm_name="medianstop")
    )
    wrong.early_stopping.algorithm_settings.add(name="start_step", value="0")
    assert failure(lambda: katib.call("ValidateEarlyStoppingSettings", wrong)) == (
        "INVALID_ARGUMENT",
        "start_step must be greater or equal than one (>=1)",
        "invalid",
    )
    assert experiments(reader) == {}


def test_report_is_answered_while_suggestions_are_made(service, katib):
    """They are made in processes of their own: those that are there are stopped meanwhile."""
    request = pb.GetSuggestionsRequest(
        experiment=experiment("random", X, name="busy"), current_request_number=1
    )
    katib.suggest(request)  # a process is there now
    stopped = suggestion_processes(service[0])
    assert stopped
    for process in stopped:
        process.suspend()
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(len(stopped) + 1))
        tokens = [service[0].new_owner() for _ in range(len(stopped) + 1)]
        clients = [katib_client(stack, service[1], token) for token in tokens]
        asked = [threads.submit(client.suggest, request) for client in clients]
        wait_until(lambda: any(each.done() for each in asked))  # by a new process
        katib.report("other-bcdfghjk", ("loss", 1))
        assert [each.done() for each in asked].count(False) == len(stopped)
        for process in stopped:
            process.resume()
        assert [len(each.result().parameter_assignments) for each in asked] == [1] * len(asked)


def test_client_that_waits_no_longer_harms_no_other(katib):
    generator = random.Random(1)  # noqa: S311 - a test
    rows = [{name: str(generator.uniform(-5, 5)) for name in ("x", "y")} for _ in range(1_000)]
    request = pb.GetSuggestionsRequest(
        experiment=experiment("bayesianoptimization", X, Y, name="left"),
        trials=[trial(f"left-{number:08}", row, sphere(row)) for number, row in enumerate(rows)],
        current_request_number=40,
    )
    status, _, _ = failure(lambda: katib.call("GetSuggestions", request, timeout=0.15))
    assert status == "DEADLINE_EXCEEDED"
    assert len(katib.suggest(request).parameter_assignments) == 40
