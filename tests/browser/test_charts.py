"""Cards with curves in headless Chromium: looks, cursor, zoom, keyboard, live points, and without
JavaScript.
"""

from __future__ import annotations

import io
import json
import math
import re

import pytest
from PIL import Image
from playwright.sync_api import expect

from support.batches import images, scalars, segment, stream
from support.browser_pages import has_drawing, look_again, look_at, new_page, open_as
from support.hparams import HparamsClient, start
from support.people import new_member
from support.servers import live_api, new_workspace
from support.share_links import make_link
from support.waiting import wait_until
from tbservice.types.people import Role

STEPS = 5_000
HOSTILE = "<img src=x onerror=alert(1)>\u202e" + "x" * 500


@pytest.fixture(scope="module")
def workspace(live_service):
    return new_workspace(live_service.database_url)


@pytest.fixture(scope="module")
def api(live_service, workspace):
    with live_api(live_service.url, workspace.owner_token) as api:
        yield api


@pytest.fixture(scope="module")
def experiment(api):
    """An experiment of three runs with a long curve, gaps, one value, and hostile names."""
    id_ = api.new_experiment(name="Seeds of a model", notes="The **second** one is best.")
    client = HparamsClient(api, id_)
    for number, run in enumerate(("seed 0", "seed 1", HOSTILE)):
        losses = [
            2 / (1 + step / 500) + number / 5 + (step * 7919 % 100) / 400 for step in range(STEPS)
        ]
        gaps = [float("nan") if 40 <= step < 60 else step for step in range(100)]
        client.write(
            run,
            start({"lr": 10.0**-number}),
            scalars("loss", range(STEPS), losses),
            scalars("with gaps", range(100), gaps),
            scalars(f"metric {HOSTILE}", [1, 2], [1, number]),
            scalars("never finite", range(3), [float("nan")] * 3),
        )
    return id_


@pytest.fixture
def address(page, live_service, database, workspace, experiment):
    """The address of the experiment's page; an owner is signed in."""
    owner = new_member(database, workspace.workspace_id, Role.OWNER)
    open_as(page, database, owner, live_service.url)
    return f"{live_service.url}/experiment/{experiment}/about"


def card(page, name):
    return page.get_by_role("article", name=name, exact=True)


def drawn(page, name):
    """Return a card with a plot in place of its picture."""
    shown = card(page, name)
    expect(shown.locator("canvas").first).to_be_visible()
    return shown


def test_page_begins_with_curves_and_looks_well(page, address):
    page.goto(address)
    assert has_drawing(drawn(page, "loss").locator(".plot"))
    look_at(page, address, "charts")
    expect(page.locator("#chart-0")).to_have_text("loss")
    expect(card(page, "never finite").locator(".plot")).to_have_text("No value is finite.")
    expect(page.get_by_role("heading", name="Hyperparameters and last values")).to_be_visible()
    for tab in ("Downloads", "Access"):
        page.get_by_role("navigation", name="Experiment").get_by_role("link", name=tab).click()
        look_again(page, f"charts_{tab.lower()}")


def test_cursor_reads_values_and_zoom_loads_points(page, address):
    page.goto(address)
    loss = drawn(page, "loss")
    expect(loss.locator(".plot-note")).to_have_text("3 runs · 3,000 of 15,000 points")
    box = loss.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50, steps=3)
    with page.expect_response("**/scalars/data") as answered:
        page.mouse.up()
    steps = answered.value.json()["seed 0"]["loss"]["steps"]
    assert len(steps) > 450
    assert 2_400 < steps[0] < steps[-1] < 3_100
    expect(loss.get_by_role("button", name="Reset zoom")).to_be_visible()
    page.mouse.dblclick(box["x"] + 20, box["y"] + 50)
    expect(loss.get_by_role("button", name="Reset zoom")).to_be_hidden()
    expect(loss.locator(".plot-note")).to_have_text("3 runs · 3,000 of 15,000 points")

    plot = loss.locator(".u-over")
    plot.hover(position={"x": 60, "y": 60})
    tip = plot.locator(".plot-tip")
    expect(tip.locator(".plot-row")).to_have_count(3)
    expect(tip).to_contain_text("step ")
    expect(tip).to_contain_text(HOSTILE[:100])
    page.get_by_role("checkbox", name="seed 1").uncheck()
    plot.hover(position={"x": 61, "y": 60})
    expect(tip.locator(".plot-row")).to_have_count(2)
    page.get_by_label("Filter runs").fill("seed")
    expect(page.locator("[data-runs] li:visible")).to_have_count(2)
    plot.hover(position={"x": 62, "y": 60})
    expect(tip.locator(".plot-row")).to_have_count(1)


def test_card_is_read_and_zoomed_by_keyboard(page, address):
    page.goto(address)
    loss = drawn(page, "loss")
    loss.locator(".plot").focus()
    page.keyboard.press("Home")
    told = page.locator(".charts [aria-live]")
    expect(told).to_contain_text(re.compile(r"step 0.*seed 0"))
    page.keyboard.press("End")
    expect(told).to_contain_text("step 4,999")
    with page.expect_response("**/scalars/data"):
        page.keyboard.press("+")
    expect(loss.get_by_role("button", name="Reset zoom")).to_be_visible()
    page.watch.is_expected = lambda text: "ERR_FAILED" in text
    page.route("**/scalars/data", lambda route: route.abort())
    page.keyboard.press("+")
    note = "More points could not be loaded: the server cannot be reached"
    expect(loss.locator(".plot-note")).to_have_text(note)
    page.unroute("**/scalars/data")
    page.keyboard.press("Escape")
    expect(loss.get_by_role("button", name="Reset zoom")).to_be_hidden()
    loss.get_by_role("button", name="Enlarge").press("Enter")
    loss.locator("summary").first.press("Enter")
    expect(loss.locator("tbody tr")).to_have_count(3)
    loss.locator(".plot").press("Home")
    at_cursor = [re.compile(r"^2(\.|$)")] * 3
    expect(loss.locator("tbody td:last-child")).to_have_text(at_cursor)
    page.evaluate("cards[0].show()")  # as new points do
    expect(loss.locator("tbody td:last-child")).to_have_text(at_cursor)
    page.get_by_label("Logarithmic x").check()
    wait_until(lambda: page.evaluate("cards[0].isLogX"))
    assert page.evaluate("cards[0].xRange") == [1, STEPS - 1]
    page.get_by_label("Logarithmic y").check()
    page.get_by_label("X axis").select_option("relative")
    look_again(page, "charts_enlarged")
    page.reload()
    expect(page.get_by_label("Logarithmic y")).to_be_checked()


def test_scripts_smooth_as_tensorboard_and_merge_live_points(page, address):
    page.goto(address)
    drawn(page, "loss")
    values = [3.0, 1.0, float("nan"), 4.0, 1.5]
    last, count, expected = 0.0, 0, []
    for value in values:  # resmoothDataset of TensorBoard's line charts
        if not math.isnan(value):
            last, count = last * 0.6 + 0.4 * value, count + 1
        expected.append(None if math.isnan(value) else last / (1 - 0.6**count))
    script = "v => smooth(v.map(e => e ?? NaN), 0.6).map(e => isNaN(e) ? null : e)"
    smoothed = page.evaluate(script, [None if math.isnan(v) else v for v in values])
    assert smoothed == pytest.approx(expected)
    assert page.evaluate("smooth([2, 2, 2], 0.9)") == [2, 2, 2]
    assert page.evaluate("[12345, 0.12345, 1234567].map(each => showNumber(each))") == ["12345", "0.1235", "1.235e+6"]  # fmt: skip
    for show, ticks, texts in (
        ("showNumber", [0.99991, 0.999911], ["0.99991", "0.999911"]),
        ("showStep", [None, 12_345_000, 12_345_010], ["", "12.345M", "12.34501M"]),
        ("showSeconds", [6_000, 6_001, 6_002], ["1.6667 h", "1.6669 h", "1.6672 h"]),
    ):
        assert page.evaluate(f"ticks => showTicks(ticks, {show}, 4)", ticks) == texts

    before = {"steps": [0, 1, 2, 3], "walls": [0, 1, 2, 3], "values": [0, 1, 2, 3], "total": 4}
    added = {"steps": [2, 5], "walls": [9, 9], "values": [7, 8], "total": 2}
    for start_at, steps, values in ((None, [0, 1, 2, 3, 5], [0, 1, 7, 3, 8]), (2, [0, 1, 2, 5], [0, 1, 7, 8])):  # fmt: skip
        merged = page.evaluate("([a, b, from]) => mergePoints(a, b, from)", [before, added, start_at])  # fmt: skip
        assert (merged["steps"], merged["values"]) == (steps, values)


def test_new_points_appear_without_reload(page, live_service, database, workspace, api):
    id_ = api.new_experiment(name="Training")
    notes = f"![A card](/experiment/{id_}/card.svg)"
    api.request("PATCH", f"/experiments/{id_}", json={"notes": notes}).raise_for_status()

    def write(begin, end, first):
        loss = scalars("loss", [first, first + 1])
        api.write(id_, segment(stream("train"), begin, end, loss))

    write(0, 9, 0)
    upload = f"/experiments/{id_}/uploads/{'0' * 16}"
    started = {"started_at": "2026-01-31T12:00:00Z"}
    api.request("PUT", upload, json=started).raise_for_status()
    open_as(page, database, new_member(database, workspace.workspace_id), live_service.url)
    # A server that is busy at that moment does not end what is live.
    page.watch.is_expected = lambda text: "503" in text
    for path in ("new", "data"):
        page.route(f"**/scalars/{path}", lambda route: route.fulfill(status=503), times=1)
    page.clock.install()
    with page.expect_response("**/scalars/tail"):
        page.goto(f"{live_service.url}/experiment/{id_}/about")
    loss = drawn(page, "loss")
    loss.locator("summary").first.click()
    expect(loss.locator("tbody td").first).to_have_text("1")
    write(9, 18, 2)
    expect(loss.locator("tbody td").first).to_have_text("3")
    expect(page).to_have_title(re.compile(r"^3 · Training"))
    expect(page.get_by_role("img", name="A card")).to_have_attribute("src", re.compile("^blob:"))
    api.write(id_, segment(stream("another"), 0, 9, scalars("loss", [1, 2])))
    expect(page.get_by_text("Other runs have data now.")).to_be_visible()

    # A connection that is silent for longer than the server is: it is gone.
    page.route("**/scalars/tail", lambda route: route.fulfill(status=503), times=2)
    page.clock.fast_forward(45_000)
    away = page.get_by_text("The server does not answer.")
    expect(away).to_be_visible()
    expect(away).to_have_count(0)

    # A hidden page asks nothing; shown again, it continues where it was.
    page.evaluate("""() => {
        Object.defineProperty(document, "hidden", {get: () => window.isAway ?? true, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    write(18, 27, 4)
    assert asked == []
    page.evaluate("isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(loss.locator("tbody td").first).to_have_text("5")
    api.request("PATCH", upload, json={"status": "failed"}).raise_for_status()
    expect(page.locator("[data-status]")).to_have_text(["Failed"] * 2)

    api.request("DELETE", f"/experiments/{id_}").raise_for_status()
    expect(
        page.get_by_text("New points are not shown any more: your access has ended")
    ).to_have_count(1)


def test_last_image_of_each_series_is_shown(page, live_service, database, workspace, api):
    png = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(png, "PNG")
    id_ = api.new_experiment(name="Pictures")
    hostile = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    sequences = [
        images("good", [1, 2], [[b"8", b"8", b"no image"], [b"8", b"8", png.getvalue()]]),
        images("hostile", [1], [[b"8", b"8", hostile]]),
        images("empty", [1], [[b"8", b"8"]]),
    ]
    api.write(id_, segment(stream("run"), 0, 9, *sequences))
    open_as(page, database, new_member(database, workspace.workspace_id), live_service.url)
    page.goto(f"{live_service.url}/experiment/{id_}/about")
    shown = page.get_by_role("img", name="good of run, step 2")
    expect(shown).to_be_visible()
    assert shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
    expect(page.get_by_text("No image", exact=True)).to_have_count(2)
    look_again(page, "images")


def test_sharing_is_a_dialog(page, address):
    page.goto(address)
    page.get_by_role("link", name="Share").press("Enter")
    dialog = page.get_by_role("dialog", name="Share")
    expect(dialog.get_by_role("heading", name="New link")).to_be_visible()
    look_again(page, "share_dialog")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_reader_of_link_sees_curves_of_its_slice(browser, live_service, api, experiment):
    link = make_link(api, experiment, runs="seed.*", tags="loss")
    page = new_page(browser, live_service.url)
    page.watch.is_expected = lambda problem: (
        "ERR_ABORTED" in problem
    )  # TensorBoard's, when it is left
    page.goto(link["url"])
    page.locator("#tbhub-bar").get_by_role("link", name="Details").click()
    loss = drawn(page, "loss")
    expect(page.get_by_role("article")).to_have_count(1)
    loss.locator("summary").first.click()
    expect(loss.locator("tbody tr")).to_have_count(2)
    expect(page.locator("main")).to_contain_text("The second one is best.")
    look_again(page, "charts_of_link")
    page.goto(f"{live_service.url}/experiment/{experiment}/embed?token={link['token']}")
    assert has_drawing(drawn(page, "loss").locator(".plot"))
    with page.expect_response("**/scalars/tail"):
        page.goto(f"{page.url}&group=run")
    loss = drawn(page, "loss")
    expect(loss.locator(".plot-note")).to_contain_text("2 groups of 2 runs")
    with page.expect_response("**/embed/groups?*"):
        api.write(experiment, segment(stream("seed 9"), 0, 9, scalars("loss", [1, 2])))
    expect(page.get_by_text("Other runs have data now.")).to_be_visible()
    assert page.watch.problems == []
    page.context.close()


def test_selected_runs_are_compared(page, live_service, database, workspace, experiment):
    viewer = new_member(database, workspace.workspace_id, Role.VIEWER)
    open_as(page, database, viewer, live_service.url)
    where = json.dumps(experiment)
    page.goto(
        f"{live_service.url}/workspace/{workspace.workspace_id}/runs?where=experiment = {where}"
    )
    for run in ("seed 0", "seed 1"):
        page.get_by_role("checkbox", name=run).check()
    page.get_by_role("button", name="Compare selected").press("Enter")
    assert has_drawing(drawn(page, "loss").locator(".plot"))
    lr = page.get_by_role("row", name="lr")
    expect(lr.get_by_role("cell")).to_have_text(["1", "0.1"])
    look_again(page, "runs_compared")
    page.get_by_text("Equal in all runs").click()
    look_again(page, "runs_equal")
    picture = page.get_by_role("article", name="loss").locator("summary", has_text="Picture")
    picture.press("Enter")
    look_again(page, "runs_picture")
    page.get_by_role("link", name="PNG").first.press("Enter")
    expect(page.locator("img")).to_be_visible()  # as browsers show a picture


def test_groups_end_with_their_last_step_and_follow_new_points(
    page, live_service, database, workspace, api
):
    ended = api.new_experiment(name="Runs of two lengths")
    runs = [
        segment(stream(run), 0, 9, scalars("length", range(steps), [steps] * steps))
        for run, steps in (("short", 3), ("long", 10))
    ]
    api.write(ended, *runs)
    open_as(
        page, database, new_member(database, workspace.workspace_id, Role.VIEWER), live_service.url
    )
    query = f"where=experiment = {json.dumps(ended)}&group=run"
    with page.expect_response("**/scalars/tail"):
        page.goto(f"{live_service.url}/workspace/{workspace.workspace_id}/runs/compare?{query}")
    plot = drawn(page, "length").locator(".plot")
    plot.press("Home")
    expect(plot.locator(".plot-row")).to_have_count(2)
    plot.press("End")
    expect(plot.locator(".plot-row")).to_have_text(["run=long10 (1)"])
    api.write(ended, segment(stream("short"), 9, 18, scalars("length", [9], [4.0])))
    expect(plot.locator(".plot-row")).to_have_text(["run=short4 (1)", "run=long10 (1)"])
    page.get_by_label("X axis").select_option("relative")
    with page.expect_response("**/runs/compare/groups?*step_min=*") as answered:
        plot.press("+")
    assert [curve["group"] for curve in answered.value.json()["cards"][0]] == [0, 1]
    expect(page.get_by_role("button", name="Reset zoom of length")).to_be_visible()


@pytest.fixture(scope="module")
def crowd(api):
    """An experiment of more runs than cards draw: run 7 is far above the others."""
    experiment = api.new_experiment(name="A thousand and one runs")
    steps = range(20)
    segments = []
    for run in range(1_001):
        values = [50.0 if run == 7 else math.sin(run * 7919 + step) for step in steps]
        segments.append(segment(stream(f"run {run}"), 0, 1, scalars("loss", steps, values)))
    for first in range(0, len(segments), 100):
        api.write(experiment, *segments[first : first + 100])
    return experiment


def test_card_of_many_runs_shows_quantiles_and_finds_any_run(page, address, crowd, api):
    page.goto(f"{address.partition('/experiment')[0]}/experiment/{crowd}/about")
    shown = drawn(page, "loss")
    expect(shown.locator(".plot-note")).to_contain_text("1,001 runs, 20,020 points: quantiles")
    assert has_drawing(shown.locator(".plot"))
    look_again(page, "charts_many_runs")
    cut = "axis without outliers"
    expect(shown.locator(".plot-note")).to_contain_text(cut)
    page.get_by_label("Ignore outliers").press("Space")
    expect(shown.locator(".plot-note")).not_to_contain_text(cut)
    over = shown.locator(".u-over")
    box = over.bounding_box()
    over.hover(position={"x": box["width"] / 2, "y": 8})
    expect(shown.locator(".plot-tip")).to_contain_text("Nearest: run 7")
    expect(shown.locator(".plot-tip")).to_contain_text("1,001 runs")
    page.get_by_label("run 1000", exact=True).check()
    expect(shown.locator(".plot-note")).to_contain_text("1 drawn")
    points = scalars("loss", [20], [0.5])
    api.write(crowd, segment(stream("run 3"), 1, 2, points))
    expect(shown.locator(".plot-note")).to_contain_text("20,021 points")
