"""Requests a second of one address, account or network, at a real server that permits few."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import servers as support
from support.batches import ApiClient

PROGRAM = Path(support.__file__).with_name("short_timeout_service.py")
PACE = 0.05
"""Requests a second of an address; of an account or an IPv6 network, twice as many.

So the first one is answered, and the next ones are refused, also on a slow machine.
"""

MANY = 5


@pytest.fixture(scope="module")
def service(shared_settings, tmp_path_factory):
    log = tmp_path_factory.mktemp("paced") / "service.log"
    more = {"PYTHONPATH": str(Path(__file__).parents[1]), "TBHUB_REQUESTS_PER_SECOND": str(PACE)}
    with support.live_service(shared_settings, log, program=(PROGRAM,), **more) as live:
        yield live


@pytest.fixture
def http(service):
    with support.http_client(service.url) as client:
        yield client


@pytest.fixture
def statuses(http):
    """Return the statuses of requests that a proxy passes on, each for the next of the clients."""

    def statuses(path, *clients, token=None, count=MANY):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return [
            http.get(
                path, headers={**headers, "X-Forwarded-For": clients[number % len(clients)]}
            ).status_code
            for number in range(count)
        ]

    return statuses


@pytest.mark.parametrize("path", ["/healthz", "/", f"/experiment/{'A' * 22}/"])
def test_requests_of_address_are_paced_on_every_route(statuses, path):
    client, other = (f"192.0.2.{first + len(path)}" for first in (10, 100))
    seen = statuses(path, client)
    assert 429 in seen
    assert seen[0] != 429
    assert statuses(path, other, count=1) == seen[:1]


def test_account_is_paced_apart_from_its_address(service, statuses):
    token, path, client = service.new_owner(), "/api/v1/me", "192.0.2.2"
    assert statuses(path, client, token=token, count=1) == [200]
    assert 429 in statuses("/", client)
    assert statuses(path, client, token=token, count=1) == [200]
    assert statuses("/healthz", client, count=1) == [204]
    assert 429 in statuses(path, *(f"198.51.100.{number}" for number in range(MANY)), token=token)
    assert 429 in statuses(path, "192.0.2.3", token="unknown")


def test_machine_itself_is_not_paced_and_proxies_clients_are(http, service):
    assert {http.get("/healthz").status_code for _ in range(MANY)} == {204}
    claims = {"X-Forwarded-For": "127.0.0.1:9"}  # no client of a proxy is this machine
    refused = [http.get("/healthz", headers=claims) for _ in range(MANY)]
    refused = [response for response in refused if response.status_code == 429]
    assert refused[0].json()["code"] == "too_many_requests"
    assert int(refused[0].headers["Retry-After"]) > 0
    # `PROBE_PACE` of 0.05 a second: one in 100 s.
    assert refused[0].headers["RateLimit-Policy"] == '"probes";q=1;w=100'
    assert refused[0].headers["RateLimit"] == f'"probes";r=0;t={refused[0].headers["Retry-After"]}'
    assert refused[0].headers["X-Request-ID"] != refused[-1].headers["X-Request-ID"]
    assert ApiClient(http, service.new_owner()).new_experiment()
    counted = http.get("/metrics").text
    assert 'tbhub_over_share_total{share="requests a second"}' in counted
