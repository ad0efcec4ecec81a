"""One Chromium and one tenant for each module of browser tests."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect, sync_playwright

from support.browser_pages import launch, new_page
from support.people import new_member, sign_in
from support.uploading import Uploader
from support.waiting import SECONDS_MAX
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.types.people import Role

expect.set_options(timeout=SECONDS_MAX * 1000)


@pytest.fixture(scope="module")
def browser():
    # Not for the session: as long as Playwright's event loop runs in this thread, no other test can
    # have its own.
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, live_service):
    """A page of a new profile; problems in it fail the test."""
    page = new_page(browser, live_service.url)
    yield page
    problems = list(page.watch.problems)
    page.context.close()
    assert problems == []


@pytest.fixture(scope="module")
def uploader(live_service, tmp_path_factory):
    return Uploader(live_service.url, live_service.new_owner(), tmp_path_factory.mktemp("uploader"))


@pytest.fixture(scope="module")
def database(live_service):
    """The database of the live service."""
    database = Database(live_service.database_url, 2)
    yield database
    database.close()


@pytest.fixture
def owner_session(database, uploader):
    """The secret of a browser session of an owner of the uploader's workspace."""
    with database.transaction() as db:
        workspace_id = grants.identify(db, uploader.token).workspace_id
    return sign_in(database, new_member(database, workspace_id, Role.OWNER))
