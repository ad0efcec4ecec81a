"""Two experiments on one page, opened with a link to each: curves in one chart, sessions in one
table.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from support.browser_pages import has_drawing, open_tab, share_link, shoot
from support.uploading import experiment_id_of
from tbservice.local.demo import write_demo_logdir
from tbservice.local.demo.sessions import SESSIONS


@pytest.fixture(scope="module")
def links(uploader, tmp_path_factory):
    """Share links of two experiments with the same runs, tags and hyperparameters."""
    logdir = tmp_path_factory.mktemp("compared")
    write_demo_logdir(logdir)
    options = ("--one-shot", "--new", "--plugins", "scalars,hparams")
    ended = [
        uploader.run("--logdir", logdir, *options, "--name", name) for name in ("First", "Second")
    ]
    assert [upload.code for upload in ended] == [0, 0], ended
    return [share_link(uploader, upload.experiment_id) for upload in ended]


def test_comparison_shows_runs_and_sessions_of_both(page, uploader, links):
    page.watch.is_expected = lambda problem: "401" in problem
    before, after = map(experiment_id_of, links)
    page.goto(f"{uploader.server}/compare/before:{before},after:{after}")
    page.get_by_label("Tokens or share links").fill(" ".join(links))
    page.get_by_role("button", name="Open the comparison").click()
    bar = page.locator("#tbhub-bar")
    expect(bar.get_by_role("link", name="Second")).to_have_attribute(
        "href", f"../../experiment/{after}/"
    )
    page.watch.is_expected = lambda _problem: False
    page.get_by_role("combobox", name="Filter tags (regex)").fill("^loss$")
    page.keyboard.press("Escape")
    card = page.locator("card-view").first
    assert has_drawing(card.locator("canvas").first)
    runs = page.locator("runs-data-table tb-data-table-content-row")
    for name in ("before", "after"):
        expect(runs.filter(has_text=f"{name}/{SESSIONS[0].run}/validation")).to_be_visible()
    page.wait_for_load_state("networkidle")
    shoot(page, "compare_time_series")
    open_tab(page, "HParams")
    table = page.locator("tf-hparams-table-view")
    for choice in SESSIONS:
        for name in ("before", "after"):
            expect(table.get_by_text(f"{name}/{choice.run}", exact=True)).to_be_visible()
    page.wait_for_load_state("networkidle")
    shoot(page, "compare_hparams")
