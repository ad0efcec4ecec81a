"""Time of the listings that a page of many series waits for."""

from __future__ import annotations

from collections.abc import Callable

import urllib3
from bench import Bench, say
from local_tensorboard import Site
from machine import median_of, report
from service import Service

from support.batches import scalars, segment, stream

WIDE_RUNS, WIDE_TAGS = 1_000, 100
BATCH_SERIES = 5_000


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
