"""Access to every route: without a token, with another tenant's, an expired one, a revoked one, and
one of each scope.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from sqlalchemy import exc, text
from starlette.routing import Route
from starlette.testclient import TestClient

from support.batches import PROTOBUF, ApiClient, batch, images, scalars, segment, stream, texts
from support.servers import new_owner, new_workspace
from tbservice.server.app import create_app

# Route, what it needs, what it answers to one who has it, and what is sent along.
SHA256 = "0" * 64
JSON = {"json": {}}
TABLE = [
    ("POST", "/experiments", "workspace", 201, JSON),
    ("GET", "/experiments", "workspace", 200, {}),
    ("GET", "/experiments/deleted", "workspace", 200, {}),
    ("POST", "/experiments/{experiment_id}/restore", "workspace", 404, {}),
    ("GET", "/experiments/{experiment_id}", "read", 200, {}),
    ("PATCH", "/experiments/{experiment_id}", "admin", 200, JSON),
    ("DELETE", "/experiments/{experiment_id}", "admin", 204, {}),
    ("DELETE", "/experiments/{experiment_id}/runs", "admin", 204, {"params": {"run": "train"}}),
    (
        "DELETE",
        "/experiments/{experiment_id}/series",
        "admin",
        204,
        {"params": {"run": "train", "tag": "loss"}},
    ),
    ("POST", "/experiments/{experiment_id}/tokens", "admin", 201, {"json": {"scopes": ["read"]}}),
    ("GET", "/experiments/{experiment_id}/tokens", "admin", 200, {}),
    ("DELETE", "/experiments/{experiment_id}/tokens/{token_id}", "admin", 404, {}),
    ("POST", "/experiments/{experiment_id}/links", "admin", 201, JSON),
    ("GET", "/experiments/{experiment_id}/links", "admin", 200, {}),
    (
        "PATCH",
        "/experiments/{experiment_id}/links/{token_id}",
        "admin",
        404,
        {"json": {"label": "x"}},
    ),
    ("DELETE", "/experiments/{experiment_id}/links/{token_id}", "admin", 404, {}),
    (
        "POST",
        "/experiments/{experiment_id}/batches",
        "append",
        200,
        {"content": batch(), "headers": PROTOBUF},
    ),
    ("PUT", "/experiments/{experiment_id}/blobs/{sha256}", "append", 422, {"content": b"x"}),
    ("GET", "/experiments/{experiment_id}/blobs/{sha256}", "append", 200, {"params": {"size": 1}}),
    ("GET", "/experiments/{experiment_id}/streams", "append", 200, {}),
    ("PUT", "/experiments/{experiment_id}/runs/{run}/hparams", "append", 200, JSON),
    (
        "PUT",
        "/experiments/{experiment_id}/runs/hparams",
        "append",
        200,
        {"params": {"run": "."}, **JSON},
    ),
    ("GET", "/experiments/{experiment_id}/runs", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/names", "read", 200, {}),
    ("GET", "/experiments/{experiment_id}/plugins", "read", 200, {}),
    *[
        (method, f"/experiments/{{experiment_id}}/{kind}", "read", 200, options)
        for kind in ("scalars", "tensors", "blob_sequences")
        for method, options in (("GET", {}), ("POST", JSON))
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/{kind}/data", "read", 200, options)
        for kind in ("scalars", "tensors", "blob_sequences")
        for method, options in (("GET", {}), ("POST", JSON))
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/digests{path}", "read", 200, {option: what})
        for path, what in (
            ("", {}),
            ("/records", {"run": "train", "tag": "loss"}),
            ("/objects", {}),
        )
        for method, option in (("GET", "params"), ("POST", "json"))
    ],
    *[
        (method, f"/experiments/{{experiment_id}}/{{kind}}/{path}", "read", status, {option: what})
        for path, status, what in (
            ("new", 200, {}),
            ("tail", 400, {"since": "rubbish"}),
        )  # a tail would never end
        for method, option in (("GET", "params"), ("POST", "json"))
    ],
    *[
        ("POST", f"/experiments/{{experiment_id}}/hparams/{path}", "read", status, {"json": body})
        for path, status, body in (
            ("experiment", 422, {}),
            ("session_groups", 200, {}),
            ("metric_evals", 200, {"sessionName": "train", "metricName": {"tag": "loss"}}),
        )
    ],
    ("GET", "/blobs/{blob_key}", "read", 200, {}),
]
CLASSIC = [
    (path, status)
    for status, paths in {
        200: ("data/runs", "data/scalars"),
        400: (
            *(
                "data/histograms",
                "data/compressedHistograms",
                "data/images",
                "individualImage",
                "audio",
            ),
            *("individualAudio", "data/graph", "data/run_metadata"),
        ),
    }.items()
    for path in paths
]
"""What the classic API answers to one who may read and says nothing more: they all want `read`."""

OPEN = {"/healthz", "/readyz", "/api/v1/openapi.json", "/api/v1/docs"}
OPERATORS = {"/metrics"}


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment()
    sent = segment(
        stream(),
        0,
        9,
        scalars("loss", range(9)),
        texts("note", [0], [b"t"]),
        images("cat", [0], [[b"png"]]),
    )
    api.write(experiment, sent)
    return experiment


@pytest.fixture
def tokens(api, experiment, client, settings, database, workspace_id):
    soon = datetime.now(UTC) + timedelta(hours=1)
    stranger = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    made = {scope: api.new_token(experiment, scope) for scope in ("append", "read")}
    made["expired"] = api.new_token(experiment, "read", "append", expires_at=soon.isoformat())
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE tokens SET expires_at = now() WHERE expires_at IS NOT NULL"))
    made["revoked"] = api.new_token(experiment, "read", "append")
    (revoked,) = [
        t
        for t in api.get(experiment, "tokens")["tokens"]
        if made["revoked"].startswith(t["prefix"])
    ][:1]
    newest = api.get(experiment, "tokens")["tokens"][0]
    assert newest["created_at"] >= revoked["created_at"]
    api.request("DELETE", f"/experiments/{experiment}/tokens/{newest['id']}").raise_for_status()
    made["another's experiment"] = stranger.new_token(stranger.new_experiment(), "read", "append")
    made["another's owner"] = stranger.headers["Authorization"].removeprefix("Bearer ")
    made["another experiment"] = api.new_token(api.new_experiment(), "read", "append")
    made["mistyped"] = made["read"][:-1] + ("0" if made["read"][-1] != "0" else "1")
    return made


@pytest.fixture
def blob_key(api, experiment):
    return api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"][0][0]["key"]


@pytest.mark.parametrize(
    ("method", "path", "need", "status", "options"), TABLE, ids=lambda value: str(value)[:60]
)
def test_every_route_takes_its_grant_and_no_other(
    client, api, experiment, tokens, blob_key, method, path, need, status, options
):
    path = path.format(
        experiment_id=experiment,
        token_id="none",
        sha256=SHA256,
        blob_key=blob_key,
        kind="scalars",
        run="train",
    )
    check_grants(client, api, tokens, method, f"/api/v1{path}", need, status, options)


def test_every_classic_route_takes_grant_to_read(client, api, experiment, tokens):
    for path, status in CLASSIC:
        check_grants(
            client,
            api,
            tokens,
            "GET",
            f"/api/v0/experiments/{experiment}/{path}",
            "read",
            status,
            {},
        )


def check_grants(client, api, tokens, method, address, need, status, options):
    """Ask with every kind of token: those with the right get `status`, all others their error."""

    def ask(token):
        headers = ApiClient(client, token).headers | options.get("headers", {})
        return client.request(method, address, **(options | {"headers": headers}))

    for useless in (None, tokens["expired"], tokens["revoked"], tokens["mistyped"], "nonsense"):
        answer = ask(useless)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    for token in ("another's experiment", "another's owner", "another experiment"):
        answer = ask(tokens[token])
        if need == "workspace":
            assert answer.status_code == (status if token == "another's owner" else 403)
        else:
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    for scope in ("append", "read"):
        if scope != need:
            assert ask(tokens[scope]).status_code == 403
        else:
            assert ask(tokens[scope]).status_code == status
    assert ask(api.headers["Authorization"].removeprefix("Bearer ")).status_code == status


def test_every_route_of_application_is_in_table(client):
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    tabled = {(method, f"/api/v1{path}") for method, path, *_ in TABLE}
    tabled |= {("GET", f"/api/v0/experiments/{{experiment_id}}/{path}") for path, _ in CLASSIC}
    assert {(method, path) for method, path in routes if path not in OPEN | OPERATORS} == tabled
    outside = {route.path for route in client.app.routes if isinstance(route, Route)} - OPEN
    assert not outside


@pytest.mark.parametrize("path", OPERATORS)
def test_metrics_open_to_no_token_of_tenant(client, api, tokens, settings, path):
    owner = api.headers["Authorization"].removeprefix("Bearer ")
    guarded = create_app(
        settings.model_copy(update={"metrics_token": SecretStr("the operator's own")})
    )
    with TestClient(guarded) as other:
        for token in (
            None,
            "",
            "nonsense",
            "the operator's",
            "the öperator's own",
            owner,
            *tokens.values(),
        ):
            headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
            assert client.get(path, headers=headers).status_code == 404
            answer = other.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (
            other.get(path, headers={"Authorization": "Basic the operator's own"}).status_code
            == 401
        )
        assert (
            other.get(path, headers={"Authorization": "Bearer the operator's own"}).status_code
            == 200
        )


def test_experiment_that_is_not_there_looks_like_another_tenants(client, api, experiment, tokens):
    nothing = "A" * 22
    for token in (None, tokens["another's owner"]):
        there = ApiClient(client, token).request("GET", f"/experiments/{experiment}")
        absent = ApiClient(client, token).request("GET", f"/experiments/{nothing}")
        assert (there.status_code, there.json()) == (absent.status_code, absent.json())
    assert api.request("GET", f"/experiments/{nothing}").status_code == 404
    assert api.request("GET", "/experiments/..%2f").status_code == 404


def test_link_visibility_grants_read_to_all_and_write_to_none(client, api, experiment, blob_key):
    api.request(
        "PATCH", f"/experiments/{experiment}", json={"visibility": "link"}
    ).raise_for_status()
    anyone = ApiClient(client, None)
    assert anyone.get(experiment, "scalars")["train"]["loss"]["count"] == 9
    assert anyone.request("GET", f"/blobs/{blob_key}").content == b"png"
    assert anyone.send(experiment).status_code == 401
    assert anyone.request("DELETE", f"/experiments/{experiment}").status_code == 401
    api.request(
        "PATCH", f"/experiments/{experiment}", json={"visibility": "private"}
    ).raise_for_status()
    assert anyone.request("GET", f"/experiments/{experiment}").status_code == 401


def test_token_is_told_once_and_kept_as_hash(api, experiment, database, workspace_id):
    made = api.request(
        "POST", f"/experiments/{experiment}/tokens", json={"scopes": ["read"], "label": "mail"}
    ).json()
    secret = made["token"]
    (listed,) = api.get(experiment, "tokens")["tokens"]
    assert "token" not in listed
    assert (listed["label"], listed["scopes"], listed["last_used_at"]) == ("mail", ["read"], None)
    assert secret.startswith(listed["prefix"])
    assert len(listed["prefix"]) < 10
    ApiClient(api.client, secret).get(experiment, "runs")
    assert api.get(experiment, "tokens")["tokens"][0]["last_used_at"] is not None
    with database.transaction() as db:
        assert (
            db.execute(text("SELECT count(*) FROM tokens")).scalar() == 0
        )  # row-level security: no tenant, no rows
        db.execute(
            text("SELECT set_config('tbhub.workspace_id', :id, true)"), {"id": str(workspace_id)}
        )
        stored = str(db.execute(text("SELECT * FROM tokens")).all())
    assert "mail" in stored
    assert secret not in stored


def test_tokens_that_make_no_sense_are_refused(api, experiment):
    for body in (
        {"scopes": []},
        {"scopes": ["admin"]},
        {"scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"},
        {"scopes": ["read"], "expires_at": "2099-01-01T00:00:00"},
        {"scopes": ["read"], "expires_at": "9999-12-31T23:59:59-12:00"},  # the year 10,000 in UTC
        {"scopes": ["read"], "label": "x" * 201},
        {"scopes": ["read"], "experiment": "all"},
    ):
        answer = api.request("POST", f"/experiments/{experiment}/tokens", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_row_level_security_hides_rows_of_other_tenants(
    api, experiment, database, database_url, workspace_id
):
    other_id = new_workspace(database_url).workspace_id
    path = f"/experiments/{experiment}/blobs/{hashlib.sha256(b'blob').hexdigest()}"
    api.request("PUT", path, content=b"blob").raise_for_status()
    tables = (
        "experiments",
        "runs",
        "tags",
        "time_series",
        "scalar_tail",
        "tensor_points",
        "blob_points",
        "blobs",
    )
    for reader_id, is_seen in ((None, False), (workspace_id, True), (other_id, False)):
        with database.transaction(reader_id) as db:
            for table in (*tables, "upload_streams", "experiment_blobs"):
                count = db.execute(text(f"SELECT count(*) FROM {table}")).scalar()  # noqa: S608 - a constant above
                assert (count > 0) == is_seen, table


def test_error_of_database_does_not_tell_what_was_sent(database):
    with (
        pytest.raises(exc.DataError, match="division by zero") as caught,
        database.transaction() as db,
    ):
        db.execute(text("SELECT 1 / 0, CAST(:content AS text)"), {"content": "a tenant's own"})
    assert "a tenant's own" not in str(caught.value)
