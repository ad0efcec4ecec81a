"""The commands of the page about failing uploads say what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess

import pytest

from support import event_files, zygote
from support.programs import find_program
from support.source_code import ROOT
from support.subprocesses import run_to_end

PAGE = (ROOT / "docs" / "debugging.md").read_text()
SHOWN = re.findall(r"```sh\n([^\n]+)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
SERVER = "http://127.0.0.1:6060"
STEPS = 200
CUT_STEPS = 70


def event_file(runs, run):
    return runs / run / f"events.out.tfevents.1700000000.{run}"


def write(path, steps, wall_time):
    events = [event_files.scalar_event("loss", step, 1.0, wall_time + step) for step in steps]
    event_files.write_records(path, [event_files.version_event(wall_time), *events])


@pytest.fixture
def directory(tmp_path):
    """A directory with the log directories of the page."""
    for run in ("a", "b"):
        write(event_file(tmp_path / "runs", run), range(STEPS), event_files.WALL_TIME)
    for name in ("damaged", "broken", "cut", "restarted"):
        shutil.copytree(tmp_path / "runs", tmp_path / name)
    (tmp_path / "empty").mkdir()
    event_files.spoil_payload(event_file(tmp_path / "damaged", "a"), CUT_STEPS)
    event_files.spoil_length_checksum(event_file(tmp_path / "broken", "a"), CUT_STEPS)
    cut = event_file(tmp_path / "cut", "a")
    event_files.cut(cut, event_files.record_offsets(cut)[CUT_STEPS + 1] + 22)
    later = event_files.WALL_TIME + 10 * STEPS
    write(event_file(tmp_path / "restarted", "a").with_suffix(".2"), range(STEPS // 2), later)
    return tmp_path


@pytest.fixture
def environment(uploader, reader, directory):
    """Variables of the page: a server, its token, an experiment, and a token that only reads it."""
    ended = uploader.run("--logdir", directory / "runs", "--one-shot")
    assert ended.code == 0, ended.err
    route = f"/api/v1/experiments/{ended.experiment_id}/tokens"
    answer = reader.http.post(route, json={"scopes": ["read"], "label": "of a link"})
    proxies = {"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"}
    kept = {name: text for name, text in os.environ.items() if name not in proxies}
    ours = {name: text for name, text in uploader.environment().items() if "TBHUB_" in name}
    return {**kept, **ours, "ID": ended.experiment_id, "READ_TOKEN": answer.json()["token"]}


def run(command, environment, directory):
    """Return all that a command prints; it may begin with variables."""
    expanded = re.sub(r"\$(\w+)", lambda name: environment[name[1]], command)
    words = shlex.split(expanded.replace(SERVER.partition(":")[2], environment["ADDRESS"]))
    while re.match(r"\w+=", words[0]):
        name, _, text = words.pop(0).partition("=")
        environment = {**environment, name: text}
    if words[0] == "tbupload":
        ended = zygote.run(words[1:], environment, program="tbupload", directory=directory)
    else:
        ended = run_to_end(
            [find_program(words[0]), *words[1:]],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    return (ended.stdout + ended.stderr).splitlines()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(
            *each,
            id=each[0],
            marks=[pytest.mark.plain("a cluster also tells of its nodes")]
            if "readyz" in each[0]
            else [],
        )
        for each in SHOWN
    ],
)
def test_shown_command_prints_shown_lines(command, shown, environment, directory):
    address = environment["TBHUB_SERVER"].partition(":")[2]
    printed = run(command, {**environment, "ADDRESS": address}, directory)
    for line in shown.replace(SERVER.partition(":")[2], address).splitlines():
        pattern = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(pattern, each) for each in printed), (line, printed)


def test_page_shows_outputs_of_most_commands():
    assert len(SHOWN) > 12
