"""`tbupload login` through a browser, logout, whoami, tokens and profiles, as processes."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from support import event_files, zygote
from support.people import SESSION_COOKIE, new_member, sign_in
from support.servers import new_workspace
from tbservice.db.database import Database
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role
from tbupload.config import Config, Profile, read_config, write_config

FORM = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
SECONDS_MAX = 60


@pytest.fixture
def home(tmp_path):
    """The environment of a user without any configuration."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TBHUB_CONFIG": str(tmp_path / "c.toml"),
    }


@pytest.fixture
def person(live_service):
    """A new editor's browser: cookie and workspace."""
    workspace = new_workspace(live_service.database_url)
    database = Database(live_service.database_url, 1)
    try:
        member = new_member(database, WorkspaceId(workspace.workspace_id), Role.EDITOR)
        return sign_in(database, member), workspace.workspace_id
    finally:
        database.close()


def tbupload(home, *arguments, code=0):
    done = zygote.run(arguments, home, program="tbupload")
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("options", [(), ("--with-token",)])
def test_login_without_terminal_and_token_says_what_to_do(home, options):
    refused = tbupload(home, "login", "--server", "http://127.0.0.1:1", *options, code=2)
    assert "login --with-token" in refused.stderr
    assert "login --web" in refused.stderr


def answer_in_browser(server, cookie, action, code, **fields):
    with requests.Session() as browser:
        browser.headers.update({**FORM, "Cookie": f"{SESSION_COOKIE}={cookie}"})
        page = browser.get(f"{server}/device", timeout=SECONDS_MAX).text
        field = re.search(r'name="(csrf[^"]*)" value="([^"]+)"', page)
        answer = browser.post(
            f"{server}/device/{action}",
            {field[1]: field[2], "code": code, **fields},
            allow_redirects=False,
            timeout=SECONDS_MAX,
        )
        assert answer.status_code == 303, answer.text


def begin_login(home, server):
    """Start `tbupload login` and return the process and the code that it shows."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "tbupload", "login", "--web", "--server", server],
        env=home,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    shown = ""
    while "Waiting" not in shown:
        line = process.stderr.readline()
        assert line, shown
        shown += line
    assert f"{server}/device" in shown
    return process, re.search("[B-Z]{4}-[B-Z]{4}", shown)[0]


def log_in(home, live_service, person, scopes=("append", "read")):
    cookie, workspace_id = person
    process, code = begin_login(home, live_service.url)
    fields = {"workspace_id": workspace_id, "scope": scopes, "expires_days": "7"}
    answer_in_browser(live_service.url, cookie, "approve", code, **fields)
    rest = process.communicate(timeout=SECONDS_MAX)[1]
    assert process.returncode == 0, rest
    return rest


def config_of(home):
    return read_config(Path(home["TBHUB_CONFIG"]))


def test_login_through_a_browser_lasts_until_logout(home, live_service, person, logdir):
    said = log_in(home, live_service, person)
    token = config_of(home).default.token
    assert token not in said
    assert "may append, read" in said
    who = tbupload(home, "whoami").stdout
    assert f"server: {live_service.url}" in who
    assert "role: editor" in who
    assert "scopes: append, read" in who
    event_files.write_records(
        logdir / "run" / "tfevents.1", [event_files.scalar_event("loss", 0, 1.0)]
    )
    uploaded = tbupload(home, "--logdir", str(logdir), "--one-shot")
    assert "/experiment/" in uploaded.stdout
    assert "only members of its workspace can read it" in uploaded.stderr

    tbupload(home, "logout")
    assert config_of(home).default.token is None
    assert "not logged in" in tbupload(home, "whoami", code=2).stderr
    refused = tbupload({**home, "TBHUB_TOKEN": token}, "whoami", code=1)
    assert "revoked" in refused.stderr
    assert "no token to remove" in tbupload(home, "logout", code=2).stderr


@pytest.fixture
def owner(home, live_service):
    """The configuration of a workspace's owner, as after a login."""
    config = Config(Profile(live_service.url, live_service.new_owner()))
    write_config(Path(home["TBHUB_CONFIG"]), config)
    return config


def test_logout_of_another_server_keeps_the_token(home, live_service, owner):
    before = owner
    refused = tbupload(home, "logout", "--server", "https://other.example", code=2)
    assert "has no token of https://other.example to remove" in refused.stderr
    assert config_of(home) == before
    tbupload(home, "whoami")

    profiles = {"work": Profile("https://work.example", "tbh_work")}
    write_config(Path(home["TBHUB_CONFIG"]), replace(before, profiles=profiles))
    tbupload(home, "logout", "--server", live_service.url, "--profile", "work", code=2)
    tbupload(home, "logout", "--server", "https://work.example/")
    assert config_of(home) == before
    tbupload(home, "logout", "--server", f"{live_service.url}/")
    assert config_of(home).default.token is None


def test_tokens_are_created_listed_and_revoked(home, live_service, person):
    log_in(home, live_service, person, scopes=("append", "read", "admin"))
    secret = tbupload(
        home, "token", "create", "--scopes", "read", "--label", "ci", "--expires", "1d"
    ).stdout.strip()
    other = {**home, "TBHUB_TOKEN": secret, "TBHUB_SERVER": live_service.url}
    assert "scopes: read" in tbupload(other, "whoami").stdout
    line = next(
        line for line in tbupload(home, "token", "list").stdout.splitlines() if line.endswith("ci")
    )
    tbupload(home, "token", "revoke", line.split()[0])
    assert tbupload(other, "whoami", code=1).stderr
    assert "TOKEN_ID" in tbupload(home, "token", "revoke", code=2).stderr


def test_whoami_of_a_share_link_names_nobody(home, live_service):
    owner = {"Authorization": f"Bearer {live_service.new_owner()}"}
    api = f"{live_service.url}/api/v1/experiments"
    experiment = requests.post(api, json={}, headers=owner, timeout=SECONDS_MAX).json()
    link = requests.post(
        f"{api}/{experiment['experiment_id']}/links",
        json={"anonymous": True},
        headers=owner,
        timeout=SECONDS_MAX,
    ).json()
    reader = {**home, "TBHUB_TOKEN": link["token"], "TBHUB_SERVER": live_service.url}
    who = tbupload(reader, "whoami").stdout
    assert "person: none (a share link)" in who
    assert f"experiment: {experiment['experiment_id']}" in who
    assert "workspace" not in who
