"""The address of an experiment on another server than the one in use is refused."""

from __future__ import annotations

import json
import os

import pytest

from support.faulty_server import Reply, faulty_server, refusal
from tbupload.cli import main

HERE = {
    "experiment_id": "abc",
    "url": "https://public.example/experiment/abc/",
    "name": "x",
    "created_at": "2026-01-01T00:00:00Z",
}

COMMANDS = (
    ("show", "URL"),
    ("open", "URL"),
    ("update-metadata", "URL", "--name", "x"),
    ("delete", "URL", "--yes"),
    ("delete", "URL", "--yes", "--run", "a"),
    ("restore", "URL"),
    ("share", "URL"),
    ("share", "revoke", "URL", "l1"),
    ("tail", "URL", "--retry-timeout", "1"),
    ("export", "--experiment", "URL", "--output", "OUT"),
    ("export", "--experiment", "URL", "--hparams", "OUT"),
    ("verify", "--logdir", "LOGDIR", "--experiment", "URL"),
    ("upload", "--logdir", "LOGDIR", "--experiment", "URL"),
)


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture
def run(tmp_path, monkeypatch, capsys, server):
    """Run a command with an address; return its exit code and stderr."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("TBHUB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "config.toml"))
    places = {"OUT": tmp_path / "out.csv", "LOGDIR": tmp_path}

    def run_command(command, url):
        words = [str(places.get(word, url if word == "URL" else word)) for word in command]
        code = main([*words, "--server", server.url])
        return code, capsys.readouterr().err

    return run_command


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_address_of_another_server_is_refused(run, server, command):
    server.replies = [Reply(200, json.dumps(HERE).encode())]
    code, err = run(command, "https://prod.example/experiment/abc/?token=hidden")
    assert code == 2
    for text in ("prod.example", server.url, "public.example", "--server https://prod.example"):
        assert text in err
    assert "hidden" not in err
    assert [request.method for request in server.requests] == ["GET"]


def test_address_of_no_experiment_here_is_refused(run, server):
    server.replies = [refusal(404), refusal(404), Reply(200, b'{"experiments": [], "next": null}')]
    code, err = run(("delete", "URL", "--yes"), "https://prod.example/experiment/abc/")
    assert (code, "prod.example" in err) == (2, True)
    assert {request.method for request in server.requests} == {"GET"}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_public_address_names_experiment_of_this_server(run, server, is_deleted):
    deleted = {"experiments": [{**HERE, "deleted_at": "2026-01-01T00:00:00Z"}], "next": None}
    replies = [refusal(404), refusal(404), Reply(200, json.dumps(deleted).encode())]
    server.replies = [
        *(replies if is_deleted else [Reply(200, json.dumps(HERE).encode())]),
        Reply(200, json.dumps(HERE).encode()),
    ]
    assert run(("restore", "URL"), HERE["url"])[0] == 0
    last = server.requests[-1]
    assert (last.method, last.path) == ("POST", "/api/v1/experiments/abc/restore")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "ada@LOCALHOST"])
def test_names_of_this_machine_are_one_server(run, server, host):
    server.replies = [Reply(204, b"")]
    url = f"http://{host}:{server.url.rpartition(':')[2]}/experiment/abc/"
    assert run(("delete", "URL", "--yes"), url)[0] == 0
    assert [request.method for request in server.requests] == ["DELETE"]
