"""The operator's pages in headless Chromium: found, looked at, and used without a script."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser_pages import look_at, open_as
from support.people import new_member, new_personal_token, sign_in
from support.servers import live_api, new_workspace
from support.share_links import make_link
from tbservice.auth import operators
from tbservice.types.grants import Scope


@pytest.fixture(scope="module")
def workspace_id(live_service):
    return new_workspace(live_service.database_url).workspace_id


@pytest.fixture(scope="module")
def operator(database, workspace_id):
    person = new_member(database, workspace_id)
    sign_in(database, person)  # another browser
    with database.transaction() as db:
        operators.make_operator(db, person.user_id)
    return person


@pytest.fixture(scope="module")
def link(live_service, database, workspace_id, operator):
    """A share link of an experiment of the workspace."""
    secret = new_personal_token(database, workspace_id, operator, Scope.ADMIN)
    with live_api(live_service.url, secret) as api:
        return make_link(api, api.new_experiment(name="x"))


@pytest.mark.usefixtures("link")
def test_operator_pages_look_well(page, live_service, database, operator, workspace_id):
    open_as(page, database, operator, live_service.url)
    page.goto(live_service.url)
    page.locator(".account summary").press("Enter")
    page.get_by_role("link", name="Operator: this service").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Operator")
    for path in (
        "",
        "/people",
        "/reports",
        "/health",
        f"/workspace/{workspace_id}",
        f"/person/{operator.user_id}",
    ):
        name = "operator" + path.replace(str(workspace_id), "").replace(operator.user_id, "")
        look_at(page, f"{live_service.url}/operator{path}", name.strip("/").replace("/", "_"))


def test_operator_acts_without_script(
    browser, live_service, database, operator, workspace_id, link
):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    open_as(page, database, operator, live_service.url)
    page.goto(f"{live_service.url}/operator?q={workspace_id}")
    page.get_by_role("row").get_by_role("link").first.press("Enter")
    links = page.get_by_role("region", name="Share links")
    links.locator("summary").press("Enter")
    links.get_by_label("Reason").fill("Somebody else's <b>data</b>")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_have_text("It is suspended, from the next request on.")
    page.get_by_label("Points").fill("many")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Points is a whole number")
    page.get_by_role("link", name="Reports").press("Enter")
    suspended = page.get_by_role("listitem").filter(has_text=link["id"])
    expect(suspended).to_contain_text("Somebody else's <b>data</b>")
    suspended.get_by_role("button", name="Release").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("It is released")
    expect(suspended).to_have_count(0)
    context.close()
