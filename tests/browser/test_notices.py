"""The service's additions to TensorBoard's page: the bar above it, and notices that replace it,
say what to do, and then open it.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from support.browser_pages import share_link, shoot
from support.event_files import scalar_event, text_event, version_event, write_records
from support.servers import live_api

HOSTILE = '</header><img src=x onerror="document.title=1"><script>document.title=1</script>'


@pytest.fixture
def logdir(tmp_path):
    write_records(
        tmp_path / "runs" / "train" / "events.out.tfevents.1.host",
        [version_event(), scalar_event("loss", 1, 0.5)],
    )
    return tmp_path / "runs"


@pytest.fixture
def api(live_service, uploader):
    with live_api(live_service.url, uploader.token) as api:
        yield api


def test_bar_shows_name_and_visibility_and_works_by_keyboard(page, uploader, logdir):
    described = f"First line.\n{HOSTILE}\n" + "word " * 2000
    options = ("--new", "--name", HOSTILE, "--description", described, "--visibility", "link")
    experiment = uploader.run("--logdir", logdir, "--one-shot", *options).experiment_id
    page.goto(f"{uploader.server}/experiment/{experiment}/?darkMode=true&tagFilter=nothing")
    bar = page.locator("#tbhub-bar")
    name = bar.get_by_role("link", name=HOSTILE)
    expect(name).to_be_visible()
    expect(bar.get_by_text("Anyone with the URL")).to_be_visible()
    page.keyboard.press("Tab")
    expect(name).to_be_focused()
    bar.locator("summary", has_text="About").focus()
    page.keyboard.press("Enter")
    about = bar.get_by_role("region", name="About")
    expect(about).to_have_text(re.compile(r"^First line\.\n</header>"))
    expect(about).to_be_in_viewport()
    shoot(page, "bar")
    page.keyboard.press("Enter")
    expect(about).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    expect(page.locator("#tbhub-bar img, #tbhub-bar script")).to_have_count(0)
    name.focus()
    page.keyboard.press("Enter")
    expect(page.locator("card-view canvas").first).to_be_visible()
    assert page.url.split("#")[0] == f"{uploader.server}/experiment/{experiment}/"


def test_menu_of_bar_downloads_every_point_by_keyboard(page, uploader, logdir, api):
    more = [
        version_event(),
        text_event("note", 0, "text"),
        *(scalar_event("loss", step, 0.1) for step in range(1500)),
    ]
    write_records(logdir / "long" / "events.out.tfevents.1.host", more)
    described = ("--name", "Réseau 1/2", "--description", "What it is about.")
    experiment = uploader.run("--logdir", logdir, "--one-shot", "--new", *described).experiment_id
    page.goto(share_link(uploader, experiment))
    expect(page.locator("card-view canvas").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.watch.is_expected = lambda problem: "ERR_ABORTED" in problem and "/download/" in problem
    bar, menu = page.locator("#tbhub-bar"), page.get_by_text("Every point, at full resolution")
    bar.get_by_text("About this experiment").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")  # into what it says
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(menu).to_be_visible()
    expect(bar.get_by_role("region", name="About")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(bar.get_by_role("link", name="Scalars as CSV")).to_be_focused()
    shoot(page, "download")
    for kind, name in (("scalars", "csv"), ("scalars", "parquet"), ("tensors", "csv")):
        with page.expect_download() as started:
            page.keyboard.press("Enter")
        assert started.value.suggested_filename == f"Réseau 1_2-{kind}.{name}"
        every = {"sampling": "all", "format": name}
        expected = api.request(
            "GET", f"/experiments/{experiment}/{kind}/data", params=every
        ).content
        assert started.value.path().read_bytes() == expected
        page.keyboard.press("Tab")
    assert page.url.split("#")[0] == f"{uploader.server}/experiment/{experiment}/"
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(bar.get_by_text("Download")).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("card-view").first.click()
    expect(menu).to_be_hidden()


def test_empty_page_says_how_to_upload_and_reloads(page, uploader, logdir, api):
    experiment = api.new_experiment(name=HOSTILE, description="What I am about to do.")
    page.goto(share_link(uploader, experiment))  # the experiment may have data that it hides
    expect(page.get_by_role("heading")).to_have_text(HOSTILE)
    token = api.new_token(experiment, "read")
    page.goto(f"{uploader.server}/experiment/{experiment}/?token={token}")
    expect(page.get_by_role("heading")).to_have_text(f"{HOSTILE} is empty")
    expect(page.get_by_text("What I am about to do.")).to_be_visible()
    shoot(page, "empty")
    command = page.locator("code").first.inner_text().split()
    assert command[:2] == ["tbupload", "--logdir"]
    assert uploader.run("--logdir", logdir, *command[3:], "--one-shot").code == 0
    expect(page.locator("card-view canvas").first).to_be_visible()
