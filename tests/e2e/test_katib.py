"""Katib's services on the gRPC port of a running service: tokens, tenants, hostile input, and what
remains of a sweep.
"""

import random
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.grpc_calls import failure, live_grpc_service, raw_client
from support.katib_client import METHODS, TIME, katib_client, report
from support.katib_controller import Controller
from support.katib_seen import experiments, scalars, sessions
from support.sweeps import experiment, parameter, sphere, trial
from support.uploading import Reader
from tbservice import limits
from tbservice.api.grpc.message_guard import GRPC_MESSAGE_FIELDS_MAX
from tbservice.api.grpc.status import GRPC_DETAIL_CHARS_MAX
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.trials import KATIB_TRIALS_ITEMS_MAX
from tbwire.wire_format import encode_varint

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


def test_retried_report_is_stored_once(katib):
    for _ in range(3):
        katib.report("a-bcdfghjk", ("loss", "1"), ("loss", "1"))
    assert katib.logs("a-bcdfghjk") == [("loss", "1", TIME)] * 2


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


def test_experiment_token_reports_and_reads_as_its_scopes_say(service, katib, reader):
    katib.report("scoped-bcdfghjk", ("loss", "1"))
    experiment_id = experiments(reader)["scoped"]

    def secret(*scopes):
        path = f"/api/v1/experiments/{experiment_id}/tokens"
        return reader.post(path, json={"scopes": scopes}).raise_for_status().json()["token"]

    with ExitStack() as stack:
        append, read, both = (
            katib_client(stack, service[1], secret(*scopes))
            for scopes in (("append",), ("read",), ("append", "read"))
        )
        append.report("scoped-bcdfghjk", ("loss", "2"))
        append.report("any name", ("loss", "3"))
        assert failure(lambda: append.logs("any name"))[0] == "PERMISSION_DENIED"
        assert failure(lambda: read.report("any name", ("loss", "4")))[0] == "PERMISSION_DENIED"
        assert failure(lambda: append.delete("any name"))[0] == "PERMISSION_DENIED"
        assert failure(lambda: both.delete("any name"))[0] == "PERMISSION_DENIED"
        assert both.logs("any name") == [("loss", "3", TIME)]
    assert set(scalars(reader, experiment_id)) == {"scoped-bcdfghjk", "any name"}


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
        for number in range(60):
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


def test_names_over_limit_are_refused_with_advice(katib, reader):
    name = "n" * (limits.NAME_CHARS_MAX + 1)
    for call in (
        lambda: katib.report(name, ("loss", "1")),
        lambda: katib.report("t-bcdfghjk", (name, "1")),
        lambda: katib.stop(name),
    ):
        status, said, _ = failure(call)
        assert (status, len(said) <= GRPC_DETAIL_CHARS_MAX) == ("INVALID_ARGUMENT", True)
        assert str(limits.NAME_CHARS_MAX) in said.replace(",", "")
    assert experiments(reader) == {}


def test_bad_report_stores_nothing(katib):
    wrong_time = report("b-bcdfghjk", ("loss", "1"), ("loss", "2", "yesterday"))
    no_metric = report("b-bcdfghjk", ("loss", "1"))
    no_metric.observation_log.metric_logs.add(time_stamp=TIME)
    for request in (wrong_time, no_metric):
        status, _, _ = failure(lambda request=request: katib.call("ReportObservationLog", request))
        assert status == "INVALID_ARGUMENT"
    katib.report("b-bcdfghjk")
    katib.report("b-bcdfghjk", ("loss", "1", ""))
    assert katib.logs("b-bcdfghjk") == []


@pytest.mark.parametrize(
    ("count", "limit"),
    [
        (1_000_000, "2000000 fields (grpc_message_fields_max)"),
        (100_000, f"{KATIB_TRIALS_ITEMS_MAX} trials (katib_trials_items_max)"),
    ],
)
def test_too_many_trials_in_request_are_refused(katib, reader, count, limit):
    sweep, trials = experiment("random", X), [pb.Trial(name="t")] * count
    for request in (
        pb.GetSuggestionsRequest(experiment=sweep, trials=trials, current_request_number=1),
        pb.GetEarlyStoppingRulesRequest(experiment=sweep, trials=trials),
    ):
        method = request.DESCRIPTOR.name.removesuffix("Request")
        status, said, _ = failure(lambda: katib.call(method, request))  # noqa: B023 - called at once
        assert (status, limit in said) == ("INVALID_ARGUMENT", True), said
    assert experiments(reader) == {}


@pytest.mark.parametrize(
    ("method", "start"),
    [
        ("GetSuggestions", b"\x20\x01"),
        ("GetEarlyStoppingRules", b""),
        ("ReportObservationLog", b"\x0a\x01t"),
    ],
)
def test_eight_million_empty_items_are_refused_in_little_memory(service, token, method, start):
    """Built, they would take half a gigabyte in the worker, and as much where suggestions are made."""
    process_id = service[0].process.pid
    items = (b"\x0a\x00" if method == "ReportObservationLog" else b"\x12\x00") * 8_000_000
    if method == "ReportObservationLog":
        items = b"\x12" + encode_varint(len(items)) + items
    before = peak_bytes(process_id)
    with raw_client(service[1], token, f"api.v1.beta1.{METHODS[method]}") as call:
        status, said, _ = failure(lambda: call(method, start + items))
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


def test_sweep_is_seen_with_hparams_metrics_and_status(katib, reader):
    stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
    stopping.algorithm_settings.add(name="start_step", value="2")
    sweep = experiment("tpe", X, Y, name="seen", early_stopping=stopping, parallel_trial_count=4)
    controller = Controller(katib, sweep, sphere, trials=20)
    losses = controller.run()
    assert len(losses) == 19
    assert any(item.is_stopped for item in controller.items)

    # What the controller sends once more when it asks for nothing new.
    katib.rules(sweep, controller.messages())
    experiment_id = experiments(reader)["seen"]
    points = scalars(reader, experiment_id)
    for item in controller.items:
        if item.reported:
            assert points[item.name]["loss"] == item.reported
            assert len(katib.logs(item.name, "loss")) == len(item.reported)
    groups = {group["name"]: group for group in sessions(reader, experiment_id)}
    assert set(groups) == {item.name for item in controller.items}
    for item in controller.items:
        group = groups[item.name]
        assert {name: float(text) for name, text in item.assignments.items()} == group["hparams"]
        expected = "STATUS_SUCCESS" if item.is_done else "STATUS_RUNNING"
        assert group["sessions"][0]["status"] == expected, item


def test_rules_come_from_stored_logs(katib):
    stopping = pb.EarlyStoppingSpec(algorithm_name="medianstop")
    sweep = experiment("random", X, name="rules", early_stopping=stopping)
    finished = []
    for number, values in enumerate(([1, 2, 3, 4, 50], [2, 3, 4, 5], [10, 20, 30, 40, 1])):
        name = f"rules-bcdfghj{2**number * 2}"
        for second, value in enumerate(values):
            katib.report(name, ("loss", value, f"2026-01-01T00:00:{second:02}Z"))
        finished.append(trial(name, {"x": "1"}, min(values)))
    assert katib.rules(sweep, finished[:2]) == []
    (rule,) = katib.rules(sweep, finished)
    assert (rule.name, float(rule.value), rule.comparison, rule.start_step) == (
        "loss",
        3.5,
        pb.GREATER,
        4,
    )


def test_old_field_numbers_are_understood(katib):
    """Version 0.12 sends the number of suggestions in field 3, and the total in field 4."""
    request = pb.GetSuggestionsRequest(
        experiment=experiment("random", X), request_number=2, current_request_number=2
    )
    assert len(katib.suggest(request).parameter_assignments) == 2


def many_trials(count):
    generator = random.Random(1)  # noqa: S311 - a test
    trials = []
    for number in range(count):
        row = {name: str(generator.uniform(-5, 5)) for name in ("x", "y")}
        trials.append(trial(f"busy-{number:08}", row, sphere(row)))
    return trials


def test_suggestions_do_not_hold_up_reports(katib):
    request = pb.GetSuggestionsRequest(
        experiment=experiment("bayesianoptimization", X, Y, name="busy"),
        trials=many_trials(1000),
        current_request_number=40,
    )
    katib.suggest(request)  # it records the trials
    waits, waits_for_suggestions = [], []

    def suggest():
        began = time.monotonic()
        answer = katib.suggest(request)
        waits_for_suggestions.append(time.monotonic() - began)
        return answer

    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(suggest) for _ in range(9)]
        while not all(each.done() for each in asked):
            began = time.monotonic()
            katib.report("other-bcdfghjk", ("loss", len(waits)))
            waits.append(time.monotonic() - began)
        assert all(len(each.result().parameter_assignments) == 40 for each in asked)
    assert len(waits) > 5
    # Of the same moments, on a busy machine too. Reports that waited for suggestions took as long.
    assert statistics.median(waits) < statistics.median(waits_for_suggestions) / 3


def test_deadline_ends_suggestions_and_others_follow(katib):
    request = pb.GetSuggestionsRequest(
        experiment=experiment("bayesianoptimization", X, Y, name="busy"),
        trials=many_trials(1000),
        current_request_number=5,
    )
    status, _, _ = failure(lambda: katib.call("GetSuggestions", request, timeout=0.15))
    assert status == "DEADLINE_EXCEEDED"
    small = pb.GetSuggestionsRequest(
        experiment=experiment("random", X, name="small"), current_request_number=1
    )
    assert len(katib.suggest(small).parameter_assignments) == 1


def test_hundred_thousand_logs_are_stored_in_one_call(katib):
    logs = [("loss", number, f"2026-01-01T00:00:00.{number:06}Z") for number in range(100_000)]
    began = time.monotonic()
    katib.report("many-bcdfghjk", *logs)
    print(f"100,000 logs in {time.monotonic() - began:.2f} s")  # noqa: T201 - a figure
    stored = katib.logs("many-bcdfghjk", "loss")
    assert [int(value) for _, value, _ in stored] == list(range(100_000))
