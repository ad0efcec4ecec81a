"""Curves of groups of runs: mean, deviation, median, minimum and maximum at each step of 1,000 runs
of 10,000 points, over HTTP, beside numpy on the same numbers in memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from bench import Bench, say
from machine import peak_memory, report, tell_times, time_each
from service import Service

from support.batches import packed_scalars, segment, stream
from support.hparams import start

RUNS = 1_000
POINTS = 10_000
EXPERIMENTS = 4
SEEDS = 5
ROUNDS = 5
TARGET = "at most 1 s"
QUERIES: dict[str, dict[str, Any]] = {
    "one group, 1,000 steps": {},
    "one group, all steps": {"downsample": POINTS},
    "groups of 5 seeds, 100 steps each": {"group_by": ["-seed"], "downsample": 100},
}


def measure(bench: Bench) -> None:
    """`--only` picks queries by their names."""
    runs = int(RUNS * bench.scale)
    with bench.new_service() as service:
        say(f"writing {runs:,} runs of {POINTS:,} points")
        matrix = _write(service, runs)
        service.query("ANALYZE")
        http = service.reader.http
        workspace = http.get("/api/v1/me").json()["workspace"]["workspace_id"]
        address = f"/api/v1/workspaces/{workspace}/runs/curves"

        def ask(query: dict[str, Any]) -> Callable[[], object]:
            # Posted answers are not kept: each is computed from the stored points.
            body = {"metric": "loss", **query}
            return lambda: http.post(address, json=body).raise_for_status()

        in_numpy = time_each(lambda: _compute(matrix), ROUNDS)
        report("numpy, on the matrix in memory", tell_times(in_numpy))
        report("first request, which reads the table of runs", tell_times(time_each(ask({}), 1)))
        for name, query in QUERIES.items():
            if bench.is_chosen(name):
                before = service.cpu_seconds()
                spent = time_each(ask(query), ROUNDS)
                used = service.cpu_seconds()
                cpu = ", ".join(
                    f"{group} {(used[group] - before[group]) / ROUNDS:.2f}"
                    for group in ("server", "PostgreSQL")
                    if group in used
                )
                ratio = statistics.median(spent) / statistics.median(in_numpy)
                figures = f"{tell_times(spent)}, {ratio:.1f} x numpy; CPU seconds: {cpu}"
                report(f"  {name}", figures, TARGET)
        _measure_unchanged(http, address)
        memory = peak_memory(service.live.process.pid) / 2**20
        report("  maximum of the worker", f"{memory:,.0f} MiB")


def _write(service: Service, runs: int) -> Any:
    generator = np.random.default_rng(1)
    steps = np.arange(POINTS)
    matrix = np.empty((runs, POINTS))
    ids = [service.api.new_experiment() for _ in range(EXPERIMENTS)]
    for number, row in enumerate(matrix):
        noise = generator.normal(0, 0.05, POINTS)
        row[:] = (2 / (1 + steps / 50) + noise).astype(np.float32)
        wall_times = 1.7e9 + number + np.round(0.37 * steps + generator.random(POINTS) / 100, 6)
        hparams = {"lr": 0.1 / (1 + number // SEEDS), "seed": number % SEEDS}
        series = packed_scalars("loss", steps, row.astype("<f4"), wall_times, block_points=8_192)
        file = f"events.out.tfevents.{number}"
        sent = segment(stream(f"trial_{number}", file), 0, 9, start(hparams), series)
        service.api.write(ids[number % EXPERIMENTS], sent)
    return matrix


def _compute(matrix: Any) -> list[Any]:
    return [
        matrix.mean(axis=0),
        matrix.std(axis=0, ddof=1),
        np.median(matrix, axis=0),
        matrix.min(axis=0),
        matrix.max(axis=0),
    ]


def _measure_unchanged(http: Any, address: str) -> None:
    """Ask again with the ETag of an answer: no points are read."""
    first = http.get(address, params={"metric": "loss"}).raise_for_status()
    headers = {"If-None-Match": first.headers["ETag"]}

    def ask() -> None:
        answer = http.get(address, params={"metric": "loss"}, headers=headers)
        assert answer.status_code == 304

    report("  unchanged (304)", tell_times(time_each(ask, ROUNDS)))
