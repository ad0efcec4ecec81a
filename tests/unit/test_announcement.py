"""The records of uploads are announced once on a machine, and again for other kinds of records."""

from __future__ import annotations

import json

import pytest

from tbupload.recording.announcement import announce


@pytest.fixture
def config(tmp_path, monkeypatch):
    path = tmp_path / "home" / "config.toml"
    monkeypatch.setenv("TBHUB_CONFIG", str(path))
    return path


def said(**kind):
    sentences = []
    announce(sentences.append, **{"is_script": False, "is_training": False, **kind})
    return sentences


def test_records_are_announced_once(config):
    (sentence,) = said()
    assert "records where it comes from (host, user, directory, command" in sentence
    assert "--no-origin" in sentence
    assert said() == []
    assert config.with_name("announced.json").stat().st_mode & 0o777 == 0o600


def test_other_kinds_of_records_are_announced(config):
    assert config.parent
    said()
    (script,) = said(is_script=True, is_training=True)
    assert "packages" in script
    assert "of the training" in script
    assert "no_origin=True" in script
    assert said(is_script=True, is_training=True) == said() == []
    told = json.loads(config.with_name("announced.json").read_text())
    config.with_name("announced.json").write_text(json.dumps(told[1:]))
    assert said(is_script=True, is_training=True)


@pytest.mark.parametrize("content", ["", "{", "[1]", "{}", "[" * 100_000])
def test_records_are_announced_if_file_is_damaged(config, content):
    config.parent.mkdir()
    config.with_name("announced.json").write_text(content)
    assert len(said()) == 1
    assert said() == []


def test_records_are_announced_each_time_without_home(config):
    config.parent.write_text("a file where the directory should be")
    assert len(said()) == len(said()) == 1
