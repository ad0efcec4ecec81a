"""What an experiment records of its origin, and that secrets of the command are not part of it."""

from __future__ import annotations

import json
import subprocess

from tbupload.recording import origin


def test_origin_has_git_commit_and_changes(tmp_path, monkeypatch):
    monkeypatch.delenv(origin.COMMAND_VARIABLE, raising=False)
    assert not any(name.startswith("git") for name in origin.find_origin(tmp_path))

    def git(*arguments):
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - the git on the path

    git("init", "-b", "trunk")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "first")
    recorded = origin.find_origin(tmp_path, ["train.py", "--token", "x", "a b"])
    assert len(recorded["git_commit"]) == 40
    assert (recorded["git_branch"], recorded["command"]) == (
        "trunk",
        "train.py --token '***' 'a b'",
    )
    assert "git_changes" not in recorded
    assert recorded["host"]
    (tmp_path / "file").write_text("2")
    assert origin.find_origin(tmp_path, ["x"])["git_changes"] == "uncommitted changes"


def test_git_of_hostile_directory_runs_no_program(tmp_path):
    subprocess.run(["git", "init"], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607 - the git on the path
    config = tmp_path / ".git" / "config"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o700)
    config.write_text(f"{config.read_text()}\n[core]\n\tfsmonitor = {program}\n")
    origin.find_origin(tmp_path, ["x"])
    assert not (tmp_path / "ran").exists()


def test_command_of_script_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv(origin.COMMAND_VARIABLE, json.dumps(["/home/a/train.py", "--lr=1"]))
    assert origin.find_origin(tmp_path)["command"] == "train.py --lr=1"
    monkeypatch.delenv(origin.COMMAND_VARIABLE)
    own = origin.find_origin(tmp_path)["command"]
    for wrong in ("", "nonsense", "{}", "[]", "[1]"):
        monkeypatch.setenv(origin.COMMAND_VARIABLE, wrong)
        assert origin.find_origin(tmp_path)["command"] == own


def test_values_are_texts_within_the_limit(tmp_path):
    recorded = origin.find_origin(tmp_path, ["x" * 5_000, "\udcff\0"])
    assert len(recorded["command"]) == origin.VALUE_CHARS_MAX
    assert all(value.encode() and "\0" not in value for value in recorded.values())
