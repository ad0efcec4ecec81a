"""`tbupload` to a server behind TLS, and through the proxies that the environment names."""

from __future__ import annotations

import os
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from support import event_files
from support.forward_proxy import forward_proxy
from support.tls_proxy import tls_proxy

HOST = "tbhub.example"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def logdir_with_points(logdir):
    events = [event_files.scalar_event("loss", step, 1.0) for step in range(10)]
    event_files.write_records(logdir / "run" / "tfevents.1", events)
    return logdir


@contextmanager
def encrypted(live_service, directory):
    """Run TLS before the live service, under a name that only the proxy resolves."""
    with tls_proxy(urlsplit(live_service.url).port, directory, HOST) as proxy:
        yield proxy


def upload(uploader, logdir, server, *arguments):
    options = (
        "--logdir",
        logdir,
        "--one-shot",
        "--json",
        "--retry-timeout",
        "1",
        "--server",
        server,
    )
    return uploader.run_process(*options, *arguments)


def set_proxy(monkeypatch, **variables):
    """Set these proxy variables and no others, in any spelling."""
    for name in os.environ:
        if name.lower() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_certificate_authority_of_ones_own_is_named_with_cacert(
    uploader, live_service, logdir_with_points, tmp_path
):
    with encrypted(live_service, tmp_path) as proxy:
        refused = upload(uploader, logdir_with_points, proxy.url)
        accepted = upload(uploader, logdir_with_points, proxy.url, "--cacert", proxy.ca_file)
    assert refused.code == 1
    assert "--cacert" in refused.err
    assert (accepted.code, accepted.done["scalars"]) == (0, 10), accepted.err


def test_https_goes_through_proxy_and_stays_encrypted(
    uploader, live_service, logdir_with_points, tmp_path, monkeypatch
):
    with (
        encrypted(live_service, tmp_path) as tls,
        forward_proxy({HOST: urlsplit(tls.url).port}) as proxy,
    ):
        set_proxy(monkeypatch, HTTPS_PROXY=proxy.url.replace("//", "//user:word@"))
        ended = upload(uploader, logdir_with_points, f"https://{HOST}", "--cacert", tls.ca_file)
        wrong_name = upload(
            uploader, logdir_with_points, "https://other.example", "--cacert", tls.ca_file
        )
    assert (ended.code, ended.done["scalars"]) == (0, 10), ended.err
    assert proxy.asked[0] == f"{HOST}:443"
    assert proxy.credentials[0] == "Basic dXNlcjp3b3Jk"
    assert wrong_name.code == 75
    assert "the proxy" in wrong_name.err
