"""Share links in headless Chromium: make one on the page, open it as a stranger, revoke it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at, new_page
from support.event_files import scalar_event, version_event, write_records


@pytest.fixture
def experiment(uploader, tmp_path):
    """An experiment with a run to share, and one to hide."""
    for run in ("train", "secret-run"):
        events = [version_event(1.7e9)]
        events += [scalar_event("loss", step, 1.0 / (step + 1), 1.7e9 + step) for step in range(9)]
        write_records(tmp_path / "logs" / run / "events.out.tfevents.1", events)
    sent = uploader.run("--logdir", tmp_path / "logs", "--one-shot", "--name", "A paper")
    assert sent.code == 0, sent.err
    return sent.experiment_id


def test_link_is_made_opened_and_revoked(page, browser, live_service, experiment, owner_session):
    cookie = {"name": "tbhub_session", "value": owner_session, "url": live_service.url}
    page.context.add_cookies([cookie])
    address = f"{live_service.url}/experiment/{experiment}/links"
    look_at(page, address, "links_none")
    page.get_by_label("Label", exact=True).fill("Reviewers")
    page.get_by_label("Only runs that match").fill("train")
    page.get_by_text("Hides who uploaded").click()
    page.get_by_label("Label", exact=True).press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Copy the link now")
    link = page.get_by_label("Reviewers").input_value()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    look_again(page, "link_created")

    stranger = new_page(browser, live_service.url)
    stranger.goto(link)
    expect(stranger.get_by_text("train").first).to_be_visible()
    assert "token" not in stranger.url
    assert "secret-run" not in stranger.content()
    names = stranger.evaluate("fetch('data/runs').then((answer) => answer.json())")
    assert names == ["train"]

    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("anonymous", exact=True)).to_be_visible()
    look_at(page, address, "links")
    page.get_by_text("Rename").first.click()
    page.get_by_label("New label of the link Reviewers").fill("Reviewers of <b>it</b>")
    page.get_by_role("button", name="Save").press("Enter")
    expect(page.get_by_text("Reviewers of <b>it</b>", exact=True)).to_be_visible()
    page.get_by_role("button", name="Revoke the link").press("Enter")
    expect(page.get_by_text("Revoked", exact=True)).to_be_visible()
    look_again(page, "links_revoked")

    stranger.watch.is_expected = lambda problem: "401" in problem
    stranger.goto(link.partition("?")[0])
    expect(stranger.get_by_text("access has ended")).to_be_visible()
    stranger.context.close()
