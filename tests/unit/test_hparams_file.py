"""The file of `--hparams`: what it may contain, and what is said of one that is wrong."""

from __future__ import annotations

import sys

import pytest

from tbupload.cli import main
from tbupload.errors import UsageError
from tbupload.upload.plugins.hparams_file import read_hparams_file


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


def test_hparams_file_integers_are_exact(tmp_path):
    """The server's numbers are 64-bit floats; all that they can have are accepted."""
    content = f'{{"a": {2**53}, "b": {2**64}, "c": -{2**60 + 2**10}, "d": 1{"0" * 22}, "e": -0}}'
    values = {"a": 2**53, "b": 2**64, "c": -(2**60) - 2**10, "d": 10**22, "e": 0}
    assert read(tmp_path, content).for_all == values
    assert all(float(value) == value for value in values.values())
    assert read(tmp_path, '{"seed": "9007199254740993"}').for_all == {"seed": "9007199254740993"}


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
    ("h.json", "", "is empty"),
    ("h.json", " \n", "is empty"),
    ("h.json", "\0", "line 1, column 1: "),
    ("h.json", "null", "must be an object"),
    ("h.json", '{"a": 1}{"b": 2}', "line 1, column 9: Extra data"),
    ("h.json", "[1]", "must be an object"),
    ("h.json", "{}", "must be an object"),
    ("h.json", '{"lr": [1]}', "'lr' is a list: must be a number, a string"),
    ("h.json", '{"a": {"lr": {"x": 1}}}', "'a': 'lr' is an object: must be a number"),
    ("h.json", '{"a": {"lr": 1}, "b": 2}', "'b' has a value, 'a' an object"),
    ("h.json", '{"lr": 1, "lr": 2}', "'lr' occurs twice"),
    ("h.json", '{"\\ud800": 1}', "the name '\\ud800' has half of a character"),
    ("h.json", '{"a": "\\ud800"}', "'a' has half of a character"),
    ("h.json", '{"a": 1%s}' % ("0" * 400), "'a' is too large"),
    ("h.json", '{"a": 1%s}' % ("0" * 9_000), "'a' is too large"),
    ("h.json", '{"a": -1%s}' % ("0" * 9_000), "'a' is too large"),
    ("h.json", '{"a": 9007199254740993}', "'a' is an integer with more digits"),
    ("h.json", '{"r": {"a": -18446744073709551615}}', "'r': 'a' is an integer with more digits"),
    ("h.yaml", "a: 9007199254740993", "'a' is an integer with more digits"),
    (
        *("h.yaml", "b: 1\na: 1%s" % ("0" * 9_000)),
        # Some Pythons 3.9 and 3.10 have no limit of digits.
        "line 2, column 4: Exceeds the limit"
        if hasattr(sys, "get_int_max_str_digits")
        else "'a' is too large",
    ),
    ("h.json", b'{"a": "\xff"}', "byte 7 is not UTF-8"),
    ("h.json", "[" * 100_000, "lists or objects are nested too deeply"),
    ("h.yaml", "a: 1\nb: [", "line 2, column 5: "),
    ("h.yaml", "a: 1\nb: 2\na: 3", "line 3, column 1: 'a' occurs twice"),
    ("h.yaml", "a: !!python/object:os.system {}", "line 1, column 4: "),
    ("h.yaml", "a: 2020-01-01", "'a' is a date (put it in quotes for a string): must be"),
    ("h.yaml", "a: 2020-01-01 10:00:00", "'a' is a time (put it in quotes for a string): must be"),
    ("h.yaml", "b: 1\na: 2020-99-99", "line 2, column 4: month must be in 1..12"),
    ("h.yaml", "a: !!binary aGVsbG8=", "'a' is binary data"),
    ("h.yaml", "a: &a {b: *a}", "'a': 'b' is an object"),
    ("h.yaml", "# nothing", "must be an object"),
    ("h.yaml", "a: 1\n---\nb: 1", "line 2, column 1: "),
    ("h.yaml", "1: a", "the name 1 is not a string: put it in quotes"),
    ("h.yaml", "{[1]: a}", ""),
    ("h.yaml", "\x01", "unacceptable character #x0001: special characters are not allowed in "),
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
