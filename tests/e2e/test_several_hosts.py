"""Several `tbservice serve` on one database and bucket, as on several hosts: what one does, the other
knows with its next answer.
"""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

from support.batches import ApiClient
from support.people import cookie_of, new_session
from support.servers import http_client, live_service

FORM = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
STATUSES = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
PUBLIC_URL = "http://tbhub.example"


@pytest.fixture(scope="module")
def hosts(shared_settings, tmp_path_factory):
    """Two running services."""
    logs = tmp_path_factory.mktemp("hosts")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                live_service(shared_settings, logs / name, TBHUB_PUBLIC_URL=PUBLIC_URL)
            )
            for name in ("left", "right")
        ]


@pytest.fixture
def clients(hosts):
    """A client of each host."""
    with ExitStack() as stack:
        yield [stack.enter_context(http_client(host.url)) for host in hosts]


@pytest.fixture
def apis(clients, owner_token):
    """The API of each host for the owner of one workspace."""
    return [ApiClient(client, owner_token) for client in clients]


def test_hosts_keep_nothing_that_other_has_changed(apis):
    left, right = apis
    experiment = left.new_experiment()
    for number, writer in enumerate((left, right, left, right), 1):
        writer.request(
            "PUT",
            f"/experiments/{experiment}/runs/hparams",
            params={"run": "train"},
            json={"hparams": {"lr": number}},
        ).raise_for_status()
        for reader in apis:
            answer = reader.request(
                "POST",
                f"/experiments/{experiment}/hparams/session_groups",
                json={"allowedStatuses": STATUSES, "sliceSize": 10},
            )
            assert answer.json()["sessionGroups"][0]["hparams"] == {"lr": number}


def test_session_of_one_host_is_one_of_all(clients, database, workspace_id):
    left, right = clients
    browser = {**FORM, **cookie_of(new_session(database, workspace_id))}
    page = left.get("/device", headers=browser).text
    login = right.post("/api/v1/device-logins", json={"client": "a command"}).json()
    asked = {"device_code": login["device_code"]}
    assert left.post("/api/v1/device-logins/token", json=asked).status_code == 202
    name, token = re.search(r'name="(csrf[^"]*)" value="([^"]+)"', page).groups()
    fields = {"code": login["user_code"], "workspace_id": workspace_id, "expires_days": 30}
    approved = right.post(
        "/device/approve", data={name: token, "scope": "read", **fields}, headers=browser
    )
    assert approved.status_code == 303
    redeemed = left.post("/api/v1/device-logins/token", json=asked)
    assert redeemed.status_code == 200
    assert right.post("/api/v1/device-logins/token", json=asked).status_code == 404
    bearer = {"Authorization": f"Bearer {redeemed.json()['token']}"}
    for client in clients:
        assert client.get("/api/v1/me", headers=bearer).status_code == 200
    assert left.post("/sign-out", data={name: token}, headers=browser).status_code == 303
    assert right.get("/me", headers=browser).status_code == 303


def test_token_revoked_at_one_host_is_refused_by_other(apis):
    left, right = apis
    experiment = left.new_experiment()
    made = left.request(
        "POST", f"/experiments/{experiment}/tokens", json={"scopes": ["read"]}
    ).json()
    reader = ApiClient(right.client, made["token"])
    assert reader.request("GET", f"/experiments/{experiment}").status_code == 200
    left.request("DELETE", f"/experiments/{experiment}/tokens/{made['id']}").raise_for_status()
    assert reader.request("GET", f"/experiments/{experiment}").status_code == 401
