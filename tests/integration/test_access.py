"""Access to every route: by every kind of principal, valid and not, of this workspace and another."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pytest
from fastapi.routing import APIRoute
from pydantic import SecretStr
from sqlalchemy import exc, text
from starlette.routing import Route
from starlette.testclient import TestClient

from support.api_routes import DOOMED, GONE_AFTERWARDS, SHA256, TABLE
from support.batches import ApiClient, images, scalars, segment, stream, texts
from support.people import cookie_of, new_member
from support.principals import Principal, make_principals, tell_apart
from support.servers import new_workspace
from tbservice.db.database import Database, set_local
from tbservice.pages.base import form_visits
from tbservice.server.app import create_app
from tbservice.types.people import Role

FIRST_ROUTES = list({need: (method, path) for method, path, need, *_ in reversed(TABLE)}.values())
"""For each need a route that is asked by every principal; all others by those who tell
its need from the rest.
"""

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
"""Statuses of the classic API for one who may read and says nothing more: they all want `read`."""

OPEN = {
    "/healthz",
    "/readyz",
    "/api/v1/openapi.json",
    "/api/v1/docs",
    # A command that logs in has nothing yet: see test_device_login.
    "/api/v1/device-logins",
    "/api/v1/device-logins/token",
    # Who has a receipt verifies it: public keys.
    "/api/v1/receipt-keys",
}
OPERATORS = {"/metrics"}


@dataclass(frozen=True)
class World:
    """An experiment with every kind of data in a workspace, and one of each principal."""

    workspace_id: int
    experiment: str
    blob_key: str
    principals: list[Principal]


def make_world(client, database, database_url):
    workspace = new_workspace(database_url)
    api = ApiClient(client, workspace.owner_token)
    experiment = new_experiment(api)
    principals = make_principals(client, database, database_url, workspace, experiment)
    return World(workspace.workspace_id, experiment, blob_key_of(api, experiment), principals)


@pytest.fixture(scope="module")
def shared_database(shared_settings):
    with closing(Database(shared_settings.database_url.get_secret_value(), 2)) as database:
        yield database


@pytest.fixture(scope="module")
def shared_world(shared_application, shared_settings, shared_database):
    """The rows that all routes that delete nothing are asked about."""
    url = shared_settings.database_url.get_secret_value()
    return make_world(shared_application, shared_database, url)


def new_experiment(api):
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


def blob_key_of(api, experiment):
    return api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"][0][0]["key"]


@pytest.fixture
def experiment(api):
    return new_experiment(api)


def ask_route(client, database, world, route):
    """Ask one route of the table as those who tell its need from the rest."""
    method, path, need, status, options = route
    address = path.format(
        experiment_id=world.experiment,
        workspace_id=world.workspace_id,
        user_id=new_member(database, world.workspace_id, Role.VIEWER).user_id,
        upload_id="0" * 16,
        token_id="none",
        link_id="none",
        invitation_id="none",
        view_id="none",
        sha256=SHA256,
        blob_key=world.blob_key,
        kind="scalars",
        run="train",
    )
    is_first = (method, path) in FIRST_ROUTES
    principals = world.principals if is_first else tell_apart(world.principals, need)
    statuses = {status, 404} if (method, path) in GONE_AFTERWARDS else {status}
    check_grants(client, principals, method, f"/api/v1{address}", need, statuses, options)


@pytest.mark.parametrize(
    "route",
    [route for route in TABLE if route[:2] not in DOOMED],
    ids=lambda route: f"{route[0]}-{route[1]}"[:60],
)
def test_every_route_takes_its_grant_and_no_other(client, shared_database, shared_world, route):
    ask_route(client, shared_database, shared_world, route)


def test_every_route_that_deletes_takes_its_grant(client, shared_database, shared_settings):
    url = shared_settings.database_url.get_secret_value()
    world, routes = make_world(client, shared_database, url), {each[:2]: each for each in TABLE}
    for doomed in DOOMED:
        ask_route(client, shared_database, world, routes[doomed])


def test_every_classic_route_takes_grant_to_read(client, shared_world):
    for path, status in CLASSIC:
        address = f"/api/v0/experiments/{shared_world.experiment}/{path}"
        principals = tell_apart(shared_world.principals, "read")
        check_grants(client, principals, "GET", address, "read", {status}, {})


CODES = {401: "unauthenticated", 403: "forbidden", 404: "not_found"}


def check_grants(client, principals, method, address, need, statuses, options):
    """Ask as every principal: those with the right get one of the statuses, all others their error;
    and nobody anything by a cookie.
    """
    seen = set()
    # Those with the right are last, because they may delete what the others are asked about.
    for principal in sorted(principals, key=lambda each: each.status(need) is None):
        headers = ApiClient(client, principal.secret).headers | options.get("headers", {})
        answer = client.request(method, address, **(options | {"headers": headers}))
        expected = principal.status(need)
        if expected is None:
            assert answer.status_code in statuses, (principal.name, answer.text)
            seen.add(answer.status_code)
        else:
            got = (answer.status_code, answer.json()["code"])
            assert got == (expected, CODES[expected]), principal.name
        if principal.is_session or principal.role:
            cookies = cookie_of(principal.secret) | options.get("headers", {})
            answer = client.request(method, address, **(options | {"headers": cookies}))
            assert answer.status_code == 401, principal.name
    assert seen == statuses


PAGES = ("/", "/data/runs", "/data/plugin/scalars/tags", "/data/blob/{blob_key}")


@pytest.mark.parametrize("page", ["/experiment/{id}", "/compare/a:{id},b:{id}"])
def test_pages_open_to_sessions_of_members_alone(client, shared_world, page):
    """Each data route of a page, by cookie; the page itself shows a form to all others."""
    for principal in (each for each in shared_world.principals if each.is_session):
        for path in PAGES:
            rest = path.format(blob_key=shared_world.blob_key)
            address = page.format(id=shared_world.experiment) + rest
            answer = client.get(address, headers=cookie_of(principal.secret))
            is_open = principal.page_status() is None
            assert (answer.status_code == 200) == is_open, (principal.name, address)
            assert is_open or answer.status_code in {401, 404}
            assert is_open or "loss" not in answer.text


def test_every_route_of_application_is_in_table(client):
    paths = client.get("/api/v1/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    tabled = {(method, f"/api/v1{path}") for method, path, *_ in TABLE}
    tabled |= {("GET", f"/api/v0/experiments/{{experiment_id}}/{path}") for path, _ in CLASSIC}
    assert {(method, path) for method, path in routes if path not in OPEN | OPERATORS} == tabled
    plain = [route for route in client.app.routes if not isinstance(route, APIRoute)]
    visits = {route.path for route in form_visits.make_routes(client.app.routes)}
    outside = {route.path for route in plain if isinstance(route, Route)} - OPEN - visits
    assert not outside


@pytest.mark.parametrize("path", OPERATORS)
def test_metrics_open_to_no_token_of_tenant(client, shared_world, settings, path):
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
            *(principal.secret for principal in shared_world.principals),
        ):
            headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
            assert client.get(path, headers=headers).status_code == 404
            answer = other.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            expected = 'Bearer error="invalid_token"' if token else "Bearer"
            assert answer.headers["www-authenticate"] == expected
        basic = other.get(path, headers={"Authorization": "Basic the operator's own"})
        assert (basic.status_code, basic.headers["www-authenticate"]) == (401, "Bearer")
        assert (
            other.get(path, headers={"Authorization": "Bearer the operator's own"}).status_code
            == 200
        )


def test_metrics_token_is_replaced_while_both_are_accepted(settings):
    replaced = {"old": (200, 401, 401), "old, new": (200, 200, 200), "new,": (401, 200, 401)}
    for token, expected in replaced.items():
        changed = settings.model_copy(update={"metrics_token": SecretStr(token)})
        reader = TestClient(create_app(changed))
        statuses = [
            reader.get("/metrics", headers={"Authorization": f"Bearer {sent}"}).status_code
            for sent in ("old", "new", "old, new")
        ]
        assert tuple(statuses) == expected, token
        assert reader.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401


def test_experiment_that_is_not_there_looks_like_another_tenants(
    client, api, experiment, shared_world
):
    nothing = "A" * 22
    for token in [None, *(each.secret for each in shared_world.principals)]:
        there = ApiClient(client, token).request("GET", f"/experiments/{experiment}")
        absent = ApiClient(client, token).request("GET", f"/experiments/{nothing}")
        assert (there.status_code, there.json()) == (absent.status_code, absent.json())
    assert api.request("GET", f"/experiments/{nothing}").status_code == 404
    assert api.request("GET", "/experiments/..%2f").status_code == 404


def test_link_visibility_grants_read_to_all_and_write_to_none(client, api, experiment):
    blob_key = blob_key_of(api, experiment)
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
        set_local(db, "workspace_id", str(workspace_id))
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


WITHOUT_POLICY = {"device_logins", "page_reports", "workspaces"}
"""Tables with numbers of workspaces that are also read before the workspace is known."""


def test_tables_of_workspaces_have_their_policy(database):
    # On a cluster, policies call a function, and do not hold for the owner, who moves shards.
    query = """
        SELECT relname FROM pg_class
        JOIN pg_attribute ON attrelid = pg_class.oid AND attname = 'workspace_id'
        LEFT JOIN pg_policies ON tablename = relname AND policyname = 'tenant'
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND (relrowsecurity AND relforcerowsecurity = (to_regproc('in_current_workspace') IS NULL)
            AND qual ~ '^\\(*(workspace_id = |in_current_workspace\\(workspace_id\\))') IS NOT TRUE
    """
    with database.transaction() as db:
        assert set(db.execute(text(query)).scalars()) == WITHOUT_POLICY


def test_row_level_security_hides_rows_of_other_tenants(
    experiment, database, database_url, workspace_id
):
    assert experiment
    other_id = new_workspace(database_url).workspace_id
    tables = ("experiments", "runs", "time_series", "scalar_tail", "tensor_points", "blob_points")
    for reader_id, is_seen in ((None, False), (workspace_id, True), (other_id, False)):
        with database.transaction(reader_id) as db:
            for table in tables:
                count = db.execute(text(f"SELECT count(*) FROM {table}")).scalar()  # noqa: S608 - a constant above
                assert (count > 0) == is_seen, table


def test_error_of_database_does_not_tell_what_was_sent(database):
    with (
        pytest.raises(exc.DataError, match="division by zero") as caught,
        database.transaction() as db,
    ):
        db.execute(text("SELECT 1 / 0, CAST(:content AS text)"), {"content": "a tenant's own"})
    assert "a tenant's own" not in str(caught.value)
