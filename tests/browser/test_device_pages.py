"""The pages on which a person approves the login of a command, in headless Chromium."""

from __future__ import annotations

import pytest
import requests
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at
from support.people import SESSION_COOKIE, new_member, sign_in
from support.servers import new_workspace
from support.waiting import SECONDS_MAX
from tbservice.db.database import Database
from tbservice.types.people import Role


@pytest.fixture(scope="module")
def session(live_service):
    """The secret of an editor's browser session."""
    database = Database(live_service.database_url, 2)
    workspace_id = new_workspace(live_service.database_url).workspace_id
    yield sign_in(database, new_member(database, workspace_id, Role.EDITOR))
    database.close()


def begin(live_service):
    answer = requests.post(
        f"{live_service.url}/api/v1/device-logins",
        json={"client": "tbupload 0.1.0 on cluster-node-17"},
        timeout=SECONDS_MAX,
    )
    return answer.json()


def test_login_is_approved_by_keyboard(page, live_service, session):
    cookie = {"name": SESSION_COOKIE, "value": session, "url": live_service.url}
    page.context.add_cookies([cookie])
    login = begin(live_service)
    look_at(page, f"{live_service.url}/device", "device_code")
    expect(page.get_by_label("Code")).to_be_focused()
    page.keyboard.type(login["user_code"].lower())
    page.keyboard.press("Enter")

    expect(page.get_by_text("tbupload 0.1.0 on cluster-node-17")).to_be_visible()
    expect(page.get_by_label("Upload")).to_be_checked()
    expect(page.get_by_label("Manage")).to_be_checked()
    expect(page.get_by_text("127.0.0.1 (as this browser)")).to_be_visible()
    expect(page.get_by_text("If somebody sent you this code, deny it")).to_be_visible()
    look_again(page, "device_approve")
    page.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("The command is logged in")
    answer = requests.post(
        f"{live_service.url}/api/v1/device-logins/token",
        json={"device_code": login["device_code"]},
        timeout=SECONDS_MAX,
    )
    assert answer.json()["scopes"] == ["admin", "append", "read"]
    manage_own_experiment(f"{live_service.url}/api/v1/experiments", answer.json()["token"])


def manage_own_experiment(experiments, token):
    """Share and rename an experiment with the token of a login, as the README does."""
    headers = {"Authorization": f"Bearer {token}"}
    made = requests.post(experiments, json={}, headers=headers, timeout=SECONDS_MAX).json()[
        "experiment_id"
    ]
    address = f"{experiments}/{made}"
    shared = requests.post(f"{address}/links", json={}, headers=headers, timeout=SECONDS_MAX)
    renamed = requests.patch(
        address, json={"name": "renamed"}, headers=headers, timeout=SECONDS_MAX
    )
    assert (shared.status_code, renamed.status_code) == (201, 200)
