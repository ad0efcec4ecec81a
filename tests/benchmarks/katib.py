"""Katib's gRPC API: reports of many trials at once, large reports, and suggestions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
from bench import Bench, say
from machine import report, time_each, time_once
from service import Service

from support.batches import ApiClient, scalars, segment, stream
from support.katib_client import Katib, katib_client
from support.sweeps import ALGORITHMS, experiment, parameter, sphere, trial
from tbservice.katib import katib_pb2 as pb
from tbservice.local.embedded.ports import choose_ports

TRIALS = 50
SECONDS = 20
LOGS = 100_000
FINISHED_TRIALS = 1_000
WANTED = 5


def measure(bench: Bench) -> None:
    """Reports once a second of each trial, then what is large, one call at a time."""
    port = choose_ports(["grpc"], {})["grpc"]
    with (
        bench.new_service(TBHUB_GRPC_PORT=str(port)) as service,
        ExitStack() as stack,
    ):
        katib = katib_client(stack, port, service.token)
        say("waiting for the libraries of suggestions")
        _suggest(katib, "random", 0)
        if bench.is_chosen("reports"):
            _measure_reports(katib, service, max(2, round(SECONDS * bench.scale)))
        if bench.is_chosen("logs"):
            _measure_logs(katib, round(LOGS * bench.scale), bench.rounds)
        for algorithm in ALGORITHMS:
            if bench.is_chosen(f"suggestions {algorithm}"):
                trials = round(FINISHED_TRIALS * bench.scale)
                seconds = min(time_each(partial(_suggest, katib, algorithm, trials), 2))
                report(
                    f"{WANTED} suggestions of {algorithm}, {trials:,} finished trials",
                    f"{seconds:.2f} s",
                    "at most 2 s",
                )


def _measure_reports(katib: Katib, service: Service, seconds: int) -> None:
    """Latency of a report while all trials report once a second, beside a batch over HTTP."""
    waits: list[float] = []

    def run(number: int) -> None:
        time.sleep(number / TRIALS)
        for step in range(seconds):
            began = time.perf_counter()
            katib.report(f"fifty-{number:08}", ("loss", step, f"2026-01-01T00:00:{step:02}Z"))
            waits.append(time.perf_counter() - began)
            time.sleep(max(0.0, began + 1 - time.perf_counter()))

    with ThreadPoolExecutor(TRIALS) as threads:
        list(threads.map(run, range(TRIALS)))
    report(
        f"report of a metric, {TRIALS} trials with one a second: median, p95",
        f"{1e3 * np.quantile(waits, 0.5):.1f} ms {1e3 * np.quantile(waits, 0.95):.1f} ms",
        "p95 at most 20 ms",
    )

    api = service.api
    experiment_id = api.new_experiment()
    alone = [time_once(partial(katib.report, "alone-bcdfghjk", ("loss", n))) for n in range(200)]
    batches = [time_once(_batch(api, experiment_id, n)) for n in range(200)]
    ratio = np.quantile(alone, 0.5) / np.quantile(batches, 0.5)
    report(
        "report, one after the other: median, beside a batch of one point over HTTP",
        f"{1e3 * np.quantile(alone, 0.5):.1f} ms {ratio:.2f} x",
        "at most 1.5 x",
    )


def _batch(api: ApiClient, experiment_id: str, number: int) -> Callable[[], object]:
    content = segment(stream(), number, number + 1, scalars("loss", [number], [1.0]))
    return lambda: api.write(experiment_id, content)


def _measure_logs(katib: Katib, count: int, rounds: int) -> None:
    times = []
    for number in range(rounds):
        logs = [
            ("loss", n / 7, f"2026-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z")
            for n in range(count)
        ]
        began = time.perf_counter()
        katib.report(f"logs-{number:08}", *logs, timeout=120)
        times.append(time.perf_counter() - began)
    report(f"a report of {count:,} logs", f"{min(times):.2f} s", "at most 2 s")
    began = time.perf_counter()
    read = len(katib.logs("logs-00000000"))
    report(f"reading {read:,} logs back", f"{time.perf_counter() - began:.2f} s")


def _suggest(katib: Katib, algorithm: str, count: int) -> None:
    generator = random.Random(1)  # noqa: S311 - the same in each run
    trials = []
    for number in range(count):
        row = {name: str(round(generator.uniform(-5, 5), 1)) for name in ("x", "y")}
        trials.append(trial(f"sweep-{number:08}", row, sphere(row)))
    settings = {"r_l": 9, "resource_name": "x", "eta": 3} if algorithm == "hyperband" else {}
    space = [parameter(name, "double", -5, 5, step="0.1") for name in ("x", "y")]
    request = pb.GetSuggestionsRequest(
        experiment=experiment(
            algorithm, *space, name=f"sweep {algorithm}", settings=settings, parallel_trial_count=9
        ),
        trials=trials,
        current_request_number=WANTED,
        total_request_number=count + WANTED,
    )
    katib.call("GetSuggestions", request, timeout=60)
