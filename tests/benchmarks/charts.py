"""A card with curves in headless Chromium: drawn after the answer, and frames while hovering; of more
runs than are drawn, their quantiles and the nearest run, beside the stock page.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from bench import Bench, say
from machine import report, spent
from playwright.sync_api import Browser, sync_playwright
from service import Service

from support.batches import packed_scalars, segment, stream
from support.browser_pages import launch

RUNS, POINTS = 1_000, 1_000
RUNS_OF_BATCH = 100
HOVERS = 60

_NOTE = """
new MutationObserver((_, observer) => {
  const canvas = document.querySelector(".plot canvas");
  if (!canvas) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    canvas.getContext("2d").getImageData(0, 0, 1, 1);
    window.drawn = performance.now();
  }));
}).observe(document, { childList: true, subtree: true });
"""
"""Notes when the first plot was drawn: pixels are read back, which waits for all lines."""

_SHOWN = """async () => {
  while (!window.drawn) await new Promise(requestAnimationFrame);
}"""

_DRAWN = """async () => {
  while (!window.drawn) await new Promise(requestAnimationFrame);
  return window.drawn;
}"""

_TIMES = """() => {
  const asked = performance.getEntriesByType("resource").find(({ name }) => name.endsWith("/scalars/data"));
  return { answer: asked.responseEnd - asked.requestStart, drawn: drawn - asked.responseEnd, bytes: asked.decodedBodySize };
}"""

_PARSE = """async () => {
  const { sources, tags } = JSON.parse(document.querySelector("[data-charts]").dataset.charts);
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`/api/v1/experiments/${sources[0].id}/scalars/data`,
    { method: "POST", headers, body: JSON.stringify({ tag: tags, downsample: 1000 }) });
  const text = await answer.text();
  const began = performance.now();
  JSON.parse(text);
  return performance.now() - began;
}"""

_HOVER = """async (count) => {
  const over = document.querySelector(".u-over");
  const box = over.getBoundingClientRect();
  const next = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const spent = [];
  let last = await next();
  for (let index = 0; index < count; index++) {
    const place = { clientX: box.left + (box.width * (index + 1)) / (count + 2), clientY: box.top + (box.height * (index % 7)) / 7 };
    over.dispatchEvent(new MouseEvent(index ? "mousemove" : "mouseenter", { ...place, bubbles: true, movementX: 1 }));
    const now = await next();
    spent.push(now - last);
    last = now;
  }
  if (document.querySelector(".plot-tip").hidden) throw new Error("nothing was read");
  return spent;
}"""


CASES = ("lines", "distribution")
MANY_RUNS = 10_000
STOCK_SECONDS_MAX = 180

_STOCK_DRAWN = """async (seconds) => {
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    const card = document.querySelector("card-view line-chart canvas, card-view line-chart svg path");
    if (card) return performance.now();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return null;
}"""


def measure(bench: Bench) -> None:
    """Cases for `--only` are CASES."""
    for case, run in zip(CASES, (_measure_lines, _measure_distribution), strict=True):
        if bench.is_chosen(case):
            run(bench)


def _measure_distribution(bench: Bench) -> None:
    """10,000 runs: a first and a repeated answer of a restarted worker's, and the stock page."""
    with bench.new_service() as service, sync_playwright() as playwright:
        runs = int(MANY_RUNS * bench.scale)
        say(f"writing {POINTS:,} points of {runs:,} runs")
        experiment_id = _write(service, runs)
        base = f"/experiments/{experiment_id}/scalars"
        cold, near, every = [], [], []
        for number in range(bench.rounds + 1):
            # Another range of steps each time: neither the answer nor the values are cached.
            query = {"tag": "loss", "step_max": POINTS + number}
            used = service.cpu_seconds()
            began = time.perf_counter()
            answer = service.api.request("GET", f"{base}/distribution", params=query)
            answer.raise_for_status()
            cold.append(time.perf_counter() - began)
            used = spent(used, service.cpu_seconds())
            place = query | {"step": 500, "value": 0.3}
            began = time.perf_counter()
            service.api.request("GET", f"{base}/nearest", params=place).raise_for_status()
            near.append(time.perf_counter() - began)
            began = time.perf_counter()
            query = {"tag": ["loss"], "downsample": POINTS // 10}
            service.api.request("POST", f"{base}/data", json=query).raise_for_status()
            every.append(time.perf_counter() - began)
        name = f"{runs:,} runs x {POINTS:,} points"
        median = statistics.median
        report(f"{name}: quantiles and density, cold", f"{median(cold):.2f} s", "at most 2 s")
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())
        report("  processor time", told)
        report(
            "  that : a sample of a tenth of the points as JSON",
            f"{median(cold) / median(every):.2f} x",
        )
        report("  the nearest run, of the values that are cached", f"{median(near) * 1e3:.0f} ms")
        browser = launch(playwright)
        for what, path, script in (
            ("our page, until it is drawn", "about", None),
            ("the stock page, until its first card is", "#timeseries", _STOCK_DRAWN),
        ):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.add_init_script(_NOTE)
            page.goto(f"{service.live.url}/experiment/{experiment_id}/{path}")
            drawn = page.evaluate(script, STOCK_SECONDS_MAX) if script else page.evaluate(_DRAWN)
            report(f"  {what}", "never" if drawn is None else f"{drawn / 1e3:.1f} s")
            page.context.close()
        browser.close()


def _measure_lines(bench: Bench) -> None:
    """A tenth of the runs in turns with all, on one service."""
    with bench.new_service() as service, sync_playwright() as playwright:
        runs = int(RUNS * bench.scale)
        say(f"writing {POINTS:,} points of {runs:,} runs, and of {runs // 10:,}")
        many, few = _write(service, runs), _write(service, runs // 10)
        browser = launch(playwright)
        all_times: dict[str, list[dict[str, Any]]] = {many: [], few: []}
        for number in range(bench.rounds + 1):
            for experiment_id, times in all_times.items():
                looked = _look(browser, service, experiment_id)
                if number:
                    times.append(looked)
        browser.close()
    _report(f"{runs:,} runs x {POINTS:,} points", all_times[many])
    _report(f"{runs // 10:,} runs x {POINTS:,} points", all_times[few])
    ratio = _median(all_times[many], "drawn") / _median(all_times[few], "drawn")
    report("drawn, ten times as many runs : this", f"{ratio:.1f} x")


def _write(service: Service, runs: int) -> str:
    experiment_id = service.api.new_experiment(name=f"{runs} runs", visibility="link")
    random = np.random.default_rng(0)
    steps = np.arange(POINTS)
    for first in range(0, runs, RUNS_OF_BATCH):
        segments = []
        for run in range(first, min(runs, first + RUNS_OF_BATCH)):
            values = np.exp(-steps / random.uniform(50, 500)) + random.normal(0, 0.02, POINTS)
            series = packed_scalars("loss", steps, values, 1.7e9 + steps)
            segments.append(segment(stream(f"run {run:04}"), 0, POINTS, series))
        service.api.write(experiment_id, *segments)
    return experiment_id


def _look(browser: Browser, service: Service, experiment_id: str) -> dict[str, Any]:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(_NOTE)
    page.goto(f"{service.live.url}/experiment/{experiment_id}/about")
    page.locator(".plot canvas").first.wait_for(timeout=120_000)
    page.evaluate(_SHOWN)
    times: dict[str, Any] = page.evaluate(_TIMES)
    times["frames"] = page.evaluate(_HOVER, HOVERS)
    times["parsed"] = page.evaluate(_PARSE)
    page.context.close()
    return times


def _report(name: str, looks: list[dict[str, Any]]) -> None:
    frames = sorted(frame for look in looks for frame in look["frames"])
    size = _median(looks, "bytes") / 2**20
    report(f"{name}: the answer, {size:.0f} MiB of JSON", f"{_median(looks, 'answer'):,.0f} ms")
    report("  drawn after the answer", f"{_median(looks, 'drawn'):,.0f} ms", "at most 1 s")
    ratio = _median(looks, "drawn") / _median(looks, "parsed")
    report("  that : parsing the same JSON alone", f"{ratio:.1f} x")
    high = frames[int(len(frames) * 0.95)]
    told = f"{statistics.median(frames):.0f} ms, {high:.0f} ms at the 95th percentile"
    report("  a frame while hovering", told, "at most 60 ms")


def _median(looks: list[dict[str, Any]], name: str) -> float:
    return statistics.median(look[name] for look in looks)
