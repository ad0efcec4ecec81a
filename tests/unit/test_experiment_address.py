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


def listing(*experiments):
    content = {"experiments": [{**HERE, **each} for each in experiments], "next": None}
    return Reply(200, json.dumps(content).encode())


A, B = "6uPYq6nY3hgROpRp3WliCs", "6uPYzzzzzzzzzzzzzzzzzz"


def test_beginning_of_id_is_completed(run, server):
    server.replies = [
        listing({"experiment_id": A}, {"experiment_id": B}),
        Reply(200, json.dumps({**HERE, "experiment_id": A}).encode()),
        Reply(204, b""),
    ]
    code, err = run(("delete", "URL", "--yes"), "6uPYq")
    assert (code, f"6uPYq is experiment {A} (x)" in err) == (0, True)
    assert server.requests[-1].path == f"/api/v1/experiments/{A}"
    assert server.requests[-1].method == "DELETE"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_beginning_of_several_ids_is_refused(run, server, command):
    deleted = {"deleted_at": "2026-01-01T00:00:00Z"}
    server.replies = [
        listing({"experiment_id": A, "name": "one", **deleted}, {"experiment_id": B, **deleted})
    ]
    code, err = run(command, "6uPY")
    assert (code, f"several IDs begin with '6uPY': {A} (one), {B} (x)" in err) == (2, True)
    assert [request.method for request in server.requests] == ["GET"]
    is_restoring = command[0] == "restore"
    assert ("/deleted" in server.requests[0].path) == is_restoring


@pytest.mark.parametrize("text", ["6uP", "nope", A])
def test_text_that_no_id_begins_with_is_sent_as_it_is(run, server, text):
    asked = [listing(), refusal(422, "invalid")] if text == "nope" else []
    missing = refusal(404, "not_found", detail="there is no such experiment, or it is not yours")
    server.replies = [*asked, missing]
    code, err = run(("show", "URL"), text)
    assert (code, f"there is no experiment {text}, or it is not yours (HTTP 404)" in err) == (
        1,
        True,
    )
    assert server.requests[len(asked)].path.startswith(f"/api/v1/experiments/{text}")


def test_token_that_may_not_list_needs_complete_ids(run, server):
    server.replies = [refusal(403, "forbidden"), refusal(404, "not_found")]
    assert run(("show", "URL"), "6uPYq")[0] == 1
    assert server.requests[1].path.startswith("/api/v1/experiments/6uPYq")
