"""Every command against a hostile server: an exit code and one line, never a traceback."""

from __future__ import annotations

import io
import json
import random
import re
from contextlib import suppress

import pytest

from support import event_files
from support.hostile_server import hostile_server, spoilt_bytes, spoilt_json
from tbupload import Experiment
from tbupload.cli import main
from tbupload.errors import ServerError

SAMPLES, SAMPLES_OF_FILES = 6, 2
"""Spoilt answers of each route that are tried, of a hundred or more; fewer by commands that read or
write files.
"""

SHORT = ("--retry-timeout", "0.05")
COMMANDS = {
    "list": ("list",),
    "list json": ("list", "--json"),
    "show": ("show", "abc"),
    "update": ("update-metadata", "abc", "--name", "x"),
    "delete": ("delete", "abc", "--yes"),
    "share": ("share", "abc"),
    "links": ("share", "list", "abc"),
    "rename link": ("share", "rename", "abc", "l1", "x"),
    "tokens": ("share", "abc", "--list"),
    "revoke": ("share", "abc", "--revoke", "t1"),
    "login": ("login",),
    "tail": ("tail", "abc", *SHORT),
    "tail json": ("tail", "abc", "--json", *SHORT),
    "verify": ("verify", "--logdir", "LOGDIR", "--experiment", "abc", *SHORT),
    "export events": (
        "export",
        "--experiment",
        "abc",
        "--format",
        "events",
        "--output",
        "OUTPUT",
        *SHORT,
    ),
    "export csv": (
        "export",
        "--experiment",
        "abc",
        "--format",
        "csv",
        "--output",
        "OUTPUT",
        *SHORT,
    ),
    "export hparams": ("export", "--experiment", "abc", "--hparams", "TABLE", *SHORT),
    "export hparams json": (
        "export",
        "--experiment",
        "abc",
        "--hparams",
        "TABLE",
        "--json",
        *SHORT,
    ),
    "export all": ("export", "--all", "--output", "OUTPUT", *SHORT),
    "upload": ("--logdir", "LOGDIR", "--one-shot", "--new", *SHORT),
    "resume": ("--logdir", "LOGDIR", "--one-shot", "--experiment", "abc", *SHORT),
}
EXPECTED = {
    "tail": 1,
    "tail json": 1,
    "verify": 1,
}  # it ends with the experiment, and nothing is as in the files
EXPECTED |= dict.fromkeys(("export events", "export csv", "export all"), 1)  # a point is lost

CALLS = {
    "runs": lambda experiment: experiment.runs,
    "tags": lambda experiment: experiment.tags,
    "scalars": lambda experiment: experiment.scalars(),
    "tensors": lambda experiment: experiment.tensors(),
    "blobs": lambda experiment: experiment.blobs(),
    "hparams": lambda experiment: experiment.hparams(),
    "series": lambda experiment: experiment.series(),
    "properties": lambda experiment: experiment.properties,
}


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("logdir")
    images = [event_files.image_event("i", 1, [bytes(size)]) for size in (300_000, 5 << 20)]
    events = [event_files.version_event(1.0), event_files.scalar_event("loss", 1, 0.5), images[0]]
    event_files.write_records(path / "events.out.tfevents.1", events)
    event_files.write_records(path / "large" / "events.out.tfevents.1", images[1:])
    return path


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")
    monkeypatch.setattr("tbupload.http.retry.FIRST_RETRY_DELAY_SECONDS", 0.001)
    monkeypatch.setattr("tbupload.http.retry.RETRY_DELAY_SECONDS_MAX", 0.002)
    monkeypatch.setattr("tbupload.commands.connect.SHORT_RETRY_TIMEOUT_SECONDS", 0.05)
    with hostile_server() as server:
        monkeypatch.setenv("TBHUB_SERVER", server.url)
        yield server


def spoilt_answers(server, calls, samples=SAMPLES):
    """Yield (method, path) and a spoilt body for answers to what `calls` requests."""
    server.requests.clear()
    calls()
    seed = random.Random(7)  # noqa: S311 - for variety
    for target in dict.fromkeys(
        (request.method, request.path.partition("?")[0]) for request in server.requests
    ):
        request = next(
            each for each in server.requests if (each.method, each.path.partition("?")[0]) == target
        )
        body = server._route(request).body
        bodies = list(spoilt_bytes(body))
        try:
            bodies += spoilt_json(json.loads(body))
        except ValueError:
            bodies += [event for line in body.split(b"\n") for event in spoilt_lines(body, line)]
        for spoilt in seed.sample(bodies, min(samples, len(bodies))):
            yield target, spoilt


def spoilt_lines(body, line):
    if line.startswith(b"data: "):
        for spoilt in spoilt_json(json.loads(line.removeprefix(b"data: "))):
            yield body.replace(line, b"data: " + spoilt)


@pytest.mark.parametrize("name", COMMANDS)
def test_hostile_answers_end_command_with_one_line(
    server, logdir, tmp_path, monkeypatch, capsys, name
):
    numbers = iter(range(10**9))

    def run():
        monkeypatch.setattr("sys.stdin", io.StringIO("tbh_secret\n"))
        output = str(tmp_path / f"output-{next(numbers)}")
        places = {"LOGDIR": str(logdir), "OUTPUT": output, "TABLE": f"{output}.csv"}
        code = main([places.get(word, word) for word in COMMANDS[name]])
        return code, *capsys.readouterr()

    code, out, err = run()
    assert code == EXPECTED.get(name, 0), err
    samples = SAMPLES_OF_FILES if {"LOGDIR", "OUTPUT"} & {*COMMANDS[name]} else SAMPLES
    for target, body in list(spoilt_answers(server, run, samples)):
        server.aim(target, body)
        code, out, err = run()
        told = (target, body[:500], err)
        assert code in {0, 1, 75}, told
        assert "Traceback" not in err, told
        assert (
            code == 0
            or name.startswith("verify")
            or re.match("tbupload: |abc: |exported ", err.splitlines()[-1])
        ), told
        assert (out + err).replace("\n", "").isprintable(), told
        for line in out.splitlines() if "--json" in COMMANDS[name] else ():
            json.loads(line)
        server.aim(None)


@pytest.mark.parametrize("name", CALLS)
def test_hostile_answers_are_server_errors_in_python(server, name):
    def call():
        return CALLS[name](Experiment(f"{server.url}/experiment/abc/", token="tbh_x"))

    call()
    for target, body in list(spoilt_answers(server, call)):
        server.aim(target, body)
        with suppress(ServerError):
            call()
        server.aim(None)
