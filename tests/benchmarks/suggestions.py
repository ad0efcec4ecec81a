"""The regret of sweeps of each algorithm; `katib` measures how long suggestions take."""

from __future__ import annotations

import statistics

from bench import Bench, say
from machine import report

from support.sweeps import ALGORITHMS, Sweep, branin, experiment, parameter, rosenbrock
from tbservice.katib.suggestions import reply

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
    """Runs sweeps of 60 trials, 3 at a time, with a straggler."""
    reply.load_all()
    seeds = max(int(SEEDS * bench.scale), 3)
    for name in FUNCTIONS:
        say(f"sweeps of {TRIALS} trials on {name}, medians of {seeds} seeds")
        for algorithm in ALGORITHMS:
            if bench.is_chosen(algorithm):
                _compare(name, algorithm, seeds)


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
        losses = sweep.run(reply.suggest)
        best.append(min(losses))
        last.append(statistics.median(losses[-TRIALS // 3 :]))
    report(
        f"{name}, {algorithm}: regret of the best trial",
        f"{statistics.median(best):.3g}",
        f"median of the last third {statistics.median(last):.3g}",
    )
