"""The name of an upload that was given none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tbupload.experiment_names import explain_name, name_of_logdir
from tbupload.remote_files import make_path


@pytest.mark.parametrize(
    ("logdir", "name"),
    [
        ("/home/ana/resnet50", "resnet50"),
        ("/home/ana/project/runs", "project/runs"),
        ("/home/ana/project/runs/", "project/runs"),
        ("/home/ana/project/logs", "project/logs"),
        ("/home/ana/project/x/../logs", "project/logs"),
        ("/home/ana/project/tb_logs", "project/tb_logs"),
        ("/home/ana/project/runs/lr=0.1", "lr=0.1"),
        ("/p/lightning_logs/version_3", "p/lightning_logs/version_3"),
        ("/p/logs/fit/20260101-120000", "p/logs/fit/20260101-120000"),
        ("/p/runs/Nov26_11-03-27_host", "p/runs/Nov26_11-03-27_host"),
        ("/a/b/logs/logs/logs/logs", "logs/logs/logs/logs"),
        ("/runs", "runs"),
        ("/", ""),
        ("s3://bucket/path/runs", "path/runs"),
        ("s3://bucket/runs", "bucket/runs"),
        ("gs://bucket/a-name/", "a-name"),
    ],
)
def test_name_is_that_of_logdir(logdir, name):
    assert name_of_logdir(make_path(logdir), is_private=False) == name


def test_name_of_here_is_that_of_working_directory(tmp_path, monkeypatch):
    (tmp_path / "project" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    assert name_of_logdir(Path(), is_private=False) == "project"
    assert name_of_logdir(Path("runs"), is_private=False) == "project/runs"
    monkeypatch.chdir("runs")
    assert name_of_logdir(Path(), is_private=False) == "project/runs"


@pytest.mark.parametrize(
    ("logdir", "name"), [("/home/ana/project/runs", "runs"), ("s3://secret/runs", "runs")]
)
def test_name_without_origin_is_last_part(logdir, name):
    assert name_of_logdir(make_path(logdir), is_private=True) == name


@pytest.mark.parametrize("last", [b"a\nb\x1b[2J", b"caf\xe9", "é🙂".encode(), b"x" * 250])
def test_name_is_one_that_server_takes(last):
    name = name_of_logdir(Path("/p", os.fsdecode(last)), is_private=False)
    assert explain_name(name) is None
    assert 0 < len(name) <= 200
    assert name.encode()
