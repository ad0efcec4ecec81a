"""A shared page in headless Chromium: a stranger reports it, and an operator suspends it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser_pages import look_again, look_at
from support.event_files import scalar_event, version_event, write_records
from support.suspending import release, suspend


@pytest.fixture
def link(uploader, tmp_path):
    """A share link of an experiment with a run."""
    events = [version_event(1.7e9)]
    events += [scalar_event("loss", step, 1.0 / (step + 1), 1.7e9 + step) for step in range(9)]
    write_records(tmp_path / "logs" / "train" / "events.out.tfevents.1", events)
    sent = uploader.run("--logdir", tmp_path / "logs", "--one-shot", "--name", "A paper")
    assert sent.code == 0, sent.err
    return uploader.run("share", sent.experiment_id).out.strip()


def test_shared_page_is_reported_and_suspended(page, live_service, database, link):
    experiment = link.partition("/experiment/")[2].partition("/")[0]
    # TensorBoard asks for more, again and again, also when its reader leaves.
    page.watch.is_expected = lambda problem: "ERR_ABORTED" in problem or "451" in problem
    page.goto(link)
    page.get_by_role("link", name="Report this page").click()
    look_again(page, "page_report")
    page.get_by_label("It is against the law").check()
    page.get_by_label("More about it").fill("<b>See</b> the second chart")
    page.get_by_label("Your e-mail address").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Thank you")
    look_again(page, "page_reported")

    about = f"{live_service.url}/experiment/{experiment}/about"
    page.goto(about)
    expect(page.get_by_role("link", name="Report this page")).to_be_visible()
    suspend(database, "experiment", experiment, "It shows <b>secrets</b> of somebody else")
    look_at(page, about, "page_suspended")
    expect(page.get_by_role("main")).to_contain_text("It shows <b>secrets</b> of somebody else")
    page.goto(link.partition("?")[0])
    expect(page.get_by_role("heading", level=1)).to_have_text("This is suspended")
    release(database, "experiment", experiment)
    page.goto(about)
    expect(page.get_by_role("heading", level=1)).to_have_text("A paper")
