"""Records of an experiment's origin, of which secrets of the command are no part."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys

from tbupload.recording import origin, script
from tbupload.recording.origin import Training
from tbupload.recording.script import Script


def test_origin_has_git_commit_and_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not any(name.startswith("git") for name in origin.find_origin(tmp_path))

    def git(*arguments):
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - the git on the path

    git("init", "-b", "trunk")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    training = Training(Script(("train.py", "--token", "x", "a b"), (), "", 0.0))
    recorded = origin.find_origin(tmp_path, training)
    assert len(recorded["git_commit"]) == 40
    assert (recorded["git_branch"], recorded["command"]) == (
        "trunk",
        "train.py --token '***' '***'",
    )
    assert "git_changes" not in recorded
    assert recorded["host"]
    (tmp_path / "file").write_text("2")
    assert origin.find_origin(tmp_path)["git_changes"] == "uncommitted changes"
    # A log directory is often in no repository: then that of the script counts, or of the process.
    (outside := tmp_path.with_name("outside")).mkdir()
    by_script = Training(Script(("x",), (), str(tmp_path), 0.0))
    for training in (Training(), by_script):
        assert origin.find_origin(outside, training)["git_commit"] == recorded["git_commit"]
    monkeypatch.chdir(outside)
    assert origin.find_origin(outside, by_script)["git_commit"] == recorded["git_commit"]
    assert "git_commit" not in origin.find_origin(outside)


def test_git_of_hostile_directory_runs_no_program(tmp_path):
    subprocess.run(["git", "init"], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - the git on the path
    config = tmp_path / ".git" / "config"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o700)
    config.write_text(f"{config.read_text()}\n[core]\n\tfsmonitor = {program}\n")
    origin.find_origin(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_command_of_script_is_recorded(tmp_path, monkeypatch):
    described = {
        "argv": ["/home/a/train.py", "--lr=1", "--token=x"],
        "path": ["/a"],
        "directory": "/home/a",
        "started_at": 1.5,
    }
    monkeypatch.setenv(script.SCRIPT_VARIABLE, json.dumps(described))
    known = script.read_script(os.environ)
    recorded = origin.find_origin(tmp_path, Training(known))
    assert recorded["command"] == "train.py --lr=1 '--token=***'"
    assert recorded["python"].startswith(platform.python_implementation())
    assert (known.path, known.started_at) == (("/a",), 1.5)
    for wrong in ("", "nonsense", "{}", "[]", "[1]", json.dumps({**described, "path": 1})):
        assert script.read_script({script.SCRIPT_VARIABLE: wrong}) is None
    own = origin.find_origin(tmp_path)
    assert "python" not in own
    assert own["platform"] == platform.platform()
    assert own["cpus"][0].isdecimal()


def test_description_of_script_fits_an_environment_variable(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", *["x" * 1_000] * 200])
    known = script.read_script({script.SCRIPT_VARIABLE: script.describe_script()})
    assert (known.argv, known.path[-1]) == ((), sys.path[-1])
    monkeypatch.setattr(sys, "path", ["y" * 1_000] * 200)
    assert len(script.describe_script()) < script.DESCRIPTION_BYTES_MAX


def test_command_of_watched_process_is_recorded(tmp_path):
    code = "import time; print(flush=True); time.sleep(60)"
    arguments = [sys.executable, "-c", code, "--token", "hunter2x"]
    with subprocess.Popen(arguments, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()  # by now it is no fork of this one any more
            recorded = origin.find_origin(tmp_path, Training(process_id=process.pid))
        finally:
            process.kill()
    assert recorded["command"] == shlex.join([sys.executable, "-c", "***", "--token", "***"])
    assert recorded["directory"] == str(tmp_path)


def test_values_are_texts_within_the_limit(tmp_path):
    arguments = ("x.py", *["--name"] * 400, "\udcff\0")
    known = origin.find_origin(tmp_path, Training(Script(arguments, (), "", 0.0)))
    assert len(known["command"]) == origin.VALUE_CHARS_MAX
    assert all(value.encode() and "\0" not in value for value in known.values())
