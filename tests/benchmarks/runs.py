"""The table of runs: a page of 100 of 100,000 runs of 20 hyperparameters and 10 metrics, over HTTP,
beside a page of the list of experiments in the same service.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from bench import Bench, say
from hparams_sessions import segments
from machine import peak_memory, report, tell_times, time_each
from service import Service

RUNS = 100_000
EXPERIMENTS = 20
ROUNDS = 11
TARGET = "at most 100 ms"
WHERE = 'rate_00 < 0.3 and optimizer = "adam" and metric_0.min < 0.3'
QUERIES: dict[str, dict[str, Any]] = {
    "filtered by three columns, sorted by one": {"where": WHERE, "sort": ["metric_1.max"]},
    "the same, 5 columns": {
        "where": WHERE,
        "sort": ["metric_1.max"],
        "column": ["run", "rate_00", "optimizer", "metric_0.min", "metric_1.max"],
    },
    "all, sorted by two columns": {"sort": ["-optimizer", "metric_2"]},
    "all, unsorted": {},
    "names that match a regular expression": {"where": 'run ~ "trial_0+7"', "sort": ["run"]},
}


def measure(bench: Bench) -> None:
    """`--only` picks queries by their names."""
    with bench.new_service() as service:
        count = int(RUNS * bench.scale) // EXPERIMENTS
        say(f"writing {count * EXPERIMENTS:,} runs of {EXPERIMENTS} experiments")
        ids = [service.api.new_experiment() for _ in range(EXPERIMENTS)]
        for index, experiment_id in enumerate(ids):
            for batch in segments(index * count, count):
                service.api.write(experiment_id, *batch)
        service.query("ANALYZE")
        http = service.reader.http
        workspace = http.get("/api/v1/me").json()["workspace"]["workspace_id"]

        def ask(query: dict[str, Any]) -> Callable[[], object]:
            return lambda: http.get(
                f"/api/v1/workspaces/{workspace}/runs", params=query
            ).raise_for_status()

        filtered = QUERIES["filtered by three columns, sorted by one"]
        report("first request, reading all", tell_times(time_each(ask(filtered), 1)))
        listed = time_each(
            lambda: http.get("/api/v1/experiments?limit=100").raise_for_status(), ROUNDS
        )
        report("  beside it, a page of the list of experiments", tell_times(listed))
        for name, query in QUERIES.items():
            if bench.is_chosen(name):
                spent = time_each(ask(query), ROUNDS)
                ratio = statistics.median(spent) / statistics.median(listed)
                report(f"  {name}", f"{tell_times(spent)}, {ratio:.1f} x that list", TARGET)
        _measure_changed(service, ids, count, ask(filtered))
        report(
            "  memory of the worker", f"{peak_memory(service.live.process.pid) / 2**20:,.0f} MiB"
        )


def _measure_changed(
    service: Service, ids: list[str], count: int, ask: Callable[[], object]
) -> None:
    """One of the experiments has changed before each request: it is read again."""
    spent = []
    for number, batch in enumerate(segments(10**6, ROUNDS, per_batch=1)):
        service.api.write(ids[number % len(ids)], *batch)
        spent += time_each(ask, 1)
    report(f"  after a change of one experiment of {count:,} runs", tell_times(spent), "stated")
