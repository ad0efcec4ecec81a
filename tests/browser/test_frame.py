"""The frame of our own pages in headless Chromium: light, dark, on a phone, without JavaScript."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at


def test_landing_page_says_what_this_is_and_how_to_upload(page, live_service):
    look_at(page, f"{live_service.url}/", "landing")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"tbupload login --server {live_service.url}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("path", ["/nothing", "/static/0/nothing.css"])
def test_unknown_address_shows_page(page, live_service, path):
    page.watch.is_expected = lambda problem: "404" in problem
    look_at(page, f"{live_service.url}{path}", "error_404")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing here")
    page.get_by_role("link", name="Go to the start page").click()
    expect(page).to_have_url(f"{live_service.url}/")


def test_documentation_is_searched_and_read(page, live_service):
    look_at(page, f"{live_service.url}/docs", "docs")
    page.get_by_label("Search the documentation").fill("exit codes")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    look_again(page, "docs_found")
    page.get_by_role("link", name="Exit codes and output").first.click()
    look_again(page, "docs_page")
    heading = page.get_by_role("heading", name="Exit codes and output")
    expect(heading).to_be_in_viewport()
