"""Requests that the API's description allows or forbids: no failure, and only the responses
described.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from support.batches import images, scalars, segment, stream, texts
from support.lazy import LazyModule
from support.servers import fetch, live_api
from support.waiting import SECONDS_MAX
from tbservice import limits
from tbservice.server.workers import HEAD_BYTES_MAX

schemathesis = LazyModule("schemathesis")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
EXAMPLES = 3


def as_bytes(_context, content):
    """Encode a body as bytes, unchanged."""
    return content if isinstance(content, bytes) else str(content).encode()


@pytest.fixture
def api(live_service):
    with live_api(live_service.url, live_service.new_owner()) as api:
        yield api


@pytest.fixture
def experiment(api):
    """An experiment with a series of each data class."""
    experiment_id = api.new_experiment(name="described")
    series = (
        scalars("loss", range(9)),
        texts("notes", [0], [b"t"]),
        images("pictures", [0], [[b"x"]]),
    )
    api.write(experiment_id, segment(stream(), 0, 9, *series))
    return experiment_id


@pytest.fixture(scope="module")
def operations(live_service):
    """Return every operation of the document; of a response that does not end, the first event is
    read.
    """
    schemathesis.serializer("application/x-protobuf")(as_bytes)
    schema = schemathesis.openapi.from_url(f"{live_service.url}/api/v1/openapi.json")
    schema.config.max_stream_events = 1
    return [operation.ok() for operation in schema.get_all_operations()]


def ask(operation, api, **path):
    """Send allowed and forbidden requests, some of them about existing things; check every
    response.
    """
    checks = [getattr(schemathesis.checks, name) for name in CHECKS]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy()
        | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    def check(case):
        case.path_parameters.update(
            {name: value for name, value in path.items() if name in case.path_parameters}
        )
        response = case.call(headers=api.headers, timeout=SECONDS_MAX)
        # The web server itself refuses a longer head, or one that is no HTTP (as a hostile
        # Transfer-Encoding), before any route, in plain text.
        is_long = len(response.request.url) >= HEAD_BYTES_MAX - 2 * limits.KIB
        if not is_long and response.content != b"Invalid HTTP request received.":
            case.validate_response(response, checks=checks)

    check()


def test_every_answer_is_described_and_none_is_failure(operations, api, experiment):
    assert len(operations) > 40
    for operation in operations:
        is_deletion = operation.method.upper() == "DELETE"
        ask(operation, api, **({} if is_deletion else {"experiment_id": experiment}))


def test_openapi_tail_refusals_are_json(operations):
    tails = [operation for operation in operations if operation.path.endswith("/tail")]
    assert [operation.method.upper() for operation in tails] == ["GET", "POST"]
    for operation in tails:
        answers = operation.definition.raw["responses"]
        kinds = {status: list(answer["content"]) for status, answer in answers.items()}
        assert kinds.pop("200") == ["text/event-stream"]
        assert set(map(tuple, kinds.values())) == {("application/json",)}


def test_openapi_says_what_is_required(live_service):
    document = fetch(f"{live_service.url}/api/v1/openapi.json").json()
    classic = {
        path.rpartition("/")[2]: {
            each["name"] for each in operations["get"]["parameters"] if each["required"]
        }
        for path, operations in document["paths"].items()
        if path.startswith("/api/v0")
    }
    run_and_tag = ("histograms", "compressedHistograms", "images", "audio", "run_metadata")
    assert all(classic[name] == {"experiment_id", "run", "tag"} for name in run_and_tag)
    assert all(
        classic[f"individual{name}"] == {"experiment_id", "run", "tagname"}
        for name in ("Image", "Audio")
    )
    assert classic["graph"] == {"experiment_id", "run"}
    scopes = document["components"]["schemas"]["NewToken"]["properties"]["scopes"]
    assert (scopes["items"]["enum"], scopes["minItems"]) == (["append", "read"], 1)
    for operation in document["paths"][
        "/api/v1/experiments/{experiment_id}/blobs/{sha256}"
    ].values():
        (sha256,) = [each for each in operation["parameters"] if each["name"] == "sha256"]
        assert sha256["schema"]["pattern"] == "^[0-9A-Fa-f]{64}$"
    assert {} in document["paths"]["/metrics"]["get"]["security"]
