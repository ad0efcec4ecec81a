"""Clients make the service write to its log: no forged records, and a bounded number."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from datetime import datetime, timedelta

import pytest

from support.batches import ApiClient
from support.servers import LOOPBACK, fetch, http_client, live_service
from tbservice import limits
from tbservice.local.embedded.ports import choose_ports
from tbservice.server import workers
from tbservice.server.logs import LOG_REPEATS_MAX

RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [\w.]+: ")
CONTINUED = "  | "
FORGED = "x\n2026-11-22 00:00:00,000 ERROR tbservice.server.app: forged\r\x1b[31m\x85\u2028\u202e"

OPEN_FILES = 120
CLIENTS = 200
REPEATS = 100

CONFIGURED_JSON = """
import logging
from tbservice.server import logs
logs.configure("json")
log = logging.getLogger("stranger")
"""

CONFIGURED = """
import logging, warnings
from tbservice.server import logs
logs.configure()
log = logging.getLogger("stranger")
"""

SERVE_WITH_FEW_FILES = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))
from tbservice.cli import main
sys.exit(main(["serve"]))
"""


def written_by(program, configured=CONFIGURED):
    """Return what a process with the service's log configuration writes to standard error."""
    ended = subprocess.run(
        [sys.executable, "-c", configured + textwrap.dedent(program)],
        capture_output=True,
        check=True,
        timeout=60,
    )
    return ended.stderr.decode()


def assert_is_a_log(text):
    """Check that every line is a record or continues one, and has printable characters only."""
    for line in text.removesuffix("\n").split("\n"):
        assert RECORD.match(line) or line.startswith(CONTINUED), line
        assert line.isprintable(), line


def test_log_record_of_hostile_text_is_one_line():
    text = written_by(f"log.error('user %s', {FORGED!r})\nlog.error({FORGED!r})")
    assert_is_a_log(text)
    assert text.count("\n") == 2
    assert (
        r"x\n2026-11-22 00:00:00,000 ERROR tbservice.server.app: forged\r\x1b[31m\x85\u2028\u202e"
        in text
    )


def test_log_traceback_lines_cannot_pass_for_records():
    program = f"""
        def fail():
            raise ValueError({FORGED!r})
        try:
            fail()
        except ValueError:
            log.exception("failed", stack_info=True)
        """
    text = written_by(program)
    assert_is_a_log(text)
    assert len(RECORD.findall(text)) >= 1
    assert sum(bool(RECORD.match(line)) for line in text.split("\n")) == 1
    assert "  | Traceback (most recent call last):" in text
    assert "in fail" in text


def test_log_record_is_bounded_and_keeps_both_ends():
    program = """
        log.error("begin" + "A" * 1_000_000 + "end")
        log.error("begin" + "\\x00" * 1_000_000 + "end")
        try:
            raise ValueError("B\\n" * 1_000_000 + "the reason")
        except ValueError:
            log.exception("failed")
        """
    text = written_by(program)
    assert_is_a_log(text)
    assert len(text) < 2 * limits.LOG_MESSAGE_CHARS_MAX + 4 * limits.LOG_TRACEBACK_CHARS_MAX
    first = text.split("\n")[0]
    assert re.search(r": beginA+ \[\d+ characters left out\] A+end$", first)
    assert text.endswith("the reason\n")


def test_json_log_record_is_one_object_that_no_text_leaves():
    program = f"""
        from tbservice.api.http.request_id import REQUEST_ID
        log.error("user %s", {FORGED!r})
        REQUEST_ID.set("r1")
        try:
            raise ValueError({FORGED!r})
        except ValueError as error:
            logs.log_failure(error)
        log.warning("{"x" * 3}" * {limits.LOG_MESSAGE_CHARS_MAX})
    """
    text = written_by(program, CONFIGURED_JSON)
    assert text.isascii()
    first, failure, long = map(json.loads, text.splitlines())
    assert first["message"] == f"user {FORGED}"
    assert datetime.fromisoformat(first.pop("time")).utcoffset() == timedelta(0)
    assert first.keys() == {"level", "logger", "message"}
    assert failure["request_id"] == "r1"
    assert re.fullmatch("[0-9a-f]{16}", failure["error_id"])
    assert FORGED in failure["traceback"]
    assert len(long["message"]) < limits.LOG_MESSAGE_CHARS_MAX + 100


def test_log_repeats_of_one_origin_are_counted_instead():
    program = f"""
        for number in range({REPEATS}):
            log.warning(f"unsupported {{number}}")
        log.error("another origin")
        for number in range({REPEATS}):
            warnings.warn_explicit(f"old {{number}}", UserWarning, "a.py", number)
        """
    text = written_by(program)
    assert_is_a_log(text)
    assert text.count("unsupported") == text.count("UserWarning: old") == LOG_REPEATS_MAX
    assert text.count("another origin") == 1
    assert text.count(f"suppressed {REPEATS - LOG_REPEATS_MAX} similar records of ") == 2


def test_log_repeats_are_written_again_after_window():
    program = """
        now = 0.0
        logging.getLogger().handlers[0]._clock = lambda: now
        for round in "ab":
            for number in range(logs.LOG_REPEATS_MAX + 5):
                log.warning("round " + round)
            now += logs.LOG_WINDOW_SECONDS + 1
        log.error("last")
        """
    lines = written_by(program).splitlines()
    kinds = [RECORD.sub("", line).partition(" records of ")[0] for line in lines]
    repeats = LOG_REPEATS_MAX
    assert kinds == [
        *["round a"] * repeats,
        "suppressed 5 similar",
        *["round b"] * repeats,
        "suppressed 5 similar",
        "last",
    ]


@pytest.fixture
def service(shared_settings, tmp_path):
    """A service of its own with a small limit of open files, and its log."""
    port = choose_ports(["service"], {})["service"]
    log = tmp_path / "service.log"
    log.touch()
    with live_service(
        shared_settings, log, port=port, program=("-c", SERVE_WITH_FEW_FILES)
    ) as live:
        yield live, port, log


def test_log_of_serve_is_not_flooded_by_strangers(service):
    live, port, log = service
    with http_client(live.url) as client:
        experiment = ApiClient(client, live.new_owner()).new_experiment(visibility="link")
        for _ in range(LOG_REPEATS_MAX + 10):
            upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
            assert client.get("/healthz", headers=upgrade).status_code == 204
            with socket.create_connection((LOOPBACK, port)) as garbage:
                garbage.sendall(b"\x00\x1b[31m\r\n\r\n")
                assert garbage.recv(100).startswith(b"HTTP/1.1 400")
        groups = f"/experiment/{experiment}/data/plugin/hparams/session_groups"
        for body in (b"A" * 1_000_000, FORGED.encode()):
            client.post(groups, content=body)
            client.get(groups, params={"request": FORGED})
    with ExitStack() as clients:
        # Stopped, so that it finds all of them at once, however fast it is.
        live.process.send_signal(signal.SIGSTOP)
        for _ in range(CLIENTS):
            clients.enter_context(socket.create_connection((LOOPBACK, port)))
        live.process.send_signal(signal.SIGCONT)
        # Accepted after them: each takes the place of an earlier one, before files run out.
        assert fetch(f"{live.url}/healthz").status_code == 204
    text = log.read_text()
    assert len(text) < 200_000
    announced, _, rest = text.partition("\n")
    assert announced.startswith("tbhub listens on")
    assert_is_a_log(rest)
    assert 1 <= rest.count("Unsupported upgrade request") <= LOG_REPEATS_MAX
    assert 1 <= rest.count("Invalid HTTP request received") <= LOG_REPEATS_MAX
    assert "Too many open files" not in rest


def test_worker_process_logs_as_the_settings_say(monkeypatch):
    class Configured(Exception):
        pass

    def stop(log_format):
        raise Configured(log_format)

    for name, value in {"DATABASE_URL": "postgresql://", "LOG_FORMAT": "json"}.items():
        monkeypatch.setenv(f"TBHUB_{name}", value)
    monkeypatch.setattr(workers.logs, "configure", stop)
    with pytest.raises(Configured, match="json"):
        workers.create_worker_app()


@pytest.mark.own_database
def test_json_log_of_serve_names_requests(settings, owner_token, tmp_path, rename_table):
    log = tmp_path / "log"
    with (
        live_service(settings, log, TBHUB_LOG_FORMAT="json") as live,
        http_client(live.url) as client,
    ):
        named = client.get("/api/v1/me", headers={"X-Request-ID": "proxy-1"})
        assert named.headers["X-Request-ID"] == "proxy-1"
        for hostile in ("x" * 65, "a b", 'x"', "é".encode()):
            answer = client.get("/api/v1/me", headers={"X-Request-ID": hostile})
            assert re.fullmatch("[0-9a-f]{16}", answer.headers["X-Request-ID"])
        rename_table("tokens", "tokens_gone")
        failed = client.get(
            "/api/v1/experiments",
            headers={"X-Request-ID": "proxy-2", "Authorization": f"Bearer {owner_token}"},
        )
        rename_table("tokens_gone", "tokens")
    assert failed.status_code == 500
    assert failed.headers["X-Request-ID"] == "proxy-2"
    records = [json.loads(line) for line in log.read_text().splitlines() if line[0] == "{"]
    failures = [each for each in records if "error_id" in each]
    assert [each["request_id"] for each in failures] == ["proxy-2"]
    (record,) = failures
    assert record["error_id"] == failed.json()["id"]
    assert "tokens" in record["traceback"]
