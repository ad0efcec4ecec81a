"""Logging a command in that a person approves in a browser: the API, the pages, and what goes wrong."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from support.people import SESSION_COOKIE, new_member, new_person, sign_in
from tbservice.auth import device_logins, people
from tbservice.db.database import Database
from tbservice.errors import Conflict
from tbservice.types.people import Role

FORM = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}


class Browser:
    """A browser of a person who is signed in."""

    def __init__(self, client, secret):
        self._client = client
        self._headers = {**FORM, "Cookie": f"{SESSION_COOKIE}={secret}"}

    def get(self, path):
        return self._client.get(path, headers=self._headers)

    def post(self, path, **fields):
        field = re.search(r'name="(csrf[^"]*)" value="([^"]+)"', self.get("/device").text)
        return self._client.post(
            path,
            data={field[1]: field[2], **fields},
            headers=self._headers,
            follow_redirects=False,
        )


@pytest.fixture
def editor(client, database, workspace_id):
    person = new_member(database, workspace_id, Role.EDITOR)
    return Browser(client, sign_in(database, person))


def begin(client, program="tbupload on a laptop"):
    answer = client.post("/api/v1/device-logins", json={"client": program})
    assert answer.status_code == 201
    return answer.json()


def ask(client, login):
    return client.post("/api/v1/device-logins/token", json={"device_code": login["device_code"]})


def approve(browser, login, workspace_id, scopes=("append", "read"), **fields):
    return browser.post(
        "/device/approve",
        code=login["user_code"],
        workspace_id=str(workspace_id),
        scope=list(scopes),
        **{"expires_days": "30", **fields},
    )


def test_approved_login_gets_a_token_of_the_person_once(client, editor, workspace_id):
    login = begin(client)
    assert re.fullmatch("[B-Z]{4}-[B-Z]{4}", login["user_code"])
    assert login["user_code"] not in login["verification_uri"]
    assert (ask(client, login).status_code, ask(client, login).json()["status"]) == (202, "pending")

    page = editor.post("/device", code=login["user_code"].lower().replace("-", " "))
    assert page.status_code == 200
    assert "tbupload on a laptop" in page.text
    answer = approve(editor, login, workspace_id)
    assert (answer.status_code, answer.headers["location"]) == (303, "/device?done=approved")

    answer = ask(client, login)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    content = answer.json()
    assert content["scopes"] == ["append", "read"]
    assert content["workspace_id"] == workspace_id
    assert content["expires_at"]
    bearer = {"Authorization": f"Bearer {content['token']}"}
    assert client.post("/api/v1/experiments", json={}, headers=bearer).status_code == 201
    assert ask(client, login).status_code == 404


def test_two_questions_at_once_get_one_token(client, editor, workspace_id):
    login = begin(client)
    approve(editor, login, workspace_id)
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda _: ask(client, login), range(4))
    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404]


def test_denied_login_gets_no_token(client, editor, workspace_id):
    login = begin(client)
    assert editor.post("/device/deny", code=login["user_code"]).status_code == 303
    answer = ask(client, login)
    assert (answer.status_code, answer.json()["code"]) == (403, "access_denied")
    assert approve(editor, login, workspace_id).status_code == 404


def test_login_is_answered_once(client, editor, workspace_id):
    login = begin(client)
    assert approve(editor, login, workspace_id).status_code == 303
    for answer in (
        approve(editor, login, workspace_id),
        editor.post("/device", code=login["user_code"]),
        editor.post("/device/deny", code=login["user_code"]),
    ):
        assert answer.status_code == 404
        assert "No command waits" in answer.text


def test_expired_login_is_over_for_all(client, editor, workspace_id, monkeypatch):
    monkeypatch.setattr("tbservice.limits.DEVICE_LOGIN_SECONDS_MAX", 0)
    login = begin(client)
    assert editor.post("/device", code=login["user_code"]).status_code == 404
    assert approve(editor, login, workspace_id).status_code == 404
    answer = ask(client, login)
    assert (answer.status_code, answer.json()["code"]) == (404, "expired_token")


def test_code_that_is_none_is_an_error_in_words(editor):
    for code in ("", "BCDF", "BCDF-GHJK-L", "AEIO-UAEI", "é" * 8, "'; --", "B" * 1000):
        answer = editor.post("/device", code=code)
        assert answer.status_code == 404, code
        assert "No command waits" in answer.text, code


def test_viewer_cannot_approve_more_than_reading(client, database, workspace_id):
    viewer = Browser(client, sign_in(database, new_member(database, workspace_id, Role.VIEWER)))
    login = begin(client)
    answer = approve(viewer, login, workspace_id, ["append"])
    assert answer.status_code == 403
    assert ask(client, login).status_code == 202
    assert approve(viewer, login, workspace_id, ["read"]).status_code == 303
    assert ask(client, login).json()["scopes"] == ["read"]


def test_workspace_of_others_cannot_be_chosen(client, database, workspace_id):
    stranger = Browser(client, sign_in(database, new_person(database)))
    login = begin(client)
    for workspace in (workspace_id, 2**40, "x", "-1", "9" * 30):
        assert approve(stranger, login, workspace).status_code == 422
    assert ask(client, login).status_code == 202


def test_bad_choices_are_shown_again_with_the_reason(client, editor, workspace_id):
    login = begin(client)
    assert approve(editor, login, workspace_id, []).status_code == 422
    assert approve(editor, login, workspace_id, ["everything"]).status_code == 422
    answer = approve(editor, login, workspace_id, ["append"], expires_days="99999")
    assert answer.status_code == 422
    assert 'value="append" checked' in answer.text


def test_approval_of_person_who_left_is_worth_nothing(client, database, workspace_id):
    person = new_member(database, workspace_id, Role.EDITOR)
    browser = Browser(client, sign_in(database, person))
    login = begin(client)
    approve(browser, login, workspace_id)
    with database.transaction() as db:
        people.disable(db, person.user_id)
    assert ask(client, login).status_code in {403, 404}


def test_bad_login_is_refused(client):
    for body in (
        {"client": "x" * 201},
        {"client": 7},
        {"client": "x\0"},
        {"extra": 1},
        [],
        {"client": None},
    ):
        assert client.post("/api/v1/device-logins", json=body).status_code == 422, body


def test_unknown_device_code_gets_nothing(client):
    for code in ("", "x", "x" * 201, None, "\0"):
        answer = client.post("/api/v1/device-logins/token", json={"device_code": code})
        assert answer.status_code in {404, 422}, code


def test_client_is_shown_as_text(client, editor):
    login = begin(client, "<script>alert(1)</script>\u202e")
    page = editor.post("/device", code=login["user_code"])
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;" in page.text


def test_page_shows_where_command_asks_from(client, database, editor):
    page = editor.post("/device", code=begin(client)["user_code"]).text
    assert "testclient (as this browser)" in page
    assert "If somebody sent you this code, deny it" in page
    with database.transaction() as db:
        login = device_logins.begin(db, "tbupload on a host", "203.0.113.9")
    page = editor.post("/device", code=login.user_code).text
    assert "203.0.113.9" in page
    assert "from another address than this browser" in page
    assert "Never type a code that someone sent you" in editor.get("/device").text


@pytest.mark.own_database
def test_logins_that_wait_are_bounded_by_network_and_in_all(
    client, database, editor, workspace_id, monkeypatch
):
    monkeypatch.setattr(
        "tbservice.auth.device_logins.DEVICE_LOGINS_WAITING_PER_NETWORK_ITEMS_MAX", 2
    )
    monkeypatch.setattr("tbservice.auth.device_logins.DEVICE_LOGINS_WAITING_ITEMS_MAX", 3)
    first = begin(client)
    begin(client)
    refused = client.post("/api/v1/device-logins", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "2 logins from your network (testclient) wait for approval" in refused.json()["detail"]
    with database.transaction() as db:
        device_logins.begin(db, "another", "203.0.113.9")
    with database.transaction() as db, pytest.raises(Conflict, match="on this server"):
        device_logins.begin(db, "another", "2001:db8::/64")

    assert approve(editor, first, workspace_id).status_code == 303
    begin(client)


def test_logins_begun_at_once_do_not_pass_limit(client, monkeypatch):
    monkeypatch.setattr("tbservice.api.v1.people.device_logins.client_network", lambda _: "at once")
    monkeypatch.setattr(
        "tbservice.auth.device_logins.DEVICE_LOGINS_WAITING_PER_NETWORK_ITEMS_MAX", 3
    )
    with ThreadPoolExecutor(12) as threads:
        begun = [threads.submit(client.post, "/api/v1/device-logins", json={}) for _ in range(12)]
    assert sorted(each.result().status_code for each in begun) == [201] * 3 + [409] * 9


def test_login_works_before_its_migration(servers):
    with (
        servers.database_before("0011") as url,
        closing(Database(url, 1)) as database,
        database.transaction() as db,
    ):
        login = device_logins.begin(db, "a command", "203.0.113.9")
        assert device_logins.find(db, login.user_code).network == ""
