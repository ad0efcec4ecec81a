"""The form that asks for a token, and the description of the API, in headless Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support import axe
from support.browser_pages import share_link, shoot
from support.event_files import scalar_event, version_event, write_records


@pytest.fixture
def experiment(uploader, tmp_path):
    events = [version_event(), scalar_event("loss", 1, 0.5)]
    write_records(tmp_path / "runs" / "train" / "events.out.tfevents.1.host", events)
    ended = uploader.run("--logdir", tmp_path / "runs", "--one-shot")
    assert ended.code == 0, ended.err
    return ended.experiment_id


def test_without_token_there_is_form_that_works_by_keyboard(
    page, uploader, experiment, live_service
):
    page.watch.is_expected = lambda problem: "401" in problem
    page.goto(f"{live_service.url}/experiment/{experiment}/?darkMode=true")
    expect(page.get_by_label("Token or share link")).to_be_focused()
    page.keyboard.type("tbh_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("This token does not open this experiment.")
    expect(page.get_by_label("Token or share link")).to_be_focused()
    page.keyboard.type(share_link(uploader, experiment).partition("token=")[2])
    page.keyboard.press("Tab")
    expect(page.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("card-view").first).to_be_visible()
    assert page.url.split("#")[0] == f"{live_service.url}/experiment/{experiment}/?darkMode=true"


def test_api_page_without_script_is_reference(browser, live_service):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{live_service.url}/api/v1/docs")
    document = page.request.get(f"{live_service.url}/api/v1/openapi.json").json()
    operations = page.locator("section:not([aria-label=schemas]) details")
    assert operations.count() == sum(map(len, document["paths"].values())) > 40
    listed = operations.filter(has_text="POST /api/v1/experiments/{experiment_id}/tokens").first
    listed.locator("summary").click()
    expect(listed.get_by_text("Create a token that may append").last).to_be_visible()
    listed.get_by_role("link", name="NewToken").first.click()
    schema = page.locator("#NewToken")
    schema.locator("summary").click()
    expect(schema.get_by_text("at least 1 items")).to_be_visible()
    assert page.locator("input:visible, form:visible").count() == 0
    context.close()


def test_api_page_tries_requests_with_typed_token(page, live_service, uploader):
    page.context.add_cookies([{"name": "any", "value": "1", "url": live_service.url}])
    answer = page.goto(f"{live_service.url}/api/v1/docs")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"

    shown = page.locator(".opblock-summary-control")
    expect(page.locator("#reference")).to_be_visible()
    assert not page.evaluate("'SwaggerUIBundle' in window")  # the viewer comes when it is wanted
    page.get_by_label("Search operations").press_sequentially("show_me")
    expect(shown).to_have_count(1)
    expect(page.get_by_label("Search operations")).to_have_value("show_me")
    expect(page.get_by_label("Search operations")).to_be_focused()
    kinds = {problem["id"] for problem in axe.find_problems(page)}
    # Swagger UI's own: links in the buttons and white on the colors of methods, a second `main`.
    assert kinds <= {"nested-interactive", "color-contrast", "landmark-main-is-top-level"}

    page.get_by_role("button", name="Authorize").click()
    dialog = page.locator(".auth-container").filter(has_text="HTTPBearer")
    dialog.locator("input").fill(uploader.token)
    dialog.get_by_role("button", name="Apply credentials").click()
    page.get_by_role("button", name="Close").first.click()
    shown.click()
    page.get_by_role("button", name="Try it out").click()
    with page.expect_request("**/api/v1/me") as tried:
        page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table")).to_contain_text('"scopes"')
    headers = tried.value.all_headers()
    assert headers["authorization"] == f"Bearer {uploader.token}"
    assert "cookie" not in headers
    assert uploader.token not in page.url
    assert not page.evaluate("localStorage.length + sessionStorage.length")
    shoot(page, "api_docs")
