"""Time of the listings that a page of many series waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import urllib3
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
from machine import median_of, report
from service import Service
from storage import wait_for_merge
from upload import upload

from support.batches import scalars, segment, stream

LISTED = Size(500, 200, 1_000)
"""5 GB of event files, in which TensorBoard keeps each point."""

WIDE_RUNS, WIDE_TAGS = 1_000, 100
BATCH_SERIES = 5_000
BYTES_A_SCALAR = 70


def measure_listing(bench: Bench, service: Service) -> None:
    """Listings of many series that TensorBoard keeps 1,000 points of: it copies all of a run for
    each (https://github.com/tensorflow/tensorboard/issues/7053). `--scale` changes the runs.
    """
    size = replace(LISTED, runs=max(1, round(LISTED.runs * bench.scale)))
    bench.need_disk(size.points * BYTES_A_SCALAR)
    logdir = bench.directory / "listed"
    say(f"writing and uploading {size.points:,} scalars in {size.runs} runs of {size.tags} tags")
    write_scalars(logdir, size)
    ours = site_of(service, upload(service, logdir).experiment_id)
    with local_tensorboard(logdir, bench.directory / "listing.log") as theirs:
        wait_for_merge(service)
        wait_until_loaded(theirs, tag_names(size.tags)[-1], size.runs, size.steps - 1)
        for path in ("data/runs", "data/plugin/scalars/tags", "data/plugin/timeseries/tags"):
            asked = {
                name: (site, lambda site, path=path: site.get(path))
                for name, site in (("ours", ours), ("theirs", theirs))
            }
            seconds = ask_in_turns(max(bench.rounds, 5), asked)
            name = f"{size.runs} runs x {size.tags} tags of {size.steps:,} points: {path}"
            report(name, tell_median(seconds["ours"]), "at most 200 ms")
            report(f"  TensorBoard, --load_fast: {path}", tell_median(seconds["theirs"]))
            report_ratio(f"  ours : TensorBoard's, {path}", seconds["ours"], seconds["theirs"])


def measure_wide(bench: Bench, service: Service) -> None:
    """Requests that the page sends before it draws anything, of an experiment with many series."""
    runs = max(10, round(WIDE_RUNS * bench.scale))
    say(f"writing {runs:,} runs of {WIDE_TAGS} tags")
    experiment_id = _write_wide(service, runs)
    site = site_of(service, experiment_id)
    sessions = {
        "allowedStatuses": [0, 1, 2, 3],
        "colParams": [],
        "sliceSize": 1_000_000,
        "includeMetrics": False,
    }
    asked: dict[str, Callable[[], object]] = {
        "plugins_listing": lambda: site.get("data/plugins_listing"),
        "environment": lambda: site.get("data/environment"),
        "runs": lambda: site.get("data/runs"),
        "hparams/experiment": lambda: site.post(
            "data/plugin/hparams/experiment", {"hparamsLimit": 1000, "includeMetrics": False}
        ),
        "hparams/session_groups": lambda: site.post("data/plugin/hparams/session_groups", sessions),
        "timeseries/tags": lambda: site.get("data/plugin/timeseries/tags"),
        "scalars/tags": lambda: site.get("data/plugin/scalars/tags"),
    }
    total = 0.0
    for name, ask in asked.items():
        seconds = median_of(ask, bench.rounds)
        total += seconds
        report(f"{runs:,} runs x {WIDE_TAGS} tags: {name}", f"{seconds * 1000:.0f} ms")
    report("  all of it, one after the other", f"{total:.2f} s", "at most 1 s")
    last = median_of(lambda: service.api.get(experiment_id, "scalars/data", downsample=1), 1)
    report("  the read API: the last point of every series", f"{last:.2f} s")


def site_of(service: Service, experiment_id: str) -> Site:
    """The page of an experiment, for its owner."""
    url = f"{service.live.url}/experiment/{experiment_id}/"
    postgres = [
        child._process.pid
        for child in service.servers.instance.children
        if child.name == "postgres"
    ]
    headers = {"Authorization": f"Bearer {service.token}"}
    return Site(
        url, (service.live.process.pid, *postgres), headers, urllib3.PoolManager(retries=False)
    )


def _write_wide(service: Service, runs: int) -> str:
    experiment_id = service.api.new_experiment(name="many series")
    each = BATCH_SERIES // WIDE_TAGS
    for first in range(0, runs, each):
        segments = [
            segment(
                stream(f"run_{run:04d}"),
                0,
                1,
                *(scalars(f"metrics/tag_{tag:03d}", [0, 1, 2]) for tag in range(WIDE_TAGS)),
            )
            for run in range(first, min(runs, first + each))
        ]
        service.api.write(experiment_id, *segments)
    return experiment_id
