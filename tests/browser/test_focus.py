"""The keyboard's way through our own pages in headless Chromium: what has the focus is seen."""

from __future__ import annotations

import pytest

from support.batches import scalars, segment, stream
from support.page_routes import TABLE
from support.people import new_member, sign_in
from support.servers import live_api, new_workspace
from tbservice.auth import operators
from tbservice.types.people import Role

EXPERIMENTS = 12
TABS_MAX = 800
FILES = (".png", ".md", ".txt", ".csv")
"""Suffixes of addresses that are no pages."""

KEYS_PER_LOOK = 10
WINDOWS = {"desktop": (1400, 600), "phone": (390, 560)}

LOOK = """(key) => {
  const way = { covered: [], hasEnded: false };
  const reached = new Set();
  onkeydown = (event) => way.hasEnded && event.preventDefault();
  onkeyup = () => {
    const focused = document.activeElement;
    if (way.hasEnded ||= focused === document.body || reached.has(focused)) return;
    reached.add(focused);
    const points = [...focused.getClientRects()]
      .flatMap((box) => [2, box.height / 2, box.height - 2].map((y) => [box.left + box.width / 2, box.top + y]))
      .filter(([_, y]) => 0 <= y && y < innerHeight);
    const hidden = points.find(([x, y]) => {
      const seen = document.elementFromPoint(x, y);
      return !seen || !(focused.contains(seen) || seen.contains(focused));
    });
    if (!points.length || hidden) way.covered.push(`${key}: ${focused.outerHTML.slice(0, 120)} at ${hidden}`);
  };
  window.way = way;
}"""
"""Notes after each key whether the element with the focus is covered, or completely outside of the
window. The way ends at an element that was reached before, or at none; further keys do nothing.
"""


@pytest.fixture(scope="module")
def workspace(live_service):
    return new_workspace(live_service.database_url)


@pytest.fixture(scope="module")
def experiment(live_service, workspace):
    """One of many experiments, with runs and links; it is the newest."""
    with live_api(live_service.url, workspace.owner_token) as api:
        for number in range(EXPERIMENTS):
            id_ = api.new_experiment(name=f"experiment {number}", tags=["a", "b"])
        for number in range(EXPERIMENTS):
            api.write(id_, segment(stream(f"run {number}"), 0, 9, scalars("loss", [1, 2])))
            link = {"label": f"link {number}"}
            api.request("POST", f"/experiments/{id_}/links", json=link).raise_for_status()
    return id_


@pytest.fixture(scope="module")
def owner(database, workspace):
    for _ in range(EXPERIMENTS):
        new_member(database, workspace.workspace_id, Role.VIEWER)
    owner = new_member(database, workspace.workspace_id, Role.OWNER)
    with database.transaction() as db:
        operators.make_operator(db, owner.user_id)
    return owner


def walk(page, key):
    """Press the key until the focus has been everywhere; return what was covered."""
    page.evaluate(LOOK, key)
    for _ in range(0, TABS_MAX, KEYS_PER_LOOK):
        for _ in range(KEYS_PER_LOOK):
            page.keyboard.press(key)
        way = page.evaluate("way")
        if way["hasEnded"]:
            return way["covered"]
    raise AssertionError("the focus came to no end")


@pytest.mark.parametrize("window", WINDOWS)
def test_focus_is_never_covered(page, live_service, database, owner, workspace, experiment, window):
    width, height = WINDOWS[window]
    page.set_viewport_size({"width": width, "height": height})
    page.watch.is_expected = lambda problem: "404" in problem
    workspace_id = str(workspace.workspace_id)
    opened = [
        path
        for path, form, statuses in TABLE
        if form is None and not path.endswith(FILES)
        if statuses[-1] == 200 or path.startswith("/operator")
    ]
    page.context.add_cookies(
        [{"name": "tbhub_session", "value": sign_in(database, owner), "url": live_service.url}]
    )
    covered = {}
    for path in [*opened, "/nothing"]:
        address = path.replace("ID", workspace_id).replace("EXPERIMENT", experiment)
        page.goto(live_service.url + address.replace("PERSON", owner.user_id))
        if problems := walk(page, "Tab") + walk(page, "Shift+Tab"):
            covered[path] = problems
    assert covered == {}
