"""Examples of the OpenAPI document: each fits its schema, and real answers have the same form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.lazy import LazyModule
from support.people import new_member, new_personal_token
from tbservice.api.http import openapi_errors
from tbservice.types.grants import Scope
from tbservice.types.people import Role

jsonschema_rs = LazyModule("jsonschema_rs")

EXAMPLES = json.loads((Path(openapi_errors.__file__).parent / "openapi_examples.json").read_text())
RUN, TAG = "seed0/train", "loss"


@pytest.fixture
def operations(client):
    document = client.get("/api/v1/openapi.json").json()
    by_id = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_id[operation["operationId"]] = (method, path, operation)
    return document["components"], by_id


def list_described(operation):
    """Yield what has a schema, and may have an example: parameters, body and answers."""
    yield from operation.get("parameters", ())
    yield from operation.get("requestBody", {}).get("content", {}).values()
    for response in operation["responses"].values():
        yield from response.get("content", {}).values()


def test_openapi_examples_fit_their_schemas(operations):
    components, by_id = operations
    assert len(EXAMPLES) >= 20
    for name, example in EXAMPLES.items():
        operation = by_id[name][2]
        described = [each for each in list_described(operation) if "example" in each]
        parts = example.get("parameters", {}), *({"request", "response"} & {*example})
        assert len(described) == len(parts[0]) + len(parts) - 1, name
        for each in described:
            schema = {**each["schema"], "components": components}
            validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            problems = [str(error) for error in validator.iter_errors(each["example"])]
            assert not problems, name


def form_of(value):
    """Return keys and kinds of values; of an array, the form of its first item."""
    if isinstance(value, dict):
        return {key: form_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [form_of(value[0])] if value else []
    return "number" if type(value) in {int, float} else type(value).__name__


@pytest.fixture
def world(client, database, workspace_id):
    """A person's token, and an experiment as the examples have it."""
    owner = new_member(database, workspace_id, Role.OWNER)
    api = ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))
    made = EXAMPLES["create_experiment"]["request"]
    experiment = api.request("POST", "/experiments", json=made).json()["experiment_id"]
    points = scalars(TAG, [0, 1, 2], [1.5, 0.5, 0.25])
    api.write(experiment, segment(stream(RUN), 0, 9, points))
    ask = f"/experiments/{experiment}/runs/hparams?run={RUN}"
    api.request("PUT", ask, json={"hparams": {"lr": 0.1}}).raise_for_status()
    return api, {"experiment_id": experiment, "workspace_id": workspace_id}


IGNORED = {"created_by", "data_at", "expires_at", "max_wall_time", "origin", "properties", "status"}
"""Fields that are null or empty in one of the two."""


def without_ignored(form):
    if isinstance(form, dict):
        return {
            key: without_ignored(item)
            for key, item in form.items()
            if key not in IGNORED and key != "_hparams_/session_start_info"
        }
    return [without_ignored(item) for item in form] if isinstance(form, list) else form


@pytest.mark.parametrize(
    "name",
    # An upload records itself: `list_uploads` has nothing here.
    [name for name, each in EXAMPLES.items() if "response" in each and name != "list_uploads"],
)
def test_openapi_example_is_as_real_answer(operations, world, name):
    api, ids = world
    method, path, operation = operations[1][name]
    example = EXAMPLES[name]
    values = {**example.get("parameters", {}), **ids}
    path = re.sub(r"\{(\w+)\}", lambda match: str(values[match[1]]), path)
    queried = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    answer = api.request(
        method.upper(),
        path.removeprefix("/api/v1"),
        params={key: value for key, value in values.items() if key in queried},
        json=example.get("request"),
    )
    assert answer.status_code < 300, answer.text
    assert without_ignored(form_of(answer.json())) == without_ignored(form_of(example["response"]))
