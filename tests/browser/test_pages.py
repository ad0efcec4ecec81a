"""The stock page and our own form in headless Chromium: an upload through `tbupload`, seen as its readers see it."""

from __future__ import annotations

import io
import re
import shutil

import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from tensorboard.compat.proto.graph_pb2 import GraphDef

from support.event_files import (
    graph_event,
    histogram_event,
    image_event,
    scalar_event,
    text_event,
    version_event,
    write_records,
)
from support.uploading import Uploader, wait_until

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
RED, BLUE = (255, 0, 0), (0, 0, 255)

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def browser():
    """A Chromium of the system's; a missing one is a failure that says what to install."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert program, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield browser
        browser.close()


class Watch:
    """Notes what goes wrong in a page: failed requests, errors, policy violations, requests to anywhere else."""

    def __init__(self, page, server):
        self.problems = []
        self.is_expected = lambda _problem: False
        page.on("response", lambda got: self._note(got.status >= 400, f"{got.status} {got.url}"))
        page.on("requestfailed", lambda request: self._note(True, f"{request.failure} {request.url}"))
        page.on("request", lambda request: self._note(not _is_own(request.url, server), f"outside: {request.url}"))
        page.on("console", lambda message: self._note(message.type == "error", message.text))
        page.on("pageerror", lambda error: self._note(True, str(error)))

    def _note(self, is_problem, text):
        if is_problem and not self.is_expected(text):
            self.problems.append(text)


def _is_own(url, server):
    return url.startswith((server + "/", "data:", "blob:"))


@pytest.fixture
def page(browser, live_service):
    """A page of a fresh profile; the test fails when anything in it has."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.watch = Watch(page, live_service.url)
    yield page
    problems = list(page.watch.problems)
    context.close()
    assert problems == []


@pytest.fixture(scope="module")
def uploader(live_service, tmp_path_factory):
    return Uploader(live_service.url, live_service.new_owner(), tmp_path_factory.mktemp("uploader"))


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Two runs with scalars, histograms, images and texts; one has a graph."""
    logdir = tmp_path_factory.mktemp("logdir")
    for run, factor, colour in (("train", 1, RED), ("eval/<b>fast</b>", 2, BLUE)):
        events = [version_event()]
        events += [scalar_event("loss", step, factor / (1 + step)) for step in range(20)]
        events += [histogram_event("weights", step, [[0, 1, 3], [1, 2, 5 * factor]]) for step in range(3)]
        events += [image_event("sample", step, [png(colour)]) for step in range(2)]
        events += [text_event("note", 0, f"a **bold** word <script>alert(1)</script> of {run}")]
        events += [graph_event(graph())] if factor == 1 else []
        write_records(logdir / run / "events.out.tfevents.1.host", events)
    return logdir


def png(colour):
    content = io.BytesIO()
    Image.new("RGB", (32, 32), colour).save(content, "PNG")
    return content.getvalue()


def graph():
    graph = GraphDef()
    graph.node.add(name="input", op="Placeholder")
    graph.node.add(name="product", op="MatMul", input=["input"])
    return graph.SerializeToString()


@pytest.fixture(scope="module")
def experiment(uploader, logdir):
    ended = uploader.run("--logdir", logdir, "--one-shot", "--name", "Browsed")
    assert ended.code == 0, ended.err
    return ended.experiment_id


def share_link(uploader, experiment):
    ended = uploader.run("share", experiment)
    assert ended.code == 0, ended.err
    return re.search(r"http\S+\?token=tbh_\w+", ended.out)[0]


def open_tab(page, name):
    page.locator(".mat-mdc-tab").filter(has_text=re.compile(rf"^\s*{name}\s*$", re.IGNORECASE)).click()


def has_drawing(locator):
    """Waits until over 100 pixels of an element, as it is seen, are far from grey: lines, areas, pictures."""

    def is_drawn():
        image = Image.open(io.BytesIO(locator.screenshot())).convert("HSV")
        return sum(image.getchannel("S").histogram()[128:]) > 100

    return wait_until(is_drawn)


def test_a_share_link_shows_every_dashboard_in_a_fresh_browser(page, uploader, experiment):
    page.goto(share_link(uploader, experiment))
    assert "token" not in page.url
    expect(page).to_have_title("Browsed · TensorBoard")

    loss = page.locator("card-view").filter(has_text="Smoothed")
    for text in ("train", "eval/<b>fast</b>", "0.05", "19"):
        expect(loss.get_by_text(text, exact=True).first).to_be_visible()
    assert has_drawing(loss.locator("canvas").first)
    expect(page.locator("card-view img")).to_have_count(2)
    assert has_drawing(page.locator("card-view img").first)

    open_tab(page, "Scalars")
    assert has_drawing(page.locator("tf-scalar-card vz-line-chart2"))
    open_tab(page, "Images")
    expect(page.locator("tf-image-loader img")).to_have_count(2)
    assert has_drawing(page.locator("tf-image-loader img").last)
    open_tab(page, "Graphs")
    expect(page.locator("tf-graph-scene g.node")).to_contain_text(["input", "product"])
    open_tab(page, "Distributions")
    assert has_drawing(page.locator("vz-distribution-chart").first)
    open_tab(page, "Histograms")
    expect(page.locator("vz-histogram-timeseries .histogram path")).to_have_count(6)
    assert has_drawing(page.locator("vz-histogram-timeseries").first)
    open_tab(page, "Text")
    expect(page.locator("tf-text-loader strong")).to_have_text(["bold", "bold"])
    expect(page.locator("tf-text-loader script")).to_have_count(0)


def test_what_is_uploaded_later_appears_on_reload(page, uploader, tmp_path):
    path = tmp_path / "live" / "train" / "events.out.tfevents.1.host"
    write_records(path, [version_event(), scalar_event("loss", 1, 0.5)])
    first = uploader.run("--logdir", tmp_path / "live", "--one-shot")
    page.goto(share_link(uploader, first.experiment_id))
    expect(page.get_by_text("0.5", exact=True).first).to_be_visible()
    write_records(path, [scalar_event("loss", 2, 0.125)], append=True)
    assert uploader.run("--logdir", tmp_path / "live", "--one-shot", "--experiment", first.experiment_id).code == 0
    page.locator(".reload-button").click()
    expect(page.get_by_text("0.125", exact=True).first).to_be_visible()


def test_without_a_token_there_is_a_form_that_works_by_keyboard(page, uploader, experiment, live_service):
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


def test_a_share_link_opens_no_other_experiment(page, uploader, experiment, live_service, logdir):
    page.watch.is_expected = lambda problem: "401" in problem
    other = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    page.goto(share_link(uploader, experiment))
    expect(page.locator("card-view").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.goto(f"{live_service.url}/experiment/{other}/")
    expect(page.get_by_label("Token or share link")).to_be_visible()
