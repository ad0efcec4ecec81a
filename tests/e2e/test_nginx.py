"""The shipped configuration of nginx, before a real service."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from support import servers as support
from support.batches import ApiClient, packed_scalars
from support.programs import find_program
from support.uploading import wait_until
from tbservice.local.embedded.ports import choose_ports

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
BURST = 400
"""Requests that the configuration lets pass at once, before the pace counts."""


@contextmanager
def running_nginx(service, directory, **replaced):
    """Run nginx before a service without TLS until the block ends; yield its URL."""
    port = choose_ports(["nginx"], {})["nginx"]
    text = CONFIGURATION.read_text()
    text = re.sub(r"(?m)^ *(ssl_certificate.*|listen \[.*)\n", "", text)
    replaced |= {
        "443 ssl": f"127.0.0.1:{port}",
        "127.0.0.1:6060": service.url.removeprefix("http://"),
        "/var/log/nginx": str(directory),
    }
    for before, after in replaced.items():
        assert before in text
        text = text.replace(before, after)
    (directory / "tbhub.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {directory / kind};" for kind in kinds)
    main = directory / "nginx.conf"
    main.write_text(
        f"daemon off; master_process off; pid {directory / 'pid'};\n"
        f"error_log {directory / 'error.log'};\n"
        f"events {{}}\nhttp {{ {paths} include {directory / 'tbhub.conf'}; }}\n"
    )
    process = subprocess.Popen([find_program("nginx"), "-c", main, "-e", directory / "first.log"])
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: process.poll() is not None or is_listening(url))
        yield url
    finally:
        process.terminate()
        process.wait()


def is_listening(url):
    try:
        return support.fetch(f"{url}/metrics").status_code == 404
    except httpx2.TransportError:
        return False


@pytest.fixture
def client_of():
    with support.http_client() as client:

        def client_of(url):
            client.base_url = url
            return client

        yield client_of


def test_nginx_passes_uploads_and_pages(live_service, tmp_path, client_of):
    with running_nginx(live_service, tmp_path) as url:
        http = client_of(url)
        api = ApiClient(http, live_service.new_owner())
        experiment = api.new_experiment(packed_scalars("loss", [1, 2, 3]), visibility="link")
        path = f"/api/v1/experiments/{experiment}/scalars"
        assert http.get(f"{path}/data").status_code == 200
        assert http.get(f"/experiment/{experiment}/").status_code == 200
        with http.stream("GET", f"{path}/tail") as tail:  # not kept until it ends
            assert "loss" in next(tail.iter_text())
        assert http.get(f"{path}?token=tbh_secret").status_code
        assert "tbh_secret" not in (tmp_path / "tbhub.log").read_text()


def test_nginx_refuses_address_over_its_pace(live_service, tmp_path, client_of):
    slow = {"rate=100r/s": "rate=1r/m", f"burst={BURST}": "burst=5"}
    with running_nginx(live_service, tmp_path, **slow) as url:
        http = client_of(url)
        statuses = [http.get("/healthz").status_code for _ in range(5 + 10)]
    assert statuses[0] == 204
    assert statuses[-1] == 429
    assert statuses.count(429) < 10
