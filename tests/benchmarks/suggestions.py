"""How long suggestions of each algorithm take with 1,000 finished trials, and what they are worth."""

from __future__ import annotations

import random
import statistics
import time

from bench import Bench, say
from machine import report

from support.sweeps import (
    ALGORITHMS,
    Sweep,
    branin,
    experiment,
    parameter,
    rosenbrock,
    rows_of,
    trial,
)
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import reply

FINISHED = 1_000
WANTED = 3
PARAMETERS = 10
CALLS = 5
TRIALS = 60
SEEDS = 11
HYPERBAND = {"r_l": 9, "resource_name": "epochs"}
FUNCTIONS = {
    "Branin": (branin, (-5, 10), (0, 15)),
    "Rosenbrock": (rosenbrock, (-2, 2), (-1, 3)),
}
GRID_STEPS = {"Branin": "2", "Rosenbrock": "0.55"}
"""Steps of grids with 64 points, hardly more than a sweep has trials, none of them a minimum."""


def measure(bench: Bench) -> None:
    """Times requests first; then runs sweeps of 60 trials, 3 at a time, with a straggler."""
    reply.load_all()
    for algorithm in ALGORITHMS:
        if bench.is_chosen(algorithm):
            _time(algorithm, max(int(FINISHED * bench.scale), 1))
    seeds = max(int(SEEDS * bench.scale), 3)
    for name in FUNCTIONS:
        say(f"sweeps of {TRIALS} trials on {name}, medians of {seeds} seeds")
        for algorithm in ALGORITHMS:
            if bench.is_chosen(algorithm):
                _compare(name, algorithm, seeds)


def _time(algorithm: str, finished: int) -> None:
    rng = random.Random(1)  # noqa: S311 - a simulation
    step = 0.01 if algorithm == "grid" else ""
    parameters = [parameter(f"p{i}", "double", 0, 1, step=step) for i in range(PARAMETERS - 1)]
    parameters.append(parameter("list", "categorical", "a", "b", "c"))
    settings = {}
    if algorithm == "hyperband":
        parameters.append(parameter("epochs", "int", 1, 9))
        settings = HYPERBAND
    message = experiment(algorithm, *parameters, settings=settings)
    rows = [
        {
            spec.name: str(round(rng.random(), 2))
            if spec.name.startswith("p")
            else rng.choice(spec.feasible_space.list or "139")
            for spec in parameters
        }
        for _ in range(finished)
    ]
    trials = [
        trial(f"t{i}", row, _distance(row), start=_clock(i), end=_clock(i + 60))
        for i, row in enumerate(rows)
    ]
    request = pb.GetSuggestionsRequest(
        experiment=message,
        trials=trials,
        current_request_number=WANTED,
        total_request_number=finished + WANTED,
    )
    seconds = [_timed(request) for _ in range(CALLS)]
    report(
        f"{WANTED} suggestions after {finished:,} trials, {algorithm}",
        f"{statistics.median(seconds) * 1000:,.0f} ms",
        "at most 2,000",
    )


def _distance(row: dict[str, str]) -> float:
    return sum((float(value) - 0.3) ** 2 for name, value in row.items() if name[0] == "p")


def _clock(minutes: int) -> str:
    return f"2026-01-{1 + minutes // 1440:02}T{minutes // 60 % 24:02}:{minutes % 60:02}:00Z"


def _timed(request: pb.GetSuggestionsRequest) -> float:
    start = time.perf_counter()
    assert len(rows_of(reply.suggest(request)[0])) == WANTED
    return time.perf_counter() - start


def _compare(name: str, algorithm: str, seeds: int) -> None:
    function, xs, ys = FUNCTIONS[name]
    parameters = []
    for axis, (low, high) in (("x", xs), ("y", ys)):
        step = GRID_STEPS[name] if algorithm == "grid" else ""
        parameters.append(parameter(axis, "double", low, high, step=step))
    settings = {}
    if algorithm == "hyperband":
        parameters.append(parameter("epochs", "int", 1, 9))
        settings = HYPERBAND
    best, last = [], []
    for seed in range(seeds):
        message = experiment(algorithm, *parameters, name=f"sweep-{seed}", settings=settings)
        sweep = Sweep(message, function, trials=TRIALS, seed=seed)
        losses = sweep.run(lambda request: reply.suggest(request)[0])
        best.append(min(losses))
        last.append(statistics.median(losses[-TRIALS // 3 :]))
    report(
        f"{name}, {algorithm}: regret of the best trial",
        f"{statistics.median(best):.3g}",
        f"median of the last third {statistics.median(last):.3g}",
    )
