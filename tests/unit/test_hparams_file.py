"""The file of `--hparams`: what it may contain, and what is said of one that is wrong."""

from __future__ import annotations

import sys

import pytest

from tbupload.cli import main
from tbupload.errors import UsageError
from tbupload.upload.hparams_file import read_hparams_file


def read(tmp_path, content, name="hparams.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_hparams_file(path)


def problem(tmp_path, content, name="hparams.json"):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, content, name)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: ")
    return message.removeprefix(f"{tmp_path / name}: ")


def test_hparams_file_with_values_is_for_all_runs(tmp_path):
    file = read(tmp_path, '\ufeff{"lr": 1e-3, "n": 3, "o": "adam", "amp": true, "x": null}')
    values = {"lr": 0.001, "n": 3, "o": "adam", "amp": True, "x": None}
    assert (file.for_all, file.by_run, file.find("any")) == (values, {}, values)


def test_hparams_file_with_objects_is_by_run(tmp_path):
    file = read(tmp_path, '{".": {"lr": 1}, "a/b": {}}')
    assert (file.for_all, file.by_run) == (None, {".": {"lr": 1}, "a/b": {}})
    assert (file.find("a/b"), file.find("a")) == ({}, None)


def test_hparams_file_numbers_beyond_json(tmp_path):
    file = read(tmp_path, '{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999}')
    assert file.for_all == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": "Infinity"}


def test_hparams_file_in_yaml(tmp_path):
    content = "lr: 1e-4\nb: 1.5\nn: 3\nq: '1e-4'\non: no\nnone:\ni: -.inf\nv: 1.2.3\nd: 2E+3\n"
    file = read(tmp_path, content.replace("on:", '"on":'), "h.yaml")
    values = {"lr": 1e-4, "b": 1.5, "n": 3, "q": "1e-4", "on": False, "none": None}
    assert file.for_all == values | {"i": "-Infinity", "v": "1.2.3", "d": 2000.0}
    file = read(tmp_path, "base: &b {lr: 1}\nb/1: {<<: *b, n: 2}\n", "h.yml")
    assert file.by_run == {"base": {"lr": 1}, "b/1": {"lr": 1, "n": 2}}


WRONG = [
    ("h.json", '{"lr": 1,\n "b": }', "line 2, column 7: "),
    ("h.json", "", "line 1, column 1: "),
    ("h.json", "[1]", "must be an object"),
    ("h.json", "{}", "must be an object"),
    ("h.json", '{"lr": [1]}', "'lr' is a list: must be a number, a string"),
    ("h.json", '{"a": {"lr": {"x": 1}}}', "'a': 'lr' is a dict: must be a number"),
    ("h.json", '{"a": {"lr": 1}, "b": 2}', "'b' has a value, 'a' an object"),
    ("h.json", '{"lr": 1, "lr": 2}', "'lr' occurs twice"),
    ("h.json", '{"\\ud800": 1}', "the name '\\ud800' has half of a character"),
    ("h.json", '{"a": "\\ud800"}', "'a' has half of a character"),
    ("h.json", '{"a": 1%s}' % ("0" * 400), "'a' is too large"),
    ("h.json", '{"a": 1%s}' % ("0" * 9_000), ""),
    ("h.json", b'{"a": "\xff"}', "byte 7 is not UTF-8"),
    ("h.json", "[" * 100_000, "lists or objects are nested too deeply"),
    ("h.yaml", "a: 1\nb: [", "line 2, column 5: "),
    ("h.yaml", "a: 1\nb: 2\na: 3", "line 3, column 1: 'a' occurs twice"),
    ("h.yaml", "a: !!python/object:os.system {}", "line 1, column 4: "),
    ("h.yaml", "a: 2020-01-01", "'a' is a date"),
    ("h.yaml", "a: 2020-99-99", ""),
    ("h.yaml", "1: a", "the name 1 is not a string: put it in quotes"),
    ("h.yaml", "{[1]: a}", ""),
    ("h.yaml", "\x01", ""),
]


@pytest.mark.parametrize(("name", "content", "message"), WRONG, ids=lambda value: str(value)[:30])
def test_hparams_file_problem_is_named(tmp_path, name, content, message):
    assert problem(tmp_path, content, name).startswith(message)


def test_hparams_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_hparams_file(tmp_path / "none.json")
    with pytest.raises(UsageError, match="Is a directory"):
        read_hparams_file(tmp_path)


def test_hparams_file_in_yaml_needs_pyyaml(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)  # as if it were not installed
    assert "pip install pyyaml" in problem(tmp_path, "a: 1", "h.yaml")
    assert read(tmp_path, '{"a": 1}').for_all == {"a": 1}


def test_hparams_file_is_checked_before_all_else(tmp_path, capsys):
    (tmp_path / "h.json").write_text('{"lr": [1]}')
    arguments = ["--logdir", str(tmp_path / "none"), "--hparams", str(tmp_path / "h.json")]
    assert main(arguments) == 2
    assert "'lr' is a list" in capsys.readouterr().err
