"""The command line: verbs, exit codes, output, and no questions without a terminal."""

import io
import json
import os
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

import tbupload
from support.faulty_server import Reply, faulty_server, refusal
from support.python39 import UTC
from support.subprocesses import run_to_end
from tbupload.cli import _build_parser, main
from tbupload.commands.experiment_address import find_experiment_id
from tbupload.commands.expiry import parse_expiry
from tbupload.commands.tail import _print_point
from tbupload.config import Config, Profile, read_config
from tbupload.errors import UsageError

EXPERIMENT = {
    "experiment_id": "abc",
    "url": "http://tbhub.example/experiment/abc/",
    "name": "a name",
    "description": "",
    "visibility": "private",
    "created_at": "2026-11-01T00:00:00Z",
    "updated_at": "2026-11-01T00:00:00Z",
}
TOKEN = {
    "id": "t1",
    "scopes": ["read"],
    "label": "for the paper",
    "prefix": "tbh_ab",
    "created_at": "2026-11-01T00:00:00Z",
    "expires_at": None,
    "revoked_at": None,
    "last_used_at": None,
}


def reply(content, status=200):
    return Reply(status, json.dumps(content).encode())


@pytest.fixture
def server():
    with faulty_server() as server:
        server.replies = [reply(EXPERIMENT)]
        yield server


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    """No configuration of the user who runs the tests, and no terminal."""
    for name in ("TBHUB_SERVER", "TBHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "tbhub.toml"
    monkeypatch.setenv("TBHUB_CONFIG", str(path))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return path


LINK = {
    **dict.fromkeys(("runs", "tags", "expires_at", "revoked_at", "last_used_at")),
    "id": "l1",
    "label": "for the paper",
    "prefix": "tbh_ab",
    "created_at": "2026-01-01T00:00:00Z",
    "anonymous": False,
    "frozen": False,
}


@pytest.fixture
def run(server, capsys, monkeypatch):
    monkeypatch.setenv("TBHUB_SERVER", server.url)
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")

    def run(*arguments):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


def test_help_names_every_verb_and_exit_codes(run):
    code, out, _ = run("--help")
    assert code == 0
    for word in (
        "upload",
        "list",
        "show",
        "update-metadata",
        "delete",
        "share",
        "login",
        "exit codes",
    ):
        assert word in out


def test_no_arguments_is_usage_error_with_help(run):
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "examples:" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--one-shot",),
        ("--logdir", "x", "--include-tags", "("),
        ("--logdir", "x", "--poll-seconds", "0"),
        ("--logdir", "x", "--visibility", "public"),
        ("--logdir", "x", "--token", "tbh_x"),
        ("--logdir", "x", "--quiet", "--verbose"),
        ("--logdir", "x", "--new", "--experiment", "abc"),
        ("--logdir", "x", "--wait-for-logdir", "--one-shot"),
        ("show",),
        ("frobnicate",),
    ],
)
def test_wrong_usage_ends_with_2(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "tbupload" in err


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("--logdir", ".", "--name"), "a\nb"),
        (("--logdir", ".", "--experiment-name"), "a\rb"),
        (("create", "--name"), "a\u2028b"),
        (("update-metadata", "abc", "--name"), "a\x1b[2J"),
    ],
)
def test_name_of_several_lines_is_refused(run, server, command, name):
    code, _, err = run(*command, name)
    assert (code, "a name is one line" in err) == (2, True)
    assert server.requests == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize("arguments", ["--version", "list"])
def test_closed_stdout_is_a_failure_in_one_line(server, tmp_path, arguments):
    server.replies = [reply({"experiments": [EXPERIMENT], "next": None})]
    command = f"{shlex.quote(sys.executable)} -m tbupload {arguments} --server {server.url} >&-"
    if arguments == "--version":
        command = command.replace(f" --server {server.url}", "")
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        env={**os.environ, "TBHUB_CONFIG": str(tmp_path / "none"), "TBHUB_TOKEN": "tbh_x"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    said = "tbupload: the output cannot be written: Bad file descriptor\n"
    assert (ended.returncode, ended.stderr) == (1, said)


def test_upload_is_default_verb(run, tmp_path):
    missing = str(tmp_path / "missing")
    assert run("--logdir", missing) == run("upload", "--logdir", missing)


def test_logdir_that_is_none_ends_with_2_and_asks_no_server(run, server, tmp_path):
    code, out, err = run("--logdir", str(tmp_path / "missing"))
    assert (code, out) == (2, "")
    assert "no such directory" in err
    (tmp_path / "file").touch()
    assert "is a file" in run("--logdir", str(tmp_path / "file"))[2]
    assert server.requests == []


@pytest.mark.parametrize("spelling", ["--one-shot", "--one_shot", "--dry-run"])
def test_empty_logdir_exits_2_without_experiment(run, server, tmp_path, spelling):
    code, _, err = run("--logdir", str(tmp_path), spelling)
    assert code == 2
    assert "no event files found" in err
    assert "no projector_config.pbtxt" in err
    assert server.requests == []


@pytest.mark.parametrize("spelling", ["--dry-run", "--dry_run"])
def test_dry_run_asks_no_server(run, server, tmp_path, spelling):
    (tmp_path / "tfevents.1").touch()
    code, out, err = run("--logdir", str(tmp_path), spelling, "--json")
    assert code == 0
    assert json.loads(out)["event"] == "done"
    assert "would send no points\n" in err
    assert f"would name a new experiment {tmp_path.name!r} (--name NAME)" in err
    assert server.requests == []


@pytest.mark.parametrize("command", ["upload --logdir x", "tail ID"])
@pytest.mark.parametrize("spelling", ["--retry-timeout", "--give-up-seconds"])
def test_retry_timeout_accepts_both_spellings(command, spelling):
    words = command.split()
    parser = _build_parser(words[0])
    assert parser.parse_args(words).retry_timeout is None
    assert parser.parse_args([*words, spelling, "7.5"]).retry_timeout == 7.5


@pytest.mark.parametrize("command", ["upload", "verify", "export", "tail"])
def test_help_documents_retry_timeout_only(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--retry-timeout SECONDS" in out
    assert "--give-up-seconds" not in out


def test_no_server_is_usage_error(run, monkeypatch):
    monkeypatch.delenv("TBHUB_SERVER")
    code, _, err = run("list")
    assert code == 2
    assert "tbupload login" in err


def test_resumed_upload_takes_no_new_name(run, server, tmp_path):
    code, _, err = run("--logdir", str(tmp_path), "--experiment", "abc", "--name", "x")
    assert code == 2
    assert "update-metadata" in err
    assert server.requests == []


UPLOAD = {
    "upload_id": "0123456789abcdef",
    "status": "failed",
    "status_of": "training",
    "detail": "exit code 3",
    "started_at": "2026-11-22T22:06:00.123456Z",
    "ended_at": None,
    "origin": {"host": "gpu7"},
    "packages": [],
}


def test_show_takes_id_or_url_of_experiment(run, server):
    began = datetime(2026, 11, 22, 22, 6, tzinfo=UTC).astimezone()
    line = (
        f"upload 01234567: training failed (exit code 3), started {began:%Y-%m-%d %H:%M:%S %Z}, on"
    )
    for text in ("abc", f"{server.url}/experiment/abc/?token=tbh_x#scalars"):
        uploads = {"uploads": [UPLOAD], "next": None}
        server.replies = [reply(EXPERIMENT), reply({"runs": []}), reply(uploads)]
        code, out, _ = run("show", text)
        assert code == 0
        assert "name: a name" in out
        assert f"{line} gpu7" in out
    path = "/api/v1/experiments/abc"
    asked = {f"{path}?details=true", f"{path}/attempts", f"{path}/uploads"}
    assert {request.path for request in server.requests} == asked


def test_version_without_installed_wheel_says_so():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import tbupload; print(tbupload.__version__)"
    )
    sources = Path(tbupload.__file__).parents[1]
    isolated = [sys.executable, "-I", "-S", "-c", code, str(sources)]
    done = run_to_end(isolated, check=True)
    assert done.stdout == "0+not.installed\n"


def test_show_needs_no_uploads_of_an_older_server(run, server):
    gone = reply({"detail": "Not Found"}, 404)
    server.replies = [reply(EXPERIMENT), gone, gone]
    code, out, _ = run("show", "abc", "--json")
    assert (code, json.loads(out)["uploads"]) == (0, [])


def test_update_metadata_sends_what_was_given_and_nothing_else(run, server):
    assert run("update-metadata", "abc", "--name", "")[0] == 0
    assert (server.requests[0].method, json.loads(server.requests[0].body)) == (
        "PATCH",
        {"name": ""},
    )
    assert run("update-metadata", "abc")[0] == 2


def test_delete_without_terminal_needs_yes(run, server):
    code, _, err = run("delete", "abc")
    assert code == 2
    assert "--yes" in err
    assert server.requests == []
    server.replies = [Reply(204, b"")]
    assert run("delete", "abc", "--yes")[:2] == (0, "deleted abc\n")
    assert server.requests[0].method == "DELETE"


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_delete_asks_on_terminal(run, server, monkeypatch, answer, code):
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    server.replies = [reply(EXPERIMENT), reply({"links": []}), Reply(204, b"")]
    assert run("delete", "abc")[0] == code
    assert ("DELETE" in {request.method for request in server.requests}) == (code == 0)


def test_share_prints_link(run, server):
    server.replies = [reply({**LINK, "token": "tbh_abcd", "url": "http://x/?token=tbh_abcd"}, 201)]
    code, out, _ = run("share", "abc", "--expires", "30d", "--label", "for the paper")
    assert (code, out) == (0, "http://x/?token=tbh_abcd\n")
    asked = json.loads(server.requests[0].body)
    assert set(asked) == {"label", "expires_at"}
    assert asked["label"] == "for the paper"
    assert 29 <= (datetime.fromisoformat(asked["expires_at"]) - datetime.now(UTC)).days <= 30


def test_share_sends_what_link_shows(run, server):
    server.replies = [
        reply({**LINK, "token": "t", "url": "u"}, 201),
        reply({"runs": [{"run": "train/1", "start_time": None}]}),
    ]
    patterns = ("--runs", "train.*", "--tags", "loss|lr")
    assert run("share", "abc", *patterns, "--anonymous", "--frozen")[0] == 0
    asked = json.loads(server.requests[0].body)
    assert asked == {"runs": "train.*", "tags": "loss|lr", "anonymous": True, "frozen": True}


def test_share_lists_links_with_times_to_the_second(run, server):
    used, ends = datetime(2026, 1, 1, 0, 0, 7, 500, UTC), datetime(2027, 1, 1, 0, 0, 8, 0, UTC)
    times = {"last_used_at": used.isoformat(), "expires_at": ends.isoformat()}
    sliced = {**LINK, "runs": "a.*", "frozen": True, **times}
    server.replies = [reply({"links": [LINK, sliced]})]
    used_text, ends_text = (f"{time.astimezone():%Y-%m-%d %H:%M:%S %Z}" for time in (used, ends))
    assert run("share", "list", "abc")[1].splitlines() == [
        "l1  tbh_ab…  everything  never used  expires never  for the paper",
        f"l1  tbh_ab…  runs a.*, frozen  used {used_text}  expires {ends_text}  for the paper",
    ]


def test_share_renames_and_revokes(run, server):
    server.replies = [reply(LINK)]
    assert run("share", "rename", "abc", "l1", "new name")[0] == 0
    assert json.loads(server.requests[-1].body) == {"label": "new name"}
    server.replies = [Reply(204, b"")]
    assert run("share", "revoke", f"{server.url}/experiment/abc/", "l1")[0] == 0
    asked = [(request.method, request.path) for request in server.requests]
    path = "/api/v1/experiments/abc/links/l1"
    assert asked == [("PATCH", path), ("DELETE", path)]


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("list", "abc", "def"),
        ("rename", "abc", "l1"),
        ("revoke", "abc"),
        ("abc", "def"),
        ("list", "abc", "--frozen"),
        ("revoke", "abc", "l1", "--list"),
        ("abc", "--expires", "soon"),
    ],
)
def test_share_refuses_wrong_usage(run, server, words):
    assert run("share", *words)[0] == 2
    assert server.requests == []


def test_share_lists_and_revokes_links_and_tokens(run, server):
    server.replies = [reply({"links": [LINK]}), reply({"tokens": [TOKEN]})]
    assert run("share", "abc", "--list")[1].splitlines() == [
        "l1  tbh_ab…  everything  never used  expires never  for the paper",
        "t1  read  tbh_ab…  expires never  for the paper",
    ]
    server.replies = [refusal(404), Reply(204, b"")]
    assert run("share", "abc", "--revoke", "t1")[0] == 0
    asked = [(request.method, request.path) for request in server.requests[-2:]]
    base = "/api/v1/experiments/abc"
    assert asked == [("DELETE", f"{base}/links/t1"), ("DELETE", f"{base}/tokens/t1")]


def test_expiry_is_number_and_unit():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert parse_expiry("12h", now) == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert parse_expiry("8w", now) == datetime(2026, 2, 26, tzinfo=UTC)
    for text in ("", "30", "d", "0d", "-1d", "1.5d", "30 d", "1y"):
        with pytest.raises(UsageError, match="30d"):
            parse_expiry(text, now)
    assert parse_expiry("525600m", now) == datetime(2027, 1, 1, tzinfo=UTC)
    for text in ("36501d", "99999999w"):
        with pytest.raises(UsageError, match="at most 36,500 days"):
            parse_expiry(text, now)


def test_what_is_no_experiment_is_refused_before_any_request():
    for text in ("../tokens", "a b", "", "http://tbhub.example/list"):
        with pytest.raises(UsageError):
            find_experiment_id(text)


@pytest.mark.parametrize("wall_time", [0.0, -1e300, 1e300, 1.7e9])
@pytest.mark.parametrize(
    "value", [0.5, "NaN", {"dtype": "string", "shape": [1], "data": ["a\x1b[2J\nb"]}]
)
def test_tail_prints_one_line_point_whatever_was_logged(capsys, wall_time, value):
    _print_point(
        {
            "run": "r\x1b]0;x\x07",
            "tag": "t\n",
            "step": -(2**63),
            "wall_time": wall_time,
            "value": value,
        }
    )
    printed = capsys.readouterr().out
    assert (printed.count("\n"), printed.removesuffix("\n").isprintable()) == (1, True)
    assert "step -9,223,372,036,854,775,808" in printed


def test_login_keeps_token_from_stdin_that_server_accepts(run, server, config, monkeypatch):
    server.replies = [reply({"experiments": [], "next": None})]
    monkeypatch.setattr("sys.stdin", io.StringIO("tbh_new\n"))
    code, out, err = run("login")
    assert (code, out) == (0, "")
    assert "tbh_new" not in err
    assert read_config(config) == Config(Profile(server.url, "tbh_new"))
    assert server.requests[0].headers["Authorization"] == "Bearer tbh_new"


def test_login_keeps_token_that_is_for_one_experiment_only(run, server, config, monkeypatch):
    server.replies = [refusal(403)]
    monkeypatch.setattr("sys.stdin", io.StringIO("tbh_new\n"))
    assert run("login")[0] == 0
    assert read_config(config).default.token == "tbh_new"


def test_login_keeps_nothing_server_refuses(run, server, config, monkeypatch):
    server.replies = [refusal(401)]
    monkeypatch.setattr("sys.stdin", io.StringIO("tbh_wrong\n"))
    code, _, err = run("login")
    assert code == 1
    assert "does not accept the token" in err
    assert not config.exists()


def test_login_without_token_on_stdin_is_usage_error(run, server):
    assert run("login")[0] == 2
    assert server.requests == []
