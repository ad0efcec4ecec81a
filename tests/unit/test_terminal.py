"""Output of `tbupload` to a terminal: no control characters of files or servers, and valid JSON."""

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.faulty_server import Reply, faulty_server, refusal
from tbupload.cli import main
from tbupload.console.progress import ConsoleProgress, LiveProgress, ProgressState
from tbupload.console.terminal import escape, write_json, write_line

HOSTILE = "\x1b]52;c;ZXZpbA==\x07 a\r\nb \x9b2J \x7f \u202eevil\u2066 \u2028 \ud800 \u200b"
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # surrogates as well


def is_one_safe_line(text):
    """Return whether the text is lines of printable characters, each ended by a line feed."""
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return text.endswith("\n") and not [
        char
        for char in text[:-1]
        if unicodedata.category(char) in bad and char not in "\u200c\u200d"
    ]


@given(ANY_TEXT)
def test_terminal_line_is_harmless_whatever_its_text(text):
    stream = io.StringIO()
    write_line(stream, text)
    assert is_one_safe_line(stream.getvalue())
    assert escape(stream.getvalue()[:-1]) == stream.getvalue()[:-1]


@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.lists(st.floats(allow_nan=False))))
def test_terminal_json_is_harmless_and_means_same(content):
    stream = io.StringIO()
    write_json(stream, content)
    assert is_one_safe_line(stream.getvalue())
    assert json.loads(stream.getvalue()) == content


def test_terminal_keeps_words_of_every_script():
    for text in ("Übung", "损失", "मैं", "क\u200cष", "👩\u200d💻", "a\u00a0b", "x\u3000y"):
        assert escape(text) == text


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_terminal_without_character_shows_its_escape(encoding):
    content = {"name": "é→\ud800"}
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    write_line(stream, content["name"])
    write_json(stream, content)
    line, escaped = written.getvalue().decode(encoding).splitlines()
    assert line.endswith("\\ud800")
    assert json.loads(escaped) == content


EXPERIMENT = {
    "experiment_id": "abc",
    "name": HOSTILE,
    "description": HOSTILE,
    "url": f"http://x/{HOSTILE}",
    "created_at": HOSTILE,
    "visibility": "link",
}
TOKEN = {
    "id": HOSTILE,
    "token": HOSTILE,
    "prefix": HOSTILE,
    "label": HOSTILE,
    "scopes": ["read", HOSTILE],
}
LINK = {
    **dict.fromkeys(("id", "label", "prefix", "created_at", "runs", "tags"), HOSTILE),
    **dict.fromkeys(("expires_at", "last_used_at"), HOSTILE),
    "revoked_at": None,
    "anonymous": True,
    "frozen": False,
}


def json_reply(answer):
    return Reply(body=json.dumps(answer).replace("\\ud800", "").encode())


ANSWERS = {
    ("list",): {"experiments": [EXPERIMENT], "next": None},
    ("show", "abc"): EXPERIMENT,
    ("update-metadata", "abc", "--name", "x"): EXPERIMENT,
    ("share", "abc"): {**LINK, "url": f"http://x/{HOSTILE}", "token": HOSTILE},
    ("share", "list", "abc"): {"links": [LINK]},
    ("share", "rename", "abc", "l1", "x"): LINK,
    ("share", "abc", "--list"): {
        "links": [LINK],
        "tokens": [{**TOKEN, "expires_at": HOSTILE, "revoked_at": None}],
    },
}

ATTEMPT = {"attempt": 1, "started_at": 0.5, "superseded_points": 1}
UPLOAD = {
    **dict.fromkeys(("upload_id", "status", "status_of", "detail", "started_at"), HOSTILE),
    "ended_at": HOSTILE,
    "origin": {"host": HOSTILE},
    "packages": [HOSTILE],
}
MORE_ANSWERS = {
    ("show", "abc"): [
        json_reply({"runs": [{"run": HOSTILE, "attempts": [ATTEMPT, {**ATTEMPT, "attempt": 2}]}]}),
        json_reply({"uploads": [UPLOAD], "next": None}),
    ],
}
"""Further answers, to the requests after the first."""


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("TBHUB_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("TBHUB_TOKEN", "tbh_secret")
    with faulty_server() as server:
        monkeypatch.setenv("TBHUB_SERVER", server.url)
        yield server


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", ANSWERS)
def test_answers_of_server_cannot_steer_terminal(server, capsys, command, options):
    # A lone surrogate is refused where answers are read: here it would hide what is printed.
    text = json.dumps(ANSWERS[command]).replace("\\ud800", "")
    server.replies = [Reply(body=text.encode()), *MORE_ANSWERS.get(command, ())]
    assert main([*command, *options]) == 0
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines(keepends=True)
    assert [line for line in lines if not is_one_safe_line(line)] == []
    assert not options or [json.loads(line) for line in printed.out.splitlines()]


@pytest.mark.parametrize(
    "command", [("list",), ("show", "abc"), ("delete", "abc", "--yes"), ("tail", "abc")]
)
def test_error_details_of_server_cannot_steer_terminal(server, capsys, command):
    server.replies = [refusal(418, detail=HOSTILE)]
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines(keepends=True)
    assert is_one_safe_line(line)
    assert "\\x1b]52" in line


def test_progress_of_upload_cannot_steer_terminal(monkeypatch):
    state = ProgressState(1, 2, 3, 4, 5, skipped={HOSTILE: 1})
    for kind in (ConsoleProgress, LiveProgress):
        stream = io.StringIO()
        progress = kind(1, stream)
        monkeypatch.setattr(progress, "interval_seconds", 0.0)
        progress.start(f"http://x/{HOSTILE}")
        progress.show(state)
        for say in (progress.warn, progress.info, progress.debug, progress.report_problem):
            say(HOSTILE)
        progress.close()
        assert "\\x1b]52" in stream.getvalue()
        assert not set(stream.getvalue()) & set("\x07\x9b\x7f\u202e\u2066\u2028\ud800\u200b")
