"""What every answer has in common: its headers, its methods, and that no redirect names the Host it was asked by."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from support.batches import Api, scalars, segment, stream
from support.servers import new_owner

EVIL = {"Host": "evil.example"}
SHA256 = "0" * 64
REFUSED = (
    ("GET", "/api/v1/nothing", 404),
    ("PUT", "/api/v1/experiments", 405),
    ("GET", "/api/v1/experiments", 401),
)


@pytest.fixture(scope="module")
def api(shared_application, shared_settings):
    return Api(shared_application, new_owner(shared_settings.database_url.get_secret_value()))


@pytest.fixture(scope="module")
def experiment(api):
    experiment = api.new_experiment(visibility="link")
    api.write(experiment, segment(stream(), 0, 9, scalars("loss", range(9))))
    return experiment


def test_redirects_never_name_a_host(api, experiment):
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


def test_trailing_slash_of_an_api_path_is_404(api, experiment):
    answer = api.request("GET", f"/experiments/{experiment}/runs/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v1/experiments", "GET, POST"),
        ("/api/v1/experiments/{}", "GET, PATCH, DELETE"),
        ("/api/v1/experiments/{}/scalars", "GET, POST"),
        ("/api/v1/experiments/{}/scalars/tail", "GET, POST"),
        ("/api/v1/experiments/{}/blobs/" + SHA256, "GET, PUT"),
        ("/api/v1/blobs/x", "GET, HEAD"),
        ("/experiment/{}/", "GET, HEAD, POST"),
    ],
)
def test_allow_names_every_method_of_the_path(api, experiment, path, methods):
    answer = api.client.request("OPTIONS", path.format(experiment))
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
    assert answer.json()["code"] == "method_not_allowed"


def test_every_answer_carries_nosniff(api, experiment):
    paths = [
        *("/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/api/v1/docs", f"/experiment/{experiment}/"),
        *(f"/api/v1/experiments/{experiment}{path}" for path in ("", "/runs", "/scalars/data", "/digests")),
        *(f"/api/v1/experiments/{experiment}/scalars/data?format={name}" for name in ("csv", "arrow", "parquet")),
    ]
    for path in paths:
        assert api.client.get(path, headers=api.headers).headers["x-content-type-options"] == "nosniff", path
    for method, path, status in REFUSED:
        answer = api.client.request(method, path)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (status, "nosniff")
