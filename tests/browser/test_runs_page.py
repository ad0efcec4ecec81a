"""The page of runs of a workspace in headless Chromium: its looks, filter, order and errors, by the
keyboard and without JavaScript.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from support.batches import scalars, segment, stream
from support.browser_pages import (
    has_drawing,
    look_again,
    look_at,
    new_page,
    open_as,
    open_tab,
    shoot,
)
from support.hparams import HparamsClient, end, start
from support.people import new_member
from support.servers import live_api, new_workspace
from tbservice.types.people import Role

COUNT_FAINT_PIXELS = """
canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
    .filter((value, index) => index % 4 === 3 && value > 30 && value < 90).length
"""
"""Script that counts the pixels of a canvas that are filled, but hardly: areas, not lines."""


@pytest.fixture(scope="module")
def workspace(live_service):
    """A workspace with the runs of two experiments, one with a hostile name."""
    workspace = new_workspace(live_service.database_url)
    with live_api(live_service.url, workspace.owner_token) as api:
        for name in ("sweep", "<b>x</b>"):
            client = HparamsClient(api, api.new_experiment(name=name))
            for number in range(15):
                lr = 0.1 / (number + 1) if number else "auto"
                losses = [2.0 / (step + number + 1) for step in range(5)]
                client.write(
                    f"trial {number} <i>{name}</i>",
                    start({"lr": lr, "optimizer": ("adam", "sgd")[number % 2]}),
                    end("STATUS_FAILURE" if number == 3 else "STATUS_SUCCESS"),
                    scalars("loss", range(5), losses),
                    scalars("val/accuracy", range(5), [1 - each for each in losses]),
                )
    return workspace


@pytest.fixture
def address(page, live_service, database, workspace):
    """The address of the page; a viewer is signed in."""
    viewer = new_member(database, workspace.workspace_id, Role.VIEWER)
    open_as(page, database, viewer, live_service.url)
    return f"{live_service.url}/workspace/{workspace.workspace_id}/runs"


def open_without_javascript(browser, database, workspace, live_service):
    """Return a page of a browser without JavaScript, in which a viewer is signed in."""
    page = browser.new_context(java_script_enabled=False).new_page()
    viewer = new_member(database, workspace.workspace_id, Role.VIEWER)
    open_as(page, database, viewer, live_service.url)
    return page


def test_runs_page_looks_well(page, address):
    look_at(page, address, "runs")
    expect(page.locator("tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Next page").click()
    expect(page.locator("tbody tr")).to_have_count(5)


def test_runs_page_is_filtered_and_sorted_by_keyboard(page, address):
    page.goto(address)
    page.get_by_label("Filter").fill('lr < 0.02 and optimizer = "adam" and loss.min < 0.2')
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.get_by_text("Equal in all runs: optimizer = adam")).to_be_visible()
    expect(page.get_by_role("link", name="optimizer")).to_have_count(0)
    link = page.get_by_role("link", name="loss", exact=True)
    link.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    expect(page.locator("tbody .name").first).to_contain_text("trial 14")
    page.locator("th[aria-sort=ascending] a").press("Enter")
    expect(page.locator("tbody .name").first).to_contain_text("trial 6")
    expect(page.get_by_label("Columns, with commas between")).to_be_hidden()  # the heads sort
    page.locator("summary", has_text="sorted by").press("Enter")
    page.get_by_label("Columns, with commas between").fill("status, lr, loss.min")
    page.keyboard.press("Enter")
    expect(page.locator("thead th")).to_have_count(5)  # one of them for the boxes
    look_again(page, "runs_filtered")


def test_runs_page_shows_groups(page, address):
    page.goto(address)
    page.get_by_text("Columns, order and groups").click()
    page.get_by_label("Group by").fill("optimizer")
    page.get_by_label("Columns, with commas between").fill("loss, val/accuracy.max")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("adam")
    expect(page.locator("tbody tr").first.locator("td").nth(2)).to_contain_text("± 0.")
    page.get_by_role("link", name="loss", exact=True).press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    look_again(page, "runs_groups")


def test_selected_runs_are_tagged_and_table_is_copied(page, live_service, database, workspace):
    open_as(page, database, new_member(database, workspace.workspace_id), live_service.url)
    address = f"{live_service.url}/workspace/{workspace.workspace_id}/runs"
    page.goto(f"{address}?where=lr+<+0.01&pin=loss.min,optimizer")
    page.get_by_label("Select all on this page").check()
    expect(page.locator("[data-selected-count]")).to_have_text("10 selected")
    page.locator("summary", has_text="Tag").press("Enter")
    page.get_by_label("Tags, with commas between them").fill("best, <i>x</i>")
    look_again(page, "runs_tag")
    page.get_by_label("Tags, with commas between them").press("Enter")
    expect(page.get_by_text("The tags were changed.")).to_be_visible()
    expect(page.locator("tbody .badge", has_text="best")).to_have_count(10)
    page.locator("summary", has_text="Copy").press("Enter")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy LaTeX").press("Enter")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.count("textless{}i\\textgreater") == 10  # the names are escaped
    look_again(page, "runs_copied")

    page.goto(f'{address}?where=tags+%3D+"best"')
    page.get_by_role("checkbox", name="trial 14").first.check()
    page.get_by_role("button", name="Delete selected").press("Enter")
    expect(page.get_by_role("heading", name="Delete 1 run?")).to_be_visible()
    look_again(page, "runs_delete")
    page.get_by_role("link", name="Cancel").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(10)


def test_runs_page_says_what_is_wrong_without_javascript(
    browser, address, database, workspace, live_service
):
    page = open_without_javascript(browser, database, workspace, live_service)
    page.goto(address)
    page.get_by_label("Filter").fill("lr < adam")
    page.get_by_role("button", name="Filter").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("character 6: expected a number")
    expect(page.get_by_label("Filter")).to_have_value("lr < adam")
    page.goto(f"{address}?group=optimiser")
    expect(page.get_by_role("alert")).to_contain_text("did you mean optimizer")
    page.get_by_role("link", name="Show all runs").press("Enter")
    expect(page.locator("tbody tr")).to_have_count(25)
    page.context.close()


def test_rows_of_running_experiment_are_live(page, live_service, database):
    workspace = new_workspace(live_service.database_url)
    with live_api(live_service.url, workspace.owner_token) as api:
        experiment = api.new_experiment(name="training")
        api.write(experiment, segment(stream("a"), 0, 9, scalars("loss", [1, 2], [4.0, 3.0])))
        upload = f"/experiments/{experiment}/uploads/{'0' * 16}"
        started = {"started_at": "2026-01-31T12:00:00Z"}
        api.request("PUT", upload, json=started).raise_for_status()
        viewer = new_member(database, workspace.workspace_id, Role.VIEWER)
        open_as(page, database, viewer, live_service.url)

        columns = "loss,loss.min,loss.max,loss.points,loss.last_step,training,status"
        with page.expect_request("**/scalars/tail"):
            page.goto(
                f"{live_service.url}/workspace/{workspace.workspace_id}/runs?columns={columns}"
            )
        api.write(
            experiment, segment(stream("a"), 9, 19, scalars("loss", [3, 1_234_567], [9.0, 2.5]))
        )
        cells = page.locator("tbody tr td[data-column]")
        expect(cells).to_have_text(["running", "2.5", "2.5", "9", "4", "1234567", "unknown"])
        expect(page).to_have_title(re.compile("^1,234,567 · Runs"))
        api.request("PATCH", upload, json={"status": "finished"}).raise_for_status()
        expect(cells.first).to_have_text("finished")
        expect(cells.last).to_have_text("success")

        api.request("PATCH", upload, json={"status": "running"}).raise_for_status()
        api.write(experiment, segment(stream("a"), 19, 29, scalars("loss", [1_234_568], [2.0])))
        page.clock.install()
        with page.expect_request("**/scalars/tail"):
            page.goto(f"{live_service.url}/?workspace={workspace.workspace_id}")
        page.clock.fast_forward("20:00:00")
        data_at = page.locator("tbody td[data-at]")
        expect(data_at).to_have_text("20 hours ago")
        api.write(experiment, segment(stream("a"), 29, 39, scalars("loss", [1_234_569], [1.5])))
        expect(page.locator("[data-value]")).to_have_text("1.5")
        expect(data_at).to_have_text("just now")
        # Within the second in which the first change has been asked for.
        api.write(experiment, segment(stream("a"), 39, 49, scalars("loss", [1_234_570], [12345.0])))
        expect(page.locator("[data-value]")).to_have_text("12345")
        expect(page.locator("td [data-points]")).to_have_text("7 points")


def test_groups_are_drawn_with_bands_that_are_chosen_by_keyboard(page, address):
    page.goto(f"{address}?group=optimizer")
    page.get_by_role("link", name="Draw curves").press("Enter")
    loss = page.get_by_role("article", name="loss")
    expect(loss.locator(".plot-note")).to_have_text("2 groups of 30 runs")
    assert has_drawing(loss.locator(".plot"))
    assert loss.locator(".u-wrap > canvas").evaluate(COUNT_FAINT_PIXELS) > 1_000  # the bands
    expect(page.get_by_role("list", name="Groups").get_by_role("listitem")).to_have_text(
        ["optimizer=adam(16)", "optimizer=sgd(14)"]
    )
    loss.locator(".plot").press("Home")
    expect(loss.locator(".plot-tip")).to_contain_text(re.compile(r"optimizer=sgd.*± 0\.\d+ \(14\)"))
    look_again(page, "runs_groups_drawn")
    page.get_by_label("Show").press("m")  # the next title that begins so
    page.get_by_label("Show").press("ArrowDown")
    page.get_by_role("button", name="Draw groups").press("Enter")
    expect(page).to_have_url(re.compile("band=range"))
    expect(loss.locator("canvas").first).to_be_visible()  # until which no key is heard
    loss.locator(".plot").press("Home")
    # trials 0, 2 … 14 of either experiment: 2 / (0 + 1) to 2 / (14 + 1)
    expect(loss.locator(".plot-tip")).to_contain_text("0.1333 to 2 (16)")
    page.get_by_role("checkbox", name="optimizer=sgd").press("Space")
    expect(loss.locator(".plot-note")).to_have_text("1 group of 16 runs")
    page.get_by_role("link", name="Draw runs").press("Enter")
    expect(loss.locator(".plot-note")).to_contain_text("30 runs")


def test_groups_are_drawn_without_javascript(browser, address, database, workspace, live_service):
    page = open_without_javascript(browser, database, workspace, live_service)
    page.goto(f"{address}/compare?where=run is not missing&group=optimizer&band=quartiles")
    loss = page.get_by_role("article", name="loss")
    expect(loss.locator("svg polygon")).to_have_count(2)
    expect(loss.locator("svg polyline")).to_have_count(2)
    shoot(page, "runs-groups-plain")
    loss.locator("summary").first.press("Enter")
    head = ["Group", "Last step", "Runs there", "Median", "25 %", "75 %"]
    expect(loss.locator("th[scope=col]")).to_have_text(head)
    expect(loss.locator("tbody tr").first).to_contain_text(re.compile("optimizer=adam.*4.*16"))
    page.get_by_label("Group by").fill("optimiser")
    page.get_by_role("button", name="Draw groups").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("did you mean optimizer")
    expect(loss.locator("svg polyline")).to_have_count(10)  # the runs
    page.context.close()


def test_groups_open_in_tensorboard_with_bands(page, address):
    page.goto(f"{address}?group=optimizer")
    page.get_by_role("link", name="Open groups in TensorBoard").click()
    expect(page.locator("#tbhub-bar")).to_contain_text("Groups of runs")
    for name in ("optimizer=adam", "optimizer=sgd"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    open_tab(page, "Custom Scalars")
    chart = page.locator("tf-custom-scalar-margin-chart-card").filter(has_text="loss").first
    band = chart.locator("path.area")
    expect(band).to_have_count(2)
    shoot(page, "runs-groups-tensorboard")


def test_comparison_offers_groups_in_tensorboard(page, address):
    page.goto(f"{address}/compare?where=loss.min%20%3C%200.3")
    page.get_by_text("Open groups in TensorBoard").click()
    page.get_by_role("link", name="by all but lr").click()
    for name in ("optimizer=adam", "optimizer=sgd"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


@pytest.fixture
def editor_address(page, live_service, database, workspace):
    """The address of the page; an editor is signed in."""
    editor = new_member(database, workspace.workspace_id, Role.EDITOR)
    open_as(page, database, editor, live_service.url)
    return f"{live_service.url}/workspace/{workspace.workspace_id}/runs"


def test_view_is_saved_changed_renamed_shared_and_deleted(page, editor_address, browser):
    sorted_table = f"{editor_address}?where=loss.min+%3C+0.3&sort=loss&columns=lr%2Closs"
    page.goto(sorted_table)
    page.get_by_text("Save as a view").click()
    page.get_by_label("Name").fill("Good <i>runs</i>")
    page.get_by_role("button", name="Save", exact=True).click()
    saved = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(saved).to_have_text("Good <i>runs</i>")
    expect(saved).to_have_attribute("aria-current", "true")
    expect(page.get_by_label("Filter")).to_have_value("loss.min < 0.3")
    changes = page.get_by_role("button", name="Save changes")
    expect(changes).to_be_hidden()

    page.get_by_role("link", name="loss", exact=True).click()
    expect(page).to_have_url(re.compile("sort=-loss"))
    changes.click()
    expect(changes).to_be_hidden()
    page.get_by_role("link", name="History and sharing").click()
    look_again(page, "view_history")
    versions = page.get_by_role("region", name="Versions").get_by_role("link")
    expect(versions).to_have_text(["2", "1"])
    versions.nth(1).click()
    expect(page).to_have_url(re.compile("sort=loss&"))
    expect(changes).to_be_visible()

    page.get_by_role("link", name="History and sharing").click()
    page.get_by_role("textbox", name="Name").fill("Renamed")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="Renamed")).to_be_visible()
    page.get_by_role("button", name="Create the link").click()
    link = page.locator("#link").input_value()
    reader = new_page(browser, editor_address.partition("/workspace")[0])
    reader.goto(link)
    expect(reader.get_by_text("trial 14 <i>sweep</i>").first).to_be_visible()
    expect(reader.get_by_text("trial 0 <i>sweep</i>")).to_have_count(0)
    reader.context.close()

    page.locator("summary", has_text="Delete").press("Enter")
    look_again(page, "view_delete")
    page.get_by_role("button", name="Delete the view").click()
    expect(page.get_by_text("The view was deleted.")).to_be_visible()
    expect(page.get_by_role("navigation", name="Views")).to_have_count(0)


def test_view_is_opened_by_viewer_who_cannot_change_it(page, address, live_service, workspace):
    with live_api(live_service.url, workspace.owner_token) as api:
        path = f"/workspaces/{workspace.workspace_id}/views"
        body = {"name": "Mine", "page": "runs", "query": "sort=loss"}
        view = api.request("POST", path, json=body).json()
    page.goto(f"{address.removesuffix('runs')}view/{view['id']}")
    expect(page).to_have_url(re.compile("sort=loss&view="))
    expect(page.get_by_text("Save as a view")).to_have_count(0)
    page.get_by_role("link", name="History and sharing").click()
    expect(page.get_by_role("region", name="Versions").get_by_role("link")).to_have_text(["1"])
    expect(page.locator("summary", has_text="Delete")).to_have_count(0)
    for name in ("Rename", "Create the link"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
