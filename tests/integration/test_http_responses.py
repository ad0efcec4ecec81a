"""Properties of all responses: headers, methods, and redirects that never name the Host of
the request.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from support.batches import scalars

EVIL = {"Host": "evil.example"}
SHA256 = "0" * 64
REFUSED = (
    ("GET", "/api/v1/nothing", 404),
    ("PUT", "/api/v1/experiments", 405),
    ("GET", "/api/v1/experiments", 401),
)


@pytest.fixture
def api(shared_api):
    return shared_api


@pytest.fixture(scope="module")
def experiment(shared_api):
    return shared_api.new_experiment(scalars("loss", range(9)), visibility="link")


def test_redirects_never_name_host(api, experiment):
    addresses = (
        f"/api/v1/experiments/{experiment}/runs/",
        "/api/v1/experiments/",
        "/healthz/",
        "/experiment",
        "/compare",
        f"/experiment/{experiment}",
        f"/experiment/{experiment}?x=1",
        f"/experiment/{experiment}/?token=x",
        f"/experiment/{experiment}/chart_worker.js",
        f"/compare/a:{experiment}",
        "/static/tensorboard/x",
        "/static/tensorboard",
        "/static/tensorboard/x/y/",
        "/api/v1/docs/",
    )
    redirects = 0
    for address in addresses:
        answer = api.client.get(address, headers={**api.headers, **EVIL}, follow_redirects=False)
        assert answer.status_code < 500
        location = answer.headers.get("location", "")
        redirects += bool(location)
        assert not urlsplit(location).netloc, address
    assert redirects >= 4


def test_trailing_slash_of_api_path_is_404(api, experiment):
    answer = api.request("GET", f"/experiments/{experiment}/runs/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v1/experiments", "GET, HEAD, POST"),
        ("/api/v1/experiments/{}", "GET, HEAD, PATCH, DELETE"),
        ("/api/v1/experiments/deleted", "GET, HEAD"),
        ("/api/v1/experiments/{}/scalars", "GET, HEAD, POST"),
        ("/api/v1/experiments/{}/scalars/tail", "GET, HEAD, POST"),
        ("/api/v1/experiments/{}/blobs/" + SHA256, "GET, HEAD, PUT"),
        ("/api/v1/blobs/x", "GET, HEAD"),
        ("/experiment/{}/", "GET, HEAD, POST"),
    ],
)
def test_allow_names_every_method_of_path(api, experiment, path, methods):
    answer = api.client.request("OPTIONS", path.format(experiment))
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
    assert answer.json()["code"] == "method_not_allowed"


HEADED = (
    "/",
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/v1/docs",
    "/api/v1/experiments/{}",
    "/api/v1/experiments/{}/scalars",
    "/api/v1/experiments/{}/scalars/data?sampling=all&format=csv",
    "/api/v1/experiments/{}/scalars/tail",
    "/experiment/{}/data/plugin/scalars/tags",
    "/api/v1/experiments/nothing",
)
VARYING = {"content-length", "x-request-id"}  # the first, as the figures of /metrics change


def steady_headers(answer):
    """Return the headers that two equal requests have in common."""
    return {name: value for name, value in answer.headers.items() if name not in VARYING}


@pytest.mark.parametrize("path", HEADED)
def test_head_has_the_headers_of_get(api, experiment, path):
    path = path.format(experiment)
    head = api.client.head(path, headers=api.headers)
    assert head.content == b""
    with api.client.stream("GET", path, headers=api.headers) as answer:
        assert head.status_code == answer.status_code
        assert steady_headers(head) == steady_headers(answer)


def test_every_answer_carries_nosniff_and_noindex(api, experiment):
    paths = [
        *(
            "/healthz",
            "/readyz",
            "/metrics",
            "/api/v1/openapi.json",
            "/api/v1/docs",
            f"/experiment/{experiment}/",
        ),
        *(
            f"/api/v1/experiments/{experiment}{path}"
            for path in ("", "/runs", "/scalars/data", "/digests")
        ),
        *(
            f"/api/v1/experiments/{experiment}/scalars/data?format={name}"
            for name in ("csv", "arrow", "parquet")
        ),
    ]
    for path in paths:
        headers = api.client.get(path, headers=api.headers).headers
        told = headers["x-content-type-options"], headers.get_list("x-robots-tag")
        assert told == ("nosniff", ["noindex"]), path
    for method, path, status in REFUSED:
        answer = api.client.request(method, path)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (status, "nosniff")
        assert answer.headers["x-robots-tag"] == "noindex"


@pytest.mark.parametrize(
    "path",
    [
        "/me",
        "/experiments",
        "/experiments/{}",
        "/experiments/{}/uploads",
        "/experiments/{}/tokens",
        "/experiments/{}/links",
        "/experiments/{}/streams",
        "/experiments/{}/scalars/data",
    ],
)
def test_private_json_is_kept_out_of_shared_caches(api, experiment, path):
    answer = api.request("GET", path.format(experiment))
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "private, no-cache")
    assert {"Authorization", "Accept"} <= set(answer.headers["Vary"].split(", "))


def test_refused_token_is_told_from_none(api):
    for headers, expected in (
        ({}, "Bearer"),
        ({"Authorization": "Bearer "}, "Bearer"),
        ({"Authorization": "Basic x"}, "Bearer"),
        ({"Authorization": "bearer x"}, 'Bearer error="invalid_token"'),
    ):
        answer = api.client.get("/api/v1/experiments", headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, expected)


@pytest.mark.parametrize("number", [2**63, 2**64, 10**30, -1, 0])
def test_blob_size_no_bigint_holds_is_invalid(api, experiment, number):
    for method, options in (("GET", {}), ("PUT", {"content": b"x"})):
        answer = api.request(
            method,
            f"/experiments/{experiment}/blobs/{SHA256}",
            params={"size": number, "offset": 0},
            **options,
        )
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_integers_of_api_fit_bigint(api):
    document = api.client.get("/api/v1/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    schemas = [
        parameter["schema"]
        for operation in operations
        for parameter in operation.get("parameters", [])
    ]
    bodies = [
        document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        for operation in operations
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "$ref" in content["schema"]
    ]
    schemas += [schema for body in bodies for schema in body["properties"].values()]
    integers = [
        each
        for schema in schemas
        for each in [schema, *schema.get("anyOf", [])]
        if each.get("type") == "integer"
    ]
    assert len(integers) > 40
    # The document's bounds are floats, of which 2**63 is the nearest to the greatest bigint.
    assert not [
        each for each in integers if not -(2**63) <= each["minimum"] <= each["maximum"] <= 2**63
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("scalars/data", {"step_min": True}),
        ("scalars/data", {"step_min": "5"}),
        ("scalars/data", {"last": 5.5}),
        ("scalars/data", {"last_value_min": False}),
        ("scalars/data", {"sampling": "bernoulli", "percent": "5"}),
        ("scalars", {"last_value_max": "1"}),
        ("scalars", {"limit": True}),
        ("blob_sequences/data", {"index_last": "1"}),
        ("scalars/new", {"limit": "5"}),
        ("scalars/tail", {"run": "train"}),
        ("digests", {"limit": True}),
        ("digests/records", {"run": "train", "tag": "loss", "limit": "5"}),
        ("tokens", {"scopes": ["read"], "expires_at": 4_000_000_000}),
        ("tokens", {"scopes": ["read"], "expires_at": "4000000000"}),
        ("tokens", {"scopes": ["admin"]}),
        ("tokens", {"scopes": []}),
    ],
)
def test_json_of_wrong_type_is_invalid(api, experiment, path, body):
    answer = api.request("POST", f"/experiments/{experiment}/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain", ""])
def test_json_under_another_type_is_told_the_header(api, content_type):
    headers = {**api.headers, "Content-Type": content_type}
    answer = api.client.post("/api/v1/experiments", headers=headers, content=b'{"name": "x"}')
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert "'Content-Type: application/json'" in answer.json()["detail"]
    is_json = {**api.headers, "Content-Type": "application/json"}
    answer = api.client.post("/api/v1/experiments", headers=is_json, content=b"[1]")
    assert (answer.status_code, "Content-Type" in answer.json()["detail"]) == (422, False)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("scalars", "run"),
        ("scalars/data", "tag"),
        ("digests", "run"),
    ],
)
def test_wrong_names_are_one_problem_however_many(api, experiment, path, field):
    answer = api.request(
        "POST", f"/experiments/{experiment}/{path}", json={field: ["train", *[0] * 100_000]}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["detail"] == f"body.{field}: Value error, each name must be a string"


def test_wrong_scopes_are_one_problem_however_many(api, experiment):
    answer = api.request(
        "POST", f"/experiments/{experiment}/tokens", json={"scopes": ["read", *[0] * 300_000]}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["detail"] == "body.scopes.1: Input should be 'append' or 'read'"


def test_unknown_fields_are_named_with_what_may_be_meant(api, experiment):
    wrong = {"tagg": ["loss"], **{f"field{number}": 0 for number in range(2_000)}}
    answer = api.request("POST", f"/experiments/{experiment}/scalars/data", json=wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    problems = answer.json()["detail"].split("; ")
    assert problems[0] == "body: unknown field 'tagg': did you mean 'tag'?"
    assert (len(problems), "known are attempt, downsample, " in problems[2]) == (3, True)
    answer = api.request("POST", f"/experiments/{experiment}/links", json={"xyz": 1})
    expected = "unknown field 'xyz': known are anonymous, expires_at, frozen, label, runs, tags"
    assert answer.json()["detail"] == f"body: {expected}"


def test_invalid_answer_names_ten_problems(api, experiment):
    wrong = {f"field{number}": [] for number in range(15)}
    answer = api.request(
        "PUT", f"/experiments/{experiment}/runs/x/hparams", json={"hparams": wrong}
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert len(answer.json()["detail"].split("; ")) == 10


def test_numbers_in_url_are_text(api, experiment):
    read = api.get(
        experiment, "scalars/data", step_min="5", last_value_min="0.5", sampling="linear"
    )
    assert read["train"]["loss"]["steps"] == [5, 6, 7, 8]
    body = {"step_min": 5, "last_value_min": 0, "sampling": "linear", "format": "json"}
    answer = api.request("POST", f"/experiments/{experiment}/scalars/data", json=body)
    assert answer.json()["train"]["loss"]["steps"] == [5, 6, 7, 8]
    assert (
        len(api.get(experiment, "scalars/new", limit="5")["points"]["train"]["loss"]["steps"]) == 5
    )
    assert api.get(experiment, "digests", limit="1")["series"][0]["count"] == 9
    assert api.get(experiment, "scalars", limit="1")["series"]["train"]["loss"]["count"] == 9


def test_page_tokens_made_up_are_malformed(api, experiment):
    for path in ("/experiments", f"/experiments/{experiment}/tokens"):
        for after in ("rubbish", "\0", "9" * 5000):
            assert (
                api.request("GET", path, params={"after": after, "limit": 1}).status_code == 400
            ), path


def test_every_api_route_refuses_unknown_parameters(api):
    paths = api.client.get("/api/v1/openapi.json").json()["paths"]
    asked = [(path, method) for path, methods in paths.items() for method in methods]
    asked = [(path, method) for path, method in asked if path.startswith("/api/v1/")]
    assert len(asked) >= 80
    for path, method in asked:
        url = path.replace("{", "").replace("}", "") + "?surplus=1"
        answer = api.client.request(method, url, headers=api.headers)
        assert answer.status_code == 422, (method, path, answer.text)
        assert answer.json()["detail"].startswith("unknown query parameter 'surplus': "), path


@pytest.mark.parametrize(
    ("route", "query", "detail"),
    [
        (
            "scalars/data",
            {"donwsample": "10", "tga": "loss"},
            (
                "unknown query parameter 'donwsample': did you mean 'downsample'?; "
                "unknown query parameter 'tga': did you mean 'tag'?"
            ),
        ),
        (
            "scalars/new",
            {"x" * 70: "1"},
            f"unknown query parameter '{'x' * 60}…': known are limit, plugin, run, since, start, tag",
        ),
    ],
)
def test_unknown_parameter_is_named_with_nearest(api, experiment, route, query, detail):
    answer = api.client.get(
        f"/api/v1/experiments/{experiment}/{route}", params=query, headers=api.headers
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert answer.json()["detail"] == detail


def test_probes_accept_any_parameter(api):
    assert api.client.get("/healthz?probe=1").status_code == 204


@pytest.mark.parametrize("query", ["downsample=1&downsample=2", "format=csv&metadata=0&format=csv"])
def test_parameter_repeated_that_is_no_list_is_refused(api, experiment, query):
    path = f"/experiments/{experiment}/scalars/data?run=a&run=b&"
    answer = api.request("GET", path + query)
    name = query.partition("=")[0]
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        f"query parameter {name!r} is repeated: send one",
    )
    assert api.request("GET", path + "downsample=1").status_code == 200


@pytest.mark.parametrize("value", ["yes", 1])
def test_booleans_of_every_body_are_strict(api, experiment, value):
    described = api.client.get("/api/v1/openapi.json").json()
    bodies = [
        (method, path, resolve(described, body["content"].get("application/json", {})))
        for path, methods in described["paths"].items()
        for method, route in methods.items()
        if (body := route.get("requestBody"))
    ]
    sent = [
        (method, path.replace("/api/v1", "").replace("{experiment_id}", experiment), name)
        for method, path, schema in bodies
        for name, field in schema.get("properties", {}).items()
        if field.get("type") == "boolean"
    ]
    assert len(sent) >= 8
    for method, path, name in sent:
        answer = api.request(method.upper(), path, json={name: value})
        assert (answer.is_client_error, name in answer.json()["detail"]) == (True, True), path


def resolve(described, content):
    """The schema of a body, which may be one of the components."""
    schema = content.get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return described["components"]["schemas"][name] if name else schema
