"""The page: cards, listings and first paint against a local TensorBoard, also over a network; memory
of the worker.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import psutil
from bench import Bench, say
from local_tensorboard import (
    Site,
    ask_in_turns,
    local_tensorboard,
    report_ratio,
    tell_median,
    wait_until_loaded,
)
from logdirs import Size, tag_names, write_scalars
from machine import cpu_seconds, report, report_memory
from page_listings import BYTES_A_SCALAR, measure_listing, measure_wide, site_of
from playwright.sync_api import Browser, Page, sync_playwright
from service import Service
from storage import wait_for_merge
from upload import upload

from support.batches import packed_scalars, segment, stream
from support.browser_pages import launch

LOGDIR = Size(100, 20, 100_000)
LONG = Size(100, 1, 1_000_000)
SHOWN = 1_000
BATCH_POINTS = 400_000
TAG = tag_names(LOGDIR.tags)[-1]
PAGE_SECONDS_MAX = 300
MEMORY_TARGET = "at most 400"
NETWORK_NAME = "50 ms away, 10 Mbit/s"
NETWORK = {
    "offline": False,
    "latency": 50,  # milliseconds from a request to the head of its answer
    "downloadThroughput": 10e6 / 8,  # bytes a second
    "uploadThroughput": 10e6 / 8,
}
"""Chromium's emulation of a network (CDP, Network.emulateNetworkConditions)."""
IDLE_LOOK_MS, IDLE_LOOKS_MAX = 500, 60
IDLE_CPU_SECONDS = 0.05
"""CPU seconds between two looks at the browser, under which it is idle."""


def measure(bench: Bench) -> None:
    """All of it on one service, which is asked in turns with TensorBoard; `--only` takes cards,
    paint, network, listing or wide.
    """
    with bench.new_service() as service:
        if any(map(bench.is_chosen, ("cards", "paint", "network"))):
            _compare(bench, service)
        if bench.is_chosen("listing"):
            measure_listing(bench, service)
        if bench.is_chosen("wide"):
            measure_wide(bench, service)
        report_memory(service.live.process.pid, "in the end", MEMORY_TARGET)


def _compare(bench: Bench, service: Service) -> None:
    size = LOGDIR.scaled(bench.scale)
    bench.need_disk(size.points * BYTES_A_SCALAR)
    logdir = bench.directory / "logdir"
    say(f"writing and uploading {size.points:,} scalars in {size.runs} runs of {size.tags} tags")
    write_scalars(logdir, size)
    ours = site_of(service, upload(service, logdir).experiment_id)
    worker, long_size, longer = service.live.process.pid, LONG.scaled(bench.scale), ours
    if bench.is_chosen("cards"):
        say(
            f"writing one tag of {long_size.steps:,} points in each of {long_size.runs} runs over HTTP"
        )
        longer = site_of(service, _write_long(service, long_size))
    report_memory(worker, "after the uploads", MEMORY_TARGET)
    say(f"waiting until everything is merged; TensorBoard loads meanwhile: {logdir}")
    with ExitStack() as stack:
        theirs = stack.enter_context(local_tensorboard(logdir, bench.directory / "tensorboard.log"))
        wait_for_merge(service)
        report_memory(worker, "after merging", MEMORY_TARGET)
        say(
            f"TensorBoard has loaded after {wait_until_loaded(theirs, TAG, size.runs, size.steps - 1):.0f} s more"
        )
        if bench.is_chosen("cards"):
            _measure_cards(bench, ours, theirs, longer)
            report_memory(worker, "after the cards", MEMORY_TARGET)
        for case, network in (("paint", None), ("network", NETWORK)):
            if bench.is_chosen(case):
                _measure_paint(bench, ours, theirs, network)


def _measure_cards(bench: Bench, ours: Site, theirs: Site, longer: Site) -> None:
    _check_alike(ours.card(TAG), theirs.card(TAG))
    asked: dict[str, tuple[Site, Callable[[Site], object]]] = {
        "ours": (ours, lambda site: site.card(TAG)),
        "theirs": (theirs, lambda site: site.card(TAG)),
        "longer": (longer, lambda site: site.card(TAG)),
    }
    seconds = ask_in_turns(max(bench.rounds, 7), asked)
    report(
        f"a card: one tag, {LOGDIR.runs} runs, {SHOWN:,} points of each",
        tell_median(seconds["ours"]),
    )
    report("  TensorBoard, --load_fast", tell_median(seconds["theirs"]))
    report_ratio("  ours : TensorBoard's", seconds["ours"], seconds["theirs"], "at most 0.2 x")
    report_ratio(
        "  ten times as many points a run : this",
        seconds["longer"],
        seconds["ours"],
        "at most 1.5 x",
    )
    tags = {"ours": (ours, _list), "theirs": (theirs, _list)}
    listed = ask_in_turns(max(bench.rounds, 7), tags)
    report_ratio(
        "the tags of the Time Series dashboard, ours : theirs", listed["ours"], listed["theirs"]
    )


def _list(site: Site) -> object:
    return site.get("data/plugin/timeseries/tags")


def _check_alike(ours: bytes, theirs: bytes) -> None:
    """Both show as many points of every run, and the same last ones: else the times say nothing."""
    mine, other = (json.loads(body)[0]["runToSeries"] for body in (ours, theirs))
    assert mine.keys() == other.keys()
    assert {run: (len(points), points[-1]) for run, points in mine.items()} == {
        run: (len(points), points[-1]) for run, points in other.items()
    }


def _measure_paint(
    bench: Bench, ours: Site, theirs: Site, network: dict[str, object] | None
) -> None:
    """A page opened for the first time, and again with its files in the browser's cache: until
    something is there, and until a card has points.
    """
    painted: dict[str, list[tuple[tuple[int, int], ...]]] = {"ours": [], "theirs": []}
    over = "" if network is None else f", {NETWORK_NAME}"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        for number in range(bench.rounds):
            sites = (("ours", ours), ("theirs", theirs))
            for name, site in sites if number % 2 else reversed(sites):
                painted[name].append(paint(browser, site, network))
            say(
                f"round {number + 1}: first paint and first points, cold and warm: "
                f"{painted['ours'][-1]}, theirs {painted['theirs'][-1]}"
            )
        browser.close()
    for visit, state in enumerate(("cold", "warm")):
        for index, what in enumerate(("first contentful paint", "first card with its points")):
            mine, other = (
                statistics.median(visits[visit][index] for visits in painted[name])
                for name in ("ours", "theirs")
            )
            report(
                f"{what} of a {state} page{over}", f"{mine:.0f} ms", f"TensorBoard {other:.0f} ms"
            )
            report(
                f"  ours : TensorBoard's, {state}{over}", f"{mine / other:.2f} x", "at most 1.0 x"
            )


def paint(
    browser: Browser, site: Site, network: dict[str, object] | None = None
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Milliseconds from the start of a visit to its first contentful paint, and until a card shows
    its points: of the first visit, and of the third.

    In the second one the browser still compiles all of the app, and then keeps what it has
    compiled.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    token = site.headers.get("Authorization", "").removeprefix("Bearer ")
    if token:  # for its cookie
        context.request.get(f"{site.url}?token={token}")
    page = context.new_page()
    page.set_default_timeout(PAGE_SECONDS_MAX * 1000)
    if network is not None:
        context.new_cdp_session(page).send("Network.emulateNetworkConditions", network)
    visits = []
    for _ in range(3):
        page.goto("about:blank")
        _wait_until_idle(page)
        page.goto(site.url)
        # A card has its canvas long before its points.
        page.locator("card-view tb-data-table-content-row").first.wait_for()
        drawn = page.evaluate("performance.now()")
        first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        visits.append((round(first), round(drawn)))
        page.wait_for_load_state("networkidle")
    context.close()
    return visits[0], visits[2]


def _wait_until_idle(page: Page) -> None:
    """Waits until the browser has nothing to do: without a graphics card it draws the charts of a
    page that is gone for seconds, and the first frame of the next page would wait for that.
    """
    below = psutil.Process().children(recursive=True)
    browser = next(
        process
        for process in below
        if "chrom" in process.name() and "chrom" not in process.parent().name()
    )
    for _ in range(IDLE_LOOKS_MAX):
        before = cpu_seconds(browser.pid)
        page.wait_for_timeout(IDLE_LOOK_MS)
        if cpu_seconds(browser.pid) - before < IDLE_CPU_SECONDS:
            return


def _write_long(service: Service, size: Size) -> str:
    experiment_id = service.api.new_experiment(name="long series")
    random = np.random.default_rng(0)
    for run in range(size.runs):
        times = 1.7e9 + np.cumsum(random.exponential(0.01, size.steps))
        values = np.float32(
            np.exp(-np.arange(size.steps) / 2e5) + random.normal(0, 0.05, size.steps)
        )
        for start in range(0, size.steps, BATCH_POINTS):
            part = slice(start, start + BATCH_POINTS)
            series = packed_scalars(TAG, np.arange(size.steps)[part], values[part], times[part])
            sent = segment(stream(f"run_{run:04d}"), start, start + BATCH_POINTS, series)
            service.api.write(experiment_id, sent)
    return experiment_id
