"""The form that asks for a token, and the description of the API, in headless Chromium."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

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


def test_api_docs_need_no_script_and_no_other_server(page, live_service):
    answer = page.goto(f"{live_service.url}/api/v1/docs")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == (
        "nosniff",
        "no-referrer",
    )
    document = page.request.get(f"{live_service.url}/api/v1/openapi.json").json()
    operations = page.locator("section:not([aria-label=schemas]) details")
    assert operations.count() == sum(map(len, document["paths"].values())) > 40
    listed = operations.filter(has_text="POST /api/v1/experiments/{experiment_id}/tokens").first
    listed.locator("summary").click()
    expect(listed.get_by_text("Create a token that may append")).to_be_visible()
    shoot(page, "api_docs")
    listed.get_by_role("link", name="NewToken").first.click()
    schema = page.locator("#NewToken")
    schema.locator("summary").click()
    expect(schema.get_by_text("at least 1 items")).to_be_visible()
    assert page.locator("script, input, form").count() == 0
    assert page.request.get(f"{live_service.url}/docs/oauth2-redirect").status == 404
