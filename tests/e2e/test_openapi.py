"""Whatever is sent that the API's description allows, or forbids: no failure, and no answer that is not described."""

from __future__ import annotations

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from support.batches import Api, images, scalars, segment, stream, texts

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = "/tail"
EXAMPLES = 5


@schemathesis.serializer("application/x-protobuf")
def as_bytes(_context, content):
    """A body of bytes, such as they are."""
    return content if isinstance(content, bytes) else str(content).encode()


@pytest.fixture
def api(live_service):
    with httpx2.Client(base_url=live_service.url, trust_env=False, timeout=60) as client:
        yield Api(client, live_service.new_owner())


@pytest.fixture
def experiment(api):
    """An experiment with a series of each data class."""
    experiment_id = api.new_experiment(name="described")
    series = scalars("loss", range(9)), texts("notes", [0], [b"t"]), images("pictures", [0], [[b"x"]])
    api.write(experiment_id, segment(stream(), 0, 9, *series))
    return experiment_id


@pytest.fixture
def operations(live_service):
    """Every operation but those whose answers do not end."""
    schema = schemathesis.openapi.from_url(f"{live_service.url}/api/v1/openapi.json")
    found = [operation.ok() for operation in schema.get_all_operations()]
    return [operation for operation in found if not operation.path.endswith(ENDLESS)]


def ask(operation, api, **path):
    """Sends what the description allows and what it forbids, some of it about what there is; checks every answer."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def check(case):
        case.path_parameters.update({name: value for name, value in path.items() if name in case.path_parameters})
        case.validate_response(case.call(headers=api.headers), checks=CHECKS)

    check()


def test_every_answer_is_described_and_none_is_a_failure(operations, api, experiment):
    assert len(operations) > 40
    for operation in operations:
        ask(operation, api)
        if operation.method.upper() != "DELETE":
            ask(operation, api, experiment_id=experiment)
