"""The stock page and our own form in headless Chromium: an upload through `tbupload`, as its
readers see it.
"""

from __future__ import annotations

import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from support.browser_pages import has_drawing, open_tab, share_link, shoot
from support.event_files import (
    image_event,
    scalar_event,
    text_event,
    version_event,
    write_records,
)

RED, BLUE = (255, 0, 0), (0, 0, 255)


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Two runs with scalars, images and texts."""
    logdir = tmp_path_factory.mktemp("logdir")
    for run, factor, colour in (("train", 1, RED), ("eval/<b>fast</b>", 2, BLUE)):
        events = [version_event()]
        events += [scalar_event("loss", step, factor / (1 + step)) for step in range(20)]
        events += [image_event("sample", step, [png(colour)]) for step in range(2)]
        events += [text_event("note", 0, f"a **bold** word <script>alert(1)</script> of {run}")]
        write_records(logdir / run / "events.out.tfevents.1.host", events)
    return logdir


def png(colour):
    content = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(content, "PNG")
    return content.getvalue()


@pytest.fixture(scope="module")
def experiment(uploader, logdir):
    ended = uploader.run_process("--logdir", logdir, "--one-shot", "--name", "Browsed")
    assert ended.code == 0, ended.err
    return ended.experiment_id


def test_share_link_opens_page_and_escapes_hostile_names(page, uploader, experiment):
    page.goto(share_link(uploader, experiment))
    assert "token" not in page.url
    expect(page).to_have_title("Browsed · TensorBoard")

    loss = page.locator("card-view").filter(has_text="Smoothed")
    for text in ("train", "eval/<b>fast</b>", "0.05", "19"):
        expect(loss.get_by_text(text, exact=True).first).to_be_visible()
    assert has_drawing(loss.locator("canvas").first)
    expect(page.locator("card-view img")).to_have_count(2)
    assert has_drawing(page.locator("card-view img").first)

    open_tab(page, "Text")
    expect(page.locator("tf-text-loader strong")).to_have_text(["bold", "bold"])
    expect(page.locator("tf-text-loader script")).to_have_count(0)


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
