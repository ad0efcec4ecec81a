"""The list of experiments and the page of one, in headless Chromium: their looks, the keyboard, and
without JavaScript.
"""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from playwright.sync_api import expect

from support.batches import scalars, segment, stream
from support.browser_pages import look_again, look_at, open_as
from support.people import new_member, new_person
from support.servers import live_api, new_workspace
from tbservice.auth.tables.members import put
from tbservice.types.people import Role

NOTES = """# What I saw

The loss **diverged** at step 400; `lr = 0.1` is too high.

| lr | accuracy |
|----|----------|
| 0.1 | 0.71 |
| 0.01 | **0.93** |

<script>alert(1)</script> ![plot](https://other.example/plot.png)
"""

MADE = (
    ("resnet50-imagenet-lr0.1", {"description": "First try, high rate", "tags": ["baseline", "vision"], "notes": NOTES}),
    ("resnet50-imagenet-lr0.01", {"tags": ["baseline", "vision", "best"], "visibility": "link"}),
    ("bert-base-squad", {"tags": ["text"], "notes": "to repeat with more seeds"}),
    ("gpt2-small-" + "very-long-name-" * 8, {"tags": [f"tag number {n}" for n in range(9)]}),
    ("<b>no markup</b> \u202eright to left", {}),
    ("", {"tags": ["text"]}),
)  # fmt: skip


COMMON = {
    "origin": {
        "host": "gpu7",
        "user": "ann",
        "command": "tbupload --logdir runs/",
        "git_commit": "4e1243bd22c66e76c2ba9eddc1f91394e57f9f83",
    },
    "properties": {"optimizer": "AdamW", "learning rate": "0.1"},
}


@pytest.fixture(scope="module")
def workspace(live_service, database):
    workspace = new_workspace(live_service.database_url)
    with database.transaction() as db:
        db.exec_driver_sql(
            "UPDATE workspaces SET name = 'Vision team' WHERE workspace_id = %s",
            (workspace.workspace_id,),
        )
    return workspace


@pytest.fixture(scope="module")
def ann(database, workspace):
    """An owner of the workspace."""
    person = new_person(database, name="Ann Example")
    with database.transaction(workspace.workspace_id) as db:
        put(db, workspace.workspace_id, person.user_id, Role.OWNER)
    new_member(database, workspace.workspace_id, Role.VIEWER)
    return person


@pytest.fixture(scope="module")
def made(live_service, workspace, database, ann):
    """Experiments with curves of losses; their ids by name."""
    with live_api(live_service.url, workspace.owner_token) as api:
        ids = {name: api.new_experiment(name=name, **fields, **COMMON) for name, fields in MADE}
        for number, id_ in enumerate(list(ids.values())[:-1]):
            write_curves(api, id_, number)
        for status, id_ in zip((None, "finished", "failed", "killed"), ids.values(), strict=False):
            path = f"/experiments/{id_}/uploads/{'a' * 16}"
            fields = {"origin": COMMON["origin"], "started_at": "2026-01-31T12:00:00Z"}
            api.request("PUT", path, json=fields).raise_for_status()
            if status is not None:
                api.request("PATCH", path, json={"status": status}).raise_for_status()
        with database.transaction(workspace.workspace_id) as db:
            db.exec_driver_sql("UPDATE experiments SET created_by = %s", (ann.user_id,))
        for name, id_ in ids.items():  # so that their words have the person's name
            api.request("PATCH", f"/experiments/{id_}", json={"name": name}).raise_for_status()
    return ids


def write_curves(api, experiment, number):
    """Write one or two runs; those of number 2 have a gap."""
    rng = np.random.default_rng(number)
    steps = np.arange(0, 400)
    for run in range(1 + number % 2):
        losses = 2 * np.exp(-steps / (80 + 30 * run)) + rng.normal(0, 0.05, len(steps)) + 0.1
        if number == 2:
            losses[200:260] = np.nan
        times = time.time() + steps
        loss = scalars("train/loss", steps, losses, times)
        accuracy = scalars("train/accuracy", steps, 1 - losses / 3, times)
        api.write(experiment, segment(stream(f"run {run}"), 0, 9, loss, accuracy))


@pytest.fixture
def start(page, live_service, database, ann, workspace, made):  # noqa: ARG001 - the experiments
    """The page, signed in, and the address of the list."""
    open_as(page, database, ann, live_service.url)
    return f"{live_service.url}/?workspace={workspace.workspace_id}"


def expect_names(page, *names):
    """Wait until the list has these experiments, and the page listens."""
    expect(page.locator(".experiments .name")).to_have_text(list(names))
    page.wait_for_load_state()


def test_list_looks_well(page, start):
    look_at(page, start, "experiments")
    expect(page.locator(".experiments .name")).to_have_count(len(MADE))
    expect(page.locator(".badge.live")).to_have_text(["Running"])
    for status in ("Finished", "Failed", "Killed"):
        expect(page.locator("tbody").get_by_text(status, exact=True)).to_have_count(1)
    expect(page.locator("svg.spark").first).to_be_visible()
    expect(page.locator("svg.spark").first).to_have_attribute(
        "aria-label", re.compile(r"^train/loss of run run \d( and 1 more)?: last value 0\.\d+$")
    )


def test_list_is_searched_filtered_and_sorted(page, start):
    page.goto(start)
    page.get_by_label("Search").fill("resnet")
    page.keyboard.press("Enter")
    expect_names(page, "resnet50-imagenet-lr0.01", "resnet50-imagenet-lr0.1")
    page.get_by_label("Tag", exact=True).select_option("best")
    expect_names(page, "resnet50-imagenet-lr0.01")
    expect(page.get_by_text("1 experiment found", exact=True)).to_be_visible()
    look_again(page, "experiments_filtered")
    page.get_by_role("link", name="Clear").click()
    expect(page.locator(".experiments .name")).to_have_count(len(MADE))
    page.get_by_role("link", name="Name", exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    expect(page.locator(".experiments .name").last).to_have_text("resnet50-imagenet-lr0.1")
    page.get_by_label("Search").fill("ann diverged")
    page.keyboard.press("Enter")
    expect_names(page, "resnet50-imagenet-lr0.1")
    page.get_by_label("Search").fill("nothing has this")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    look_again(page, "experiments_none_found")


def test_list_is_worked_in_by_keys(page, start, live_service, made, workspace):
    page.watch.is_expected = lambda problem: "ERR_ABORTED" in problem  # left while it loads
    page.goto(start)
    page.keyboard.press("?")
    look_again(page, "keys")
    page.keyboard.press("Escape")
    page.get_by_label("Select all on this page").check()
    expect(page.get_by_text(f"{len(MADE)} selected")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text(f"{len(MADE) - 1} selected")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live_service.url}/experiment/{list(made.values())[-1]}/")
    page.goto(start)
    page.keyboard.press("/")
    page.keyboard.type("jx?")
    expect(page.get_by_label("Search", exact=True)).to_have_value("jx?")
    page.keyboard.press("Control+k")
    page.keyboard.type("vision runs")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live_service.url}/workspace/{workspace.workspace_id}/runs")
    page.goto(start)
    page.keyboard.press("j")
    page.keyboard.press("s")
    expect(page.locator(".star[aria-pressed=true]")).to_have_count(1)
    page.wait_for_load_state()  # until which no key is heard
    page.keyboard.press("j")
    page.keyboard.press("e")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    look_again(page, "experiments_edited")
    page.keyboard.press("Escape")
    page.goto(start)
    page.keyboard.press("?")
    page.get_by_label("Use keys of a single letter").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_hidden()


def test_jump_goes_to_what_is_typed(page, start, live_service, made):
    page.watch.is_expected = lambda problem: re.search(
        "ERR_(ABORTED|FAILED)", problem
    )  # and outdated requests
    page.goto(start)
    page.get_by_role("link", name="Search").click()
    combobox = page.get_by_role("combobox", name="Go to")
    expect(combobox).to_be_focused()
    look_again(page, "jump")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/jump?" in request.url else 0)
    page.keyboard.type("r")
    page.keyboard.type("es")
    first = page.get_by_role("option", name="resnet50-imagenet-lr0.1", exact=True)
    expect(first).to_be_visible()
    assert not [url for url in asked if "q=r&" in url]
    page.route("**/jump?*", lambda route: route.abort(), times=1)
    page.keyboard.type("x")
    expect(
        page.get_by_text("Names were not searched: the server cannot be reached.")
    ).to_be_visible()
    page.keyboard.press("Backspace")
    expect(first).to_be_visible()
    page.keyboard.press("ArrowDown")
    active = page.locator(f"#{combobox.get_attribute('aria-activedescendant')}")
    expect(active).to_have_attribute("aria-selected", "true")
    look_again(page, "jump_found")
    page.keyboard.press("Control+a")
    page.keyboard.type("resnet50-imagenet-lr0.01")
    option = page.locator("#jump-list [aria-selected=true]")
    expect(option).to_have_text("resnet50-imagenet-lr0.01")
    page.keyboard.press("Enter")
    about = f"{live_service.url}/experiment/{made['resnet50-imagenet-lr0.01']}/about"
    expect(page).to_have_url(about)
    page.wait_for_load_state()  # until which no key is heard
    page.keyboard.press("Control+k")
    page.keyboard.type("colours dark")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(about)


def test_selected_experiments_are_compared(page, start, live_service, made):
    page.goto(start)
    for name in ("resnet50-imagenet-lr0.1", "bert-base-squad"):
        page.get_by_label(f"Select {name}", exact=True).check()
    page.get_by_role("button", name="Compare selected").click()
    bert, resnet = made["bert-base-squad"], made["resnet50-imagenet-lr0.1"]
    expect(page).to_have_url(
        f"{live_service.url}/compare/bert-base-squad:{bert},resnet50-imagenet-lr0.1:{resnet}/"
    )
    expect(page.locator(".run-name, tb-run-selector, runs-table").first).to_be_attached()


def test_selected_experiments_are_tagged_and_archived(page, start):
    page.goto(start)
    page.get_by_label("Select bert-base-squad", exact=True).check()
    page.locator("[data-selection] summary").press("Enter")
    page.get_by_label("Tags, with commas").fill("put aside")
    look_again(page, "experiments_tagged")
    with page.expect_navigation():
        page.get_by_label("Tags, with commas").press("Enter")
    page.get_by_label("Tag", exact=True).select_option("put aside")
    expect_names(page, "bert-base-squad")
    page.locator("summary", has_text="Save this search").press("Enter")
    page.get_by_label("Name", exact=True).fill("kept for later")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="kept for later")).to_have_attribute(
        "aria-current", "true"
    )
    page.get_by_label("Select bert-base-squad", exact=True).check()
    page.get_by_role("button", name="Archive selected").click()
    expect(page.get_by_role("status")).to_contain_text("Archived")
    page.goto(start)
    page.get_by_label("Show", exact=True).select_option("archived")
    expect_names(page, "bert-base-squad")
    page.get_by_label("Select bert-base-squad", exact=True).check()
    page.get_by_role("button", name="Unarchive selected").click()
    page.get_by_role("link", name="kept for later").click()
    expect_names(page, "bert-base-squad")


@pytest.mark.usefixtures("start")
def test_deleted_experiments_look_well(page, live_service, made):
    page.goto(f"{live_service.url}/experiment/{made['bert-base-squad']}/about")
    page.locator("summary", has_text="Delete").click()
    look_again(page, "experiment_delete")
    page.get_by_role("button", name="Delete the experiment").click()
    look_again(page, "experiments_undo")
    page.get_by_role("link", name="Deleted").click()
    look_again(page, "experiments_deleted")
    page.get_by_role("button", name="Restore").first.press("Enter")
    expect(page.get_by_role("status")).to_have_text("The deletion was undone.")


@pytest.mark.usefixtures("start")
def test_runs_are_deleted_by_keyboard(page, live_service, workspace):
    with live_api(live_service.url, workspace.owner_token) as api:
        experiment = api.new_experiment(name="a sweep")
        names = ["train/lr 0.1", "train/lr 0.01", "<b>no markup</b> " + "very-long-name-" * 12]
        api.write(
            experiment,
            *(segment(stream(name), 0, 9, scalars("loss", range(500))) for name in names),
        )
    page.goto(f"{live_service.url}/experiment/{experiment}/about")
    page.locator("summary", has_text="Delete").press("Enter")
    page.get_by_role("link", name="Delete runs of it").press("Enter")
    look_again(page, "experiment_runs")
    page.get_by_label("train/lr 0.1", exact=True).press("Space")
    page.get_by_label("no markup").press("Space")
    page.get_by_role("button", name="Delete selected").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 runs?")
    look_again(page, "experiment_runs_delete")
    page.get_by_role("button", name="Delete 2 runs").press("Enter")
    expect(page.get_by_role("status")).to_have_text("The runs were deleted.")
    expect(page.get_by_role("checkbox")).to_have_count(1)


@pytest.mark.usefixtures("start")
def test_page_of_experiment_looks_well(page, live_service, made):
    look_at(
        page, f"{live_service.url}/experiment/{made['resnet50-imagenet-lr0.1']}/about", "experiment"
    )
    expect(page.get_by_role("heading", name="What I saw")).to_be_visible()
    expect(page.locator(".prose img, .prose script")).to_have_count(0)
    expect(page.get_by_role("link", name="plot")).to_have_attribute(
        "href", "https://other.example/plot.png"
    )
    expect(page.get_by_text("gpu7")).to_be_visible()
    look_at(page, f"{live_service.url}/experiment/{made['']}/about", "experiment_empty")


@pytest.mark.usefixtures("start")
def test_experiment_is_edited(page, live_service, made):
    page.goto(f"{live_service.url}/experiment/{made['']}/about")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Name").fill("a name")
    page.get_by_label("Tags").fill("text, new")
    page.get_by_label("Properties").fill("seed = 7")
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    look_again(page, "experiment_edit")
    page.watch.is_expected = lambda problem: "422" in problem
    page.get_by_label("Properties").fill("seven")
    page.get_by_label("Tags").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("key = value")
    page.get_by_label("Properties").fill("seed = 7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_have_text("The changes were saved.")
    expect(page.get_by_role("heading", level=1)).to_have_text("a name")
    expect(page.get_by_text("AdamW")).to_have_count(0)


def test_start_without_experiments_says_how_to_upload(page, live_service, database):
    person = new_person(database, name="New Person")
    open_as(page, database, person, live_service.url)
    look_at(page, live_service.url, "experiments_no_workspace")
    empty = new_workspace(live_service.database_url).workspace_id
    with database.transaction(empty) as db:
        put(db, empty, person.user_id, Role.EDITOR)
    look_at(page, live_service.url, "experiments_empty")
    expect(page.get_by_text("tbupload --logdir runs/")).to_be_visible()
