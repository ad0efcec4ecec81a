"""`tbupload list`, `show` and `open`: columns, limits, texts, and no raw control characters."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from support.faulty_server import Reply, faulty_server, refusal
from tbupload.cli import main
from tbupload.commands.experiment_text import list_cells, make_layout
from tbupload.console.columns import cut, display_width

ID = "6uPYq6nY3hgROpRp3WliCs"
DETAILS = {"author": "Ann", "runs": 2, "series": 3, "is_exact": True}
EXPERIMENT = {
    "experiment_id": ID,
    "url": "http://tbhub.example/experiment/abc/",
    "name": "a name",
    "description": "one\ntwo\x1b]0;title\x07",
    "visibility": "private",
    "created_at": "2026-11-01T00:00:00Z",
    "updated_at": "2026-11-01T00:00:00.5Z",
    "data_at": None,
    "status": "killed",
    "tags": ["a", "b"],
    "points": 123456,
    "bytes": 5 << 20,
    "details": DETAILS,
    "properties": {"lr": "0.1\x1b[2J"},
}


def reply(content):
    return Reply(200, json.dumps(content).encode())


def page(*names, after=None):
    return reply({"experiments": [{**EXPERIMENT, "name": name} for name in names], "next": after})


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    with faulty_server() as server:
        monkeypatch.setenv("TBHUB_SERVER", server.url)
        yield server
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def run(server, capsys):
    assert server.url

    def run(*arguments):
        return main(arguments), *capsys.readouterr()

    return run


def test_list_has_header_and_counts(run, server):
    server.replies = [page("a name")]
    code, out, err = run("list")
    assert (code, err) == (0, "")
    header, line = out.splitlines()
    assert header.split() == [
        *("ID", "CREATED", "(UTC)", "STATUS", "RUNS", "SERIES", "POINTS", "SIZE", "AUTHOR", "NAME")
    ]
    values = ("2026-11-01", "00:00", "killed", "2", "3", "123.5k", "5.0", "MiB", "Ann", "a", "name")
    assert line.split() == [EXPERIMENT["experiment_id"], *values]
    assert header.index("NAME") == line.index("a name")
    assert server.requests[0].path == "/api/v1/experiments?details=true&limit=101"


def test_list_ends_at_limit_and_says_that_there_are_more(run, server):
    server.replies = [page("1", "2", "3")]
    code, out, err = run("list", "--limit", "2")
    assert (code, len(out.splitlines())) == (0, 3)
    assert err == "2 shown, and there are more; --limit 0 shows all\n"
    assert "limit=3" in server.requests[0].path
    server.replies = [page("1", "2")]
    assert run("list", "--limit", "2")[2] == ""


def test_list_of_everything_pages(run, server):
    server.replies = [page("1", "2", after="x"), page("3")]
    code, out, err = run("list", "--limit", "0", "--query", "b c")
    assert (code, len(out.splitlines()), err) == (0, 4, "")
    assert server.requests[0].path == "/api/v1/experiments?q=b+c&details=true&limit=100"
    assert server.requests[1].path.endswith("after=x")


def test_list_as_json_has_one_object_per_line(run, server):
    server.replies = [page("1", "2")]
    code, out, err = run("list", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["1", "2"]


def test_list_of_nothing_says_so(run, server):
    server.replies = [page()]
    assert run("list") == (0, "", "there are no experiments yet\n")
    assert run("list", "--query", "x")[2] == "there are no experiments like that\n"
    assert run("list", "--json") == (0, "", "")


def test_list_selects_and_sorts(run, server):
    statuses = ("running", "failed", "silent", "running")
    listed = [{**EXPERIMENT, "name": f"n{i}", "status": each} for i, each in enumerate(statuses)]
    listing = reply({"experiments": listed, "next": None})
    server.replies = [refusal(422, "invalid"), listing]  # an older server
    options = ("--tag", "a", "--tag", "b", "--sort", "size", "--reverse")
    code, out, err = run("list", *options, "--status", "silent", "--status", "running")
    assert (code, err) == (0, "")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["n0", "n2", "n3"]
    selected = "/api/v1/experiments?tag=a&tag=b&sort=size&reverse=true"
    assert [request.path for request in server.requests] == [
        f"{selected}&status=silent&status=running&details=true&limit=101",
        f"{selected}&details=true&limit=100",
    ]
    server.replies = [listing]
    code, out, err = run("list", "--status", "running", "--limit", "1")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["n0"]
    assert "1 shown, and there are more" in err
    assert run("list", "--status", "killed")[2] == "there are no experiments like that\n"


def test_list_names_keys_that_it_can_sort_by(run, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("list", "--sort", "siz")
    err = capsys.readouterr().err
    assert "invalid choice: 'siz'" in err
    for key in ("created", "updated", "name", "size", "status"):
        assert key in err


def test_list_by_update_shows_when_data_came(run, server):
    later = {**EXPERIMENT, "data_at": "2026-11-03T04:05:00Z"}
    server.replies = [reply({"experiments": [later], "next": None})]
    header, line = run("list", "--sort", "updated")[1].splitlines()
    assert header.split()[1:3] == ["UPDATED", "(UTC)"]
    assert line.split()[1:3] == ["2026-11-03", "04:05"]


def shown_on_terminal(command, environment, code=0):
    """Return the output of a command whose stdout and stderr are a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(command, env=environment, stdout=its, stderr=its)
    os.close(its)
    shown = b""
    with suppress(OSError):  # Linux: the other side is closed
        while chunk := os.read(ours, 1 << 16):
            shown += chunk
    os.close(ours)
    assert process.wait() == code
    return shown


def test_list_has_colors_on_terminals_only(server):
    failed = {**EXPERIMENT, "status": "failed", "name": "\x1b[31mred"}
    server.replies = [reply({"experiments": [failed], "next": None})]
    command = [sys.executable, "-m", "tbupload", "list"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    for more, is_colored in (({}, True), ({"NO_COLOR": "1"}, False)):
        shown = shown_on_terminal(command, environment | more)
        assert (b"\x1b[31mfailed  \x1b[0m  " in shown) == is_colored
        assert b"\\x1b[31mred" in shown
    piped = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"\x1b" not in piped.stdout


def test_error_is_red_on_terminals_only(tmp_path):
    command = [sys.executable, "-m", "tbupload", "show", "\x1b[2J"]
    environment = {**os.environ, "TERM": "xterm", "TBHUB_SERVER": "http://localhost:1"}
    environment |= {"TBHUB_CONFIG": str(tmp_path / "none.toml"), "NO_COLOR": ""}
    shown = shown_on_terminal(command, environment, code=2)
    assert shown.startswith(b"\x1b[31mtbupload:\x1b[0m ")
    assert b"\x1b[2J" not in shown
    plain = shown_on_terminal(command, environment | {"NO_COLOR": "1"}, code=2)
    assert plain.startswith(b"tbupload: ")
    piped = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert piped.stderr.startswith(b"tbupload: ")


@pytest.mark.parametrize("limit", ["-1", "x", "1.5", "", "9999999999"])
def test_list_takes_number_as_limit(run, limit):
    with pytest.raises(SystemExit, match="2"):
        run("list", "--limit", limit)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize(
    "name", ["x" * 10_001, "é" * 300, "🙂" * 300, "漢字" * 200, "a\nb\x1b[2J\u202e", ""]
)
def test_list_line_fits_terminal(columns, name):
    layout = make_layout(columns)
    line = layout.line(list_cells({**EXPERIMENT, "name": name}))
    assert display_width(line) <= max(columns, 24 + 18)
    assert line.isprintable() or not name.isprintable()
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert EXPERIMENT["experiment_id"] in line
    assert display_width(layout.header()) <= max(columns, 24 + 18)


def test_cut_counts_columns_not_characters():
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"


def test_list_survives_what_other_servers_send(run, server):
    odd = {**EXPERIMENT, "created_at": "yesterday", "points": "many", "bytes": None, "details": 3}
    server.replies = [reply({"experiments": [odd], "next": None})]
    code, out, _ = run("list")
    assert code == 0
    assert "yesterday" in out


def test_show_has_counts_times_and_texts(run, server):
    server.replies = [reply(EXPERIMENT), reply({"runs": [], "uploads": []})]
    code, out, err = run("show", "abc")
    assert code == 0, err
    assert server.requests[0].path == "/api/v1/experiments/abc?details=true"
    lines = out.splitlines()
    assert lines[:4] == [
        "experiment_id: 6uPYq6nY3hgROpRp3WliCs",
        "url: http://tbhub.example/experiment/abc/",
        "name: a name",
        "author: Ann",
    ]
    expected = {
        "created_at: 2026-11-01 00:00:00 UTC",
        "tags: a, b",
        "runs: 2",
        "series: 3",
        "points: 123,456 received, including superseded points",
        "size: 5.0 MiB (estimated)",
        "description:",
        "    one",
        "    two\\x1b]0;title\\x07",
        "properties.lr: 0.1\\x1b[2J",
    }
    assert expected <= set(lines)
    assert "data_at" not in out


def test_show_leaves_out_counts_that_are_not_told(run, server):
    hidden = {**EXPERIMENT, "points": None, "bytes": None}
    server.replies = [reply(hidden), reply({"runs": [], "uploads": []})]
    out = run("show", "abc")[1]
    assert not any(line.startswith(("points", "size")) for line in out.splitlines())


def test_show_says_that_counts_are_no_totals(run, server):
    inexact = {**EXPERIMENT, "details": {**DETAILS, "is_exact": False}}
    server.replies = [reply(inexact), reply({"runs": [], "uploads": []})]
    assert {"runs: 2+", "series: 3+"} <= set(run("show", "abc")[1].splitlines())


def test_open_without_browser_prints_url(run, server, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    server.replies = [reply(EXPERIMENT)]
    code, out, err = run("open", ID)
    assert (code, out) == (0, f"{EXPERIMENT['url']}\n")
    assert "no browser here" in err
    assert run("open", ID, "--quiet")[2] == ""
    assert json.loads(run("open", ID, "--json", "-q")[1])["url"] == EXPERIMENT["url"]


def test_open_starts_browser_with_url(run, server, monkeypatch, tmp_path):
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    monkeypatch.setattr("webbrowser._tryorder", None)  # it reads the variable once
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    server.replies = [reply(EXPERIMENT)]
    assert run("open", ID) == (0, f"{EXPERIMENT['url']}\n", "")
    assert opened.read_text().strip() == EXPERIMENT["url"]


def test_open_takes_name(run, server, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    others = [{**EXPERIMENT, "name": name} for name in ("my baseline 2", "my baseline")]
    server.replies = [reply({"experiments": others, "next": None}), reply(EXPERIMENT)]
    assert run("open", "my baseline")[:2] == (0, f"{EXPERIMENT['url']}\n")
    assert server.requests[0].path == "/api/v1/experiments?q=my+baseline&limit=100"

    server.replies = [reply({"experiments": others, "next": None})]
    code, _, err = run("open", "my base")
    assert code == 1  # as `show` of an ID that is not there, and in its words
    assert "there is no experiment my base, or it is not yours; did you mean 'my bas" in err
    server.replies = [reply({"experiments": [others[0], others[0]], "next": None})]
    code, _, err = run("open", "my baseline 2")
    assert (code, f"several experiments are named 'my baseline 2': {ID} (my" in err) == (2, True)
    server.replies = [page()]
    assert "(`tbupload list` shows all)" in run("open", "base")[2]


def test_open_gives_browser_no_other_kind_of_url(run, server, monkeypatch, tmp_path):
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setenv("BROWSER", f"touch {tmp_path / 'opened'} %s")
    server.replies = [reply({**EXPERIMENT, "url": "file:///etc/passwd"})]
    assert run("open", ID)[0] == 0
    assert not (tmp_path / "opened").exists()
