"""From a flush to what a reader sees without a reload: a point in a chart, a row of the list, and a
row of the table of runs; beside the stream of events that all three follow.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bench import Bench, say
from machine import report
from playwright.sync_api import Page, sync_playwright
from service import Service

from support.batches import scalars, segment, stream
from support.browser_pages import launch, open_as
from support.people import new_member
from tbservice.db.database import Database
from tbupload.export.tail import read_events

FLUSHES = 30
PAUSE_SECONDS = 0.77
"""Between flushes: no multiple of the seconds between two polls, so that they come at any time."""

_CHART = "(step) => cards[0].lines.some(({ xs }) => xs.at(-1) === step)"
_ROW = "(step) => document.querySelector('%s')?.textContent.trim() === String(step)"
_STATUS = "(text) => document.querySelector('[data-status]')?.textContent === text"

_WAIT = """([isShown, value]) => {
  const test = eval(isShown);
  window.shown = (async () => {
    while (!test(value)) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return Date.now();
  })();
}"""

PAGES = {
    "the point in our chart": ("/experiment/{experiment}/about", _CHART),
    "the row of the list": ("/?workspace={workspace}", _ROW % "[data-value]"),
    "the row of the table of runs": (
        "/workspace/{workspace}/runs?columns=loss",
        _ROW % 'td[data-column="loss"]',
    ),
}


def measure(bench: Bench) -> None:
    """`--only` has no cases."""
    flushes = max(3, round(FLUSHES * bench.scale))
    with bench.new_service() as service, sync_playwright() as playwright:
        experiment = service.api.new_experiment(name="live")
        upload = f"/experiments/{experiment}/uploads/{'a' * 16}"
        begun = {"started_at": "2026-01-01T00:00:00Z", "status_of": "training"}
        service.api.request("PUT", upload, json=begun).raise_for_status()
        service.api.write(experiment, segment(stream("run"), 0, 1, scalars("loss", [0], [0.0])))
        with ExitStack() as stack:
            browser = launch(playwright)
            stack.callback(browser.close)
            pages = _open_pages(service, browser, experiment)
            seen = stack.enter_context(_following(service, experiment))
            say(f"flushing {flushes} points, one after the other")
            times: dict[str, list[float]] = {name: [] for name in ("the stream", *PAGES)}
            for step in range(1, flushes + 1):
                for name, page in pages.items():
                    page.evaluate(_WAIT, [PAGES[name][1], step])
                points = scalars("loss", [step], [float(step)])
                service.api.write(experiment, segment(stream("run"), step, step + 1, points))
                flushed = time.time()
                for name, page in pages.items():
                    times[name].append(page.evaluate("() => window.shown") / 1000 - flushed)
                times["the stream"].append(seen(step) - flushed)
                time.sleep(PAUSE_SECONDS)
            page = pages["the row of the list"]
            page.evaluate(_WAIT, [_STATUS, "Finished"])
            service.api.request("PATCH", upload, json={"status": "finished"})
            ended = time.time()
            status = page.evaluate("() => window.shown") / 1000 - ended
    own = statistics.median(times["the stream"])
    for name, spent in times.items():
        high = sorted(spent)[int(len(spent) * 0.95)]
        told = f"{statistics.median(spent):.2f} s, {high:.2f} s at the 95th percentile"
        report(f"from a flush to {name}", told, "at most 1 s")
        if name in PAGES:
            report("  that : the stream", f"{statistics.median(spent) / own:.2f} x")
    report("from the end of an upload to its status in the list", f"{status:.2f} s", "at most 1 s")


def _open_pages(service: Service, browser, experiment: str) -> dict[str, Page]:
    me = service.api.request("GET", "/me").json()
    workspace = me["workspace"]["workspace_id"]
    database = Database(service.live.database_url, 2)
    try:
        member = new_member(database, workspace)
        pages = {}
        for name, (path, _) in PAGES.items():
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            open_as(page, database, member, service.live.url)
            with page.expect_response("**/scalars/tail"):
                address = path.format(experiment=experiment, workspace=workspace)
                page.goto(service.live.url + address)
            pages[name] = page
    finally:
        database.close()
    return pages


@contextmanager
def _following(service: Service, experiment: str) -> Iterator[Callable[[int], float]]:
    """Follow the stream; yields a function that returns when a step came (seconds, Unix time)."""
    came: dict[int, float] = {}
    changed = threading.Condition()

    def follow() -> None:
        path = f"/api/v1/experiments/{experiment}/scalars/tail"
        headers = {"Authorization": f"Bearer {service.token}"}
        http = service.reader.http
        with http.stream("GET", path, params={"start": "now"}, headers=headers) as answer:
            for event in read_events(answer.iter_raw()):
                now = time.time()
                for tags in json.loads(event.data).get("points", {}).values():
                    with changed:
                        came.update(dict.fromkeys(tags["loss"]["steps"], now))
                        changed.notify_all()
                if last in came:
                    return

    def wait(step: int) -> float:
        with changed:
            changed.wait_for(lambda: step in came)
            return came[step]

    last = 10**9
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    yield wait
