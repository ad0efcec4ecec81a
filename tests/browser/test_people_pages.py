"""The pages of people in headless Chromium: sign in by a link, account, workspace, invitation."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at, new_page
from support.page_forms import new_link
from support.people import new_member, new_person, sign_in
from support.servers import new_workspace
from tbservice.store.pg.database import Database
from tbservice.types import Role


@pytest.fixture(scope="module")
def database(live_service):
    database = Database(live_service.database_url, 2)
    yield database
    database.close()


@pytest.fixture(scope="module")
def workspace_id(live_service):
    return new_workspace(live_service.database_url).workspace_id


@pytest.fixture(scope="module")
def ann(database, workspace_id):
    """An owner of the workspace."""
    return new_member(database, workspace_id, Role.OWNER)


def open_as(page, database, person, server):
    """Give the page's profile a browser session of a person."""
    page.context.add_cookies(
        [{"name": "tbhub_session", "value": sign_in(database, person), "url": server}]
    )


def test_link_of_this_machine_opens_pages_signed_in(page, live_service, database):
    address = f"{live_service.url}/sign-in/link?token={new_link(database, new_person(database))}"
    page.goto(f"{address}&next=/me")
    expect(page).to_have_url(f"{live_service.url}/me")
    expect(page.get_by_text("This browser", exact=True)).to_be_visible()
    page.watch.is_expected = lambda problem: "404" in problem
    look_at(page, address, "dead_link")
    expect(page.get_by_role("heading", level=1)).to_have_text("This link does not work any more")


def test_link_needs_click_where_scripts_are_off(browser, live_service, database):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    ann = new_person(database, name="Ann Example")
    page.goto(f"{live_service.url}/sign-in/link?token={new_link(database, ann)}&next=/me")
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in as Ann Example")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Sign in").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live_service.url}/me")
    page.get_by_label("Name").fill("Ann Other")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("Your name was changed.")
    page.locator("summary", has_text="Ann Other").click()
    page.get_by_role("button", name="Sign out").first.click()
    expect(page.get_by_role("link", name="Sign in").first).to_be_visible()
    context.close()


def test_sign_in_pages_look_well(page, live_service, database):
    look_at(page, f"{live_service.url}/me", "sign_in")
    expect(page).to_have_url(f"{live_service.url}/sign-in?next=%2Fme")
    open_as(page, database, new_person(database, name="Bob Example"), live_service.url)
    ann = new_person(database, name="Ann Example")
    look_at(page, f"{live_service.url}/sign-in/link?token={new_link(database, ann)}", "link")
    expect(page.get_by_text("You are signed in as Bob Example")).to_be_visible()
