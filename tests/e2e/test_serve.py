"""`tbservice serve` and related commands, on a PostgreSQL and an S3 server that only the settings
name.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psutil
import psycopg
import pytest

from support import slow_start_service, zygote
from support.batches import texts
from support.process_kills import started_workers, workers_of
from support.servers import (
    database_name,
    environment_of,
    fetch,
    http_client,
    live_api,
    live_service,
)
from support.source_code import ROOT
from support.subprocesses import run_to_end
from support.waiting import SECONDS_MAX, wait_until
from tbservice.auth import people, sign_in_links
from tbservice.errors import StartupError
from tbservice.local.embedded.instance import make_settings
from tbservice.local.embedded.ports import LOOPBACK, choose_ports

pytestmark = pytest.mark.own_database

MIGRATIONS = sorted(path.stem for path in (ROOT / "migrations" / "versions").glob("0*.py"))


def tbservice(settings, *arguments, **more):
    """Run a command to its end with these settings; return the exit code and both outputs."""
    done = zygote.run(arguments, environment_of(settings) | more)
    return done.returncode, done.stdout, done.stderr


def free_port():
    return choose_ports(["service"], {})["service"]


def test_from_empty_database_to_upload_token_by_commands_alone(
    servers, empty_database_url, tmp_path
):
    with servers.settings(empty_database_url) as settings:
        # A process that imports everything itself, as all others do where nobody tests.
        done = run_to_end(
            [sys.executable, "-m", "tbservice", "serve"], env=environment_of(settings)
        )
        code, said = done.returncode, done.stderr
        assert (code, said) == (
            1,
            f"tbservice: the database lacks the migrations {', '.join(MIGRATIONS)}: run 'tbservice migrate'\n",
        )
        code, listed, said = tbservice(settings, "migrate", "--check")
        assert (code, [line.split(":")[0] for line in listed.splitlines()]) == (1, MIGRATIONS)
        assert "0005_content: locks for a moment browser_sessions (SHARE ROW EXCLUSIVE), " in listed
        assert said == f"tbservice: steps to do: {len(MIGRATIONS)}; run 'tbservice migrate'\n"
        assert tbservice(settings, "migrate") == (
            0,
            "".join(f"{name}\n" for name in MIGRATIONS),
            "",
        )
        assert tbservice(settings, "migrate") == (0, "", "")
        up_to_date = (0, f"up to date: {MIGRATIONS[-1]}\n", "")
        assert tbservice(settings, "migrate", "--check") == up_to_date
        serving = servers.service_settings(settings)
        assert tbservice(serving, "workspace", "create", "team") == (0, "1\n", "")
        assert tbservice(serving, "workspace", "list") == (0, "1\tteam\n", "")
        code, token, _ = tbservice(
            serving, "token", "create", "--workspace", "1", "--label", "first"
        )
        assert code == 0
        assert tbservice(serving, "token", "create", "--workspace", "7")[0::2] == (
            1,
            "tbservice: there is no workspace 7: `tbservice workspace list` shows them\n",
        )
        with live_service(serving, tmp_path / "log") as live:
            headers = {"Authorization": f"Bearer {token.strip()}"}
            answer = fetch(
                f"{live.url}/api/v1/experiments", "POST", json={"name": "x"}, headers=headers
            )
            assert answer.status_code == httpx2.codes.CREATED
            assert answer.json()["url"].startswith(live.url)


def test_user_commands_invite_list_disable_and_enable(settings, workspace_id, database):
    def user(*arguments):
        return tbservice(settings, "user", *arguments)

    place = str(workspace_id)
    code, url, said = user("invite", "Ann@Example.org", "--name", "Ann\tLee", "--workspace", place)
    assert (code, said) == (0, "")
    secret = url.strip().removeprefix("http://testserver/sign-in/link?token=")
    again = user("invite", "ann@example.org", "--workspace", place, "--role", "viewer")[1]
    assert again != url
    with database.transaction() as db:
        assert sign_in_links.use_link(db, secret).name == "Ann Lee"
        person = people.find_named(db, "ann@example.org")
    listed = f"{person.user_id}\tAnn@Example.org\tAnn Lee\t{{}}\t{place}:editor"
    assert listed.format("active") in user("list")[1].splitlines()
    assert user("disable", "ANN@example.org") == (0, "", "")
    assert listed.format("disabled") in user("list")[1].splitlines()
    assert user("invite", "ann@example.org")[0] == 1
    assert user("enable", "ann@example.org") == (0, "", "")
    assert user("invite", "ann@example.org")[0] == 0

    assert user("sign-out", "ann@example.org") == (0, "browser sessions ended: 0\n", "")
    revoked = tbservice(settings, "token", "revoke", "--workspace", place, "x")
    assert revoked == (1, "", "tbservice: the workspace has no such token\n")
    assert user("operator", "ann@example.org") == (0, "ann@example.org is an operator\n", "")
    assert f"{person.user_id}\tAnn@Example.org\tAnn Lee\t20" in user("operator")[1]
    revoked = user("operator", "ann@example.org", "--revoke")
    assert revoked == (0, "ann@example.org is no operator any more\n", "")
    assert person.user_id not in user("operator")[1]

    for arguments, problem in (
        (("operator", "--revoke"), "--revoke needs a person"),
        (("operator", "ann@example.org", "--revoke"), "this person is no operator"),
        (("operator", "bob@example.org"), "there is no person with this e-mail address"),
        (("invite", "nobody"), "this is not an e-mail address"),
        (("disable", "bob@example.org"), "there is no person with this e-mail address"),
        (("invite", "bob@example.org", "--workspace", "999999"), "there is no such workspace"),
    ):
        code, output, said = user(*arguments)
        assert (code, output, len(said.splitlines())) == (1, "", 1)
        assert problem in said
    for place in ("0", "x", str(2**63)):
        assert user("invite", "bob@example.org", "--workspace", place)[:2] == (2, "")
    assert "bob@example.org" not in user("list")[1]


def test_workers_end_when_their_parent_is_killed(settings, tmp_path):
    with live_service(settings, tmp_path / "log", TBHUB_WORKERS="2") as live:
        # A worker that still imports its modules does not notice the end of its parent.
        port = urlsplit(live.database_url).port
        workers = wait_until(lambda: len(started := started_workers(live, port)) == 2 and started)
        # The parent closes their ends of its connections after it has forked them. Then they share
        # no end of its connection to the other.
        wait_until(lambda: len({frozenset(shared_sockets(live, each)) for each in workers}) == 1)
        live.process.kill()
        live.process.wait()
        assert not psutil.wait_procs(workers, 60)[1]


def shared_sockets(live, worker):
    """Return the sockets that both a service and its worker have open."""
    links = [
        {str(file.readlink()) for file in Path(f"/proc/{process.pid}/fd").iterdir()}
        for process in (live.process, worker)
    ]
    return {link for link in set.intersection(*links) if link.startswith("socket:")}


def test_serve_fails_when_no_worker_can_be_replaced(servers, settings, tmp_path):
    log, database = tmp_path / "log", database_name(settings.database_url.get_secret_value())
    with live_service(settings, log, TBHUB_WORKERS="2") as live:
        with servers.instance.postgres.connect_as_superuser(database) as superuser:
            # A newer tbhub's, with which this version does not work any more.
            superuser.execute(
                "UPDATE alembic_version SET version_num = '9999', required_revision = '9999'"
            )
        workers_of(live)[0].kill()
        assert live.process.wait(SECONDS_MAX) == 1
    said = log.read_text().splitlines()
    assert said[-1] == "tbservice: a worker did not start, so all were stopped: see the lines above"
    assert any("9999" in line for line in said), said


def test_serve_replaces_worker_that_dies_during_health_check(settings, tmp_path):
    log = tmp_path / "log"
    with live_service(settings, log, TBHUB_WORKERS="2") as live:
        before = workers_of(live)
        before[0].suspend()
        # No event: whether its parent has asked, and would wait for half a minute, only the parent knows.
        time.sleep(2)
        before[0].kill()
        wait_until(lambda: [worker for worker in workers_of(live) if worker not in before])
        assert f"worker {before[0].pid} did not answer" not in log.read_text()


def test_worker_that_starts_is_judged_by_deadline_of_start(settings, tmp_path):
    slow, log = tmp_path / "slow", tmp_path / "log"
    more = {"SLOW_FILE": str(slow), "HANGS": "1", "TBHUB_WORKERS": "2"}
    program = [Path(slow_start_service.__file__)]
    with live_service(settings, log, program=program, **more) as live:
        wait_until(lambda: log.read_text().count("has started") == 2)
        first, other = workers_of(live)
        slow.touch()
        first.kill()
        starting = int(wait_until(slow.read_text))
        assert f"worker {first.pid} has ended with exit code -9: it is replaced" in log.read_text()
        other.suspend()  # asked later than the one that starts, and replaced before it
        wait_until(lambda: f"worker {other.pid} did not answer within 2 s" in log.read_text())
        assert f"worker {starting} " not in log.read_text()
        wait_until(lambda: f"worker {starting} did not start within 10 s" in log.read_text())
        wait_until(lambda: log.read_text().count("has started") == 4)


def rename_experiments(servers, settings):
    """Let each request for experiments fail, as nobody foresaw."""
    database = database_name(settings.database_url.get_secret_value())
    with servers.instance.postgres.connect_as_superuser(database) as db:
        db.execute("ALTER TABLE experiments RENAME TO away")


def test_failed_request_has_id_of_its_log_record(servers, settings, owner_token, tmp_path):
    log, headers = tmp_path / "log", {"Authorization": f"Bearer {owner_token}"}
    with live_service(settings, log) as live:
        rename_experiments(servers, settings)
        answer = fetch(f"{live.url}/api/v1/experiments", headers=headers)
    failure, logged = answer.json(), log.read_text()
    assert (answer.status_code, failure["code"]) == (500, "internal")
    assert failure["id"] in failure["detail"]
    # Background work may fail as well, and say so in records of its own.
    records = re.split(r"^(?=\d{4}-\d\d-\d\d )", logged, flags=re.MULTILINE)
    (record,) = [each for each in records if failure["id"] in each]
    assert record.count("Traceback") == record.count(failure["id"]) == 1


def test_idle_connection_does_not_hold_up_stop(settings, tmp_path):
    with (
        live_service(settings, tmp_path / "log") as live,
        http_client() as client,
    ):
        client.get(f"{live.url}/healthz")
        with socket.create_connection((LOOPBACK, int(live.url.rsplit(":", 1)[1]))):
            live.process.send_signal(signal.SIGTERM)
            assert live.process.wait(SECONDS_MAX) == 0


def test_stop_waits_for_no_statement_and_no_text(servers, settings, owner_token, tmp_path):
    database, log = database_name(settings.database_url.get_secret_value()), tmp_path / "log"
    with ExitStack() as stack:
        live = stack.enter_context(live_service(settings, log))
        api = stack.enter_context(live_api(live.url, owner_token))
        experiment = api.new_experiment(
            texts("note", [0, 1], [b"[" * 30_000] * 2), visibility="link"
        )
        superuser = stack.enter_context(servers.instance.postgres.connect_as_superuser(database))
        url = settings.database_url.get_secret_value()
        page = f"/experiment/{experiment}/data/plugin"
        host, port = live.url.removeprefix("http://").split(":")
        ask(stack, host, port, f"{page}/text/text?run=train&tag=note")
        superuser.execute("BEGIN")
        superuser.execute("LOCK TABLE time_series")
        for path in (f"{page}/timeseries/tags", f"/api/v1/experiments/{experiment}/names"):
            ask(
                stack, host, port, path, owner_token
            )  # a workspace has two requests worked on at once
        wait_until(lambda: servers.count_waiting(url) >= 2)
        live.process.send_signal(signal.SIGTERM)
        assert live.process.wait(20) == 0  # where it waits, it does for the statements' 60 seconds
        superuser.execute("ROLLBACK")
    said = log.read_text()
    assert "Traceback" not in said
    assert sum(map(int, re.findall(r"Cancel (\d+) running task", said))) >= 2, (
        said
    )  # the text may be done in time


def ask(stack, host, port, path, token=None):
    """Send a request and leave its answer unread until the stack is closed."""
    connection = stack.enter_context(socket.create_connection((host, int(port))))
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n".encode())


@pytest.mark.parametrize("command", ["serve", "migrate"])
def test_database_of_development_version_is_one_line(settings, command):
    with psycopg.connect(settings.database_url.get_secret_value()) as db:
        db.execute("UPDATE alembic_version SET version_num = '0007'")
    code, _, error = tbservice(settings, command)
    assert (code, len(error.splitlines())) == (1, 1), error
    assert "made by a development version before 0.1.0 (migration 0007)" in error


def test_command_that_cannot_start_says_why_in_one_line(servers, settings):
    database = database_name(settings.database_url.get_secret_value())
    superuser = servers.instance.postgres.superuser_url(database).get_secret_value()
    away = f"postgresql://tbhub:secret@{LOOPBACK}:{free_port()}/tbhub"
    malformed = "postgresql://u:secret@host:one/db"
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        for command, name, value, problem in (
            ("serve", "S3_BUCKET", "Not_A_Bucket", "store refuses CreateBucket: InvalidBucketName"),
            ("serve", "S3_SECRET_KEY", "wrong", "store refuses HeadBucket: 403 (AccessDenied)"),
            ("serve", "DATABASE_URL", superuser, "superuser"),  # who would see all tenants
            ("serve", "DATABASE_URL", away, "the database"),
            ("workspace list", "DATABASE_URL", away, "the database"),
            ("serve", "DATABASE_URL", malformed, "TBHUB_DATABASE_URL is not a PostgreSQL URL"),
            ("migrate", "DATABASE_URL", malformed, "TBHUB_DATABASE_URL is not a PostgreSQL URL"),
            ("serve", "ALLOWED_HOSTS", "[tbhub.example]", "TBHUB_ALLOWED_HOSTS is no JSON"),
            ("serve", "PORT", str(taken.getsockname()[1]), "is in use"),
        ):
            more = {"TBHUB_PORT": str(free_port()), f"TBHUB_{name}": value}
            code, _, said = tbservice(settings, *command.split(), **more)
            assert (code, len(said.splitlines()), problem in said) == (1, 1, True), said
            assert "secret" not in said


def test_settings_of_data_directory_name_what_is_no_json(servers, monkeypatch):
    monkeypatch.setenv("TBHUB_ALLOWED_HOSTS", "*")
    with pytest.raises(StartupError, match="TBHUB_ALLOWED_HOSTS is no JSON"):
        make_settings(servers.instance, host=LOOPBACK, port=0, public_url="http://testserver")


@pytest.mark.parametrize("command", [["serve"], ["workspace", "list"]])
def test_missing_database_url_is_one_line(settings, command):
    environment = environment_of(settings)
    del environment["TBHUB_DATABASE_URL"]
    done = zygote.run(command, environment)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "TBHUB_DATABASE_URL" in done.stderr


def test_database_url_with_two_hosts_reaches_live_one(settings, tmp_path):
    before, at, after = settings.database_url.get_secret_value().partition("@")
    url = f"{before}{at}{LOOPBACK}:{free_port()},{after}&target_session_attrs=read-write"
    assert tbservice(settings, "migrate", TBHUB_DATABASE_URL=url) == (0, "", "")
    with live_service(settings, tmp_path / "log", TBHUB_DATABASE_URL=url) as live:
        assert fetch(f"{live.url}/readyz").status_code == httpx2.codes.OK


def test_output_that_nobody_reads_is_no_traceback():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tbservice", "completion", "bash"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_openapi_document_needs_no_server_and_names_routes():
    done = zygote.run(["openapi"], {})
    paths = json.loads(done.stdout)["paths"]
    assert "/api/v1/experiments/{experiment_id}/batches" in paths
