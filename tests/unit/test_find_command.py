"""Which command the arguments mean: names that are near, options before it, a bare directory."""

from __future__ import annotations

import pytest

from tbupload.cli import _COMMANDS, main
from tbupload.commands.find_command import explain_unrecognized, order_arguments
from tbupload.errors import UsageError

NAMES = list(_COMMANDS)


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """A working directory with the directories `runs` and `list`, and a file."""
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("TBHUB_SERVER", raising=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "list").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("list", "list"),
        ("--json list", "list --json"),
        ("--server URL list --limit 3", "list --server URL --limit 3"),
        (
            "--server=URL -q --cacert F --profile P show ID",
            "show --server=URL -q --cacert F --profile P ID",
        ),
        ("--json share list ID", "share --json list ID"),
        ("--logdir runs", "upload --logdir runs"),
        ("--server URL --logdir runs", "upload --server URL --logdir runs"),
        ("--profile list --logdir runs", "upload --profile list --logdir runs"),
        ("runs", "upload runs"),
        ("runs --one-shot", "upload runs --one-shot"),
        ("--json runs", "upload --json runs"),
        ("runs --where a<1", "runs --where a<1"),
        ("--json runs --limit=3", "runs --json --limit=3"),
        ("runs --help", "runs --help"),
        ("run", "upload run"),
        ("run --one-shot", "upload run --one-shot"),
        ("run --logdir a -- train --lr 1", "run --logdir a -- train --lr 1"),
        ("-q run -- train", "run -q -- train"),
        ("run --console", "run --console"),
        ("run --help", "run --help"),
        ("./list", "upload ./list"),
        ("file", "upload file"),
        ("no/such", "upload no/such"),
        ("s3://bucket/runs", "upload s3://bucket/runs"),
        ("help", "--help"),
        ("help list", "list --help"),
        ("help lits", "--help"),
        ("--help", "--help"),
        ("--version list", "--version list"),
        ("--json", "upload --json"),
        ("--server", "upload --server"),
        ("", ""),
    ],
)
def test_command_is_found_among_options(given, ordered):
    assert order_arguments(given.split(), NAMES) == ordered.split()


def test_upload_of_directory_with_name_of_command_is_said(capsys):
    order_arguments(["runs"], NAMES)
    assert capsys.readouterr().err.startswith("uploading the directory runs/ (the table of runs")
    for words in ("runs --limit 3", "--logdir runs", "-q runs"):
        order_arguments(words.split(), NAMES)
    assert capsys.readouterr().err == ""


def test_runs_is_the_command_where_there_is_no_such_directory(directory):
    (directory / "runs").rmdir()
    assert order_arguments(["runs"], NAMES) == ["runs"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("search", "`tbupload list --query WORDS`"),
        ("lits", "`tbupload list`"),
        ("ls", "`tbupload list`"),
        ("LIST", "`tbupload list`"),
        ("rm", "`tbupload delete`"),
        ("delte", "`tbupload delete`"),
        ("dowload", "`tbupload --help`"),
        ("download", "`tbupload export`"),
        ("xyzzy", "`tbupload --help`"),
        ("x" * 10_001, "`tbupload --help`"),
        ("a\0b", "`tbupload --help`"),
        ("a b", "`tbupload --help`"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json", "--server", "http://127.0.0.1:9")])
def test_unknown_word_is_usage_error_with_advice(word, meant, options, capsys):
    assert main([*options, word, "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert meant in err
    assert "neither a command nor a directory" in err
    assert len(err) < 400


def test_unknown_word_reaches_no_terminal_raw(capsys):
    assert main(["ls\x1b]0;title\x07"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_every_synonym_leads_to_command():
    from tbupload.commands.find_command import _SYNONYMS  # noqa: PLC0415 - a table, not part of the module's use

    assert {meant.split()[0] for meant in _SYNONYMS.values()} <= set(NAMES)
    assert not _SYNONYMS.keys() & set(NAMES)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("list", "--limt", "3"), "did you mean --limit?"),
        (("--logdri", "x"), "did you mean --logdir?"),
        (("--limit", "3", "list"), "the command comes first: tbupload list"),
        (("show", "a", "b"), "unrecognized arguments: b"),
        (("--logdir", "runs", "runs"), "not allowed with argument --logdir"),
        (("--logdir", ""), "it is empty"),
        (("",), "it is empty"),
        (("upload",), "--logdir DIR"),
        (("verify", "--logdir", "runs"), "--experiment"),
        (("list", "\x1b[2J"), "\\x1b[2J"),
    ],
)
def test_wrong_arguments_get_two_lines_of_advice(arguments, advice, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert advice in err
    assert "\x1b" not in err
    assert len(err.splitlines()) == 2


def test_unrecognized_arguments_are_shortened():
    assert len(explain_unrecognized(["x" * 10_000], ["--json"], ["list"], NAMES)) < 150


def test_name_of_command_wins_over_directory():
    assert order_arguments(["list"], NAMES) == ["list"]
    with pytest.raises(UsageError):
        order_arguments(["nothing"], NAMES)
