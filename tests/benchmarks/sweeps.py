"""Sweeps of Katib over gRPC, beside random: restarts, repeated reports, trials that end late or never."""

from __future__ import annotations

import statistics
import time

from bench import Bench, say
from machine import report
from suggestions import FUNCTIONS, GRID_STEPS, TRIALS

from support.katib_controller import Controller
from support.katib_restarts import PatientKatib, RestartingService, SweepsWithRestarts
from support.katib_seen import check_sweep
from support.sweeps import ALGORITHMS, darts_experiment, experiment, parameter
from support.uploading import Reader
from tbservice.katib import katib_pb2 as pb

PARALLEL = 3
WORKERS = 2
SEEDS = 5
RESTARTS = 6
HYPERBAND = {"r_l": 3, "resource_name": "epochs"}
"""With a resource of 3 it takes 3 trials in parallel."""


def measure(bench: Bench) -> None:
    """Runs one sweep of each algorithm at a time, and checks each: see `check_sweep`."""
    at = [TRIALS * (number + 1) // (RESTARTS + 1) for number in range(RESTARTS)]
    (bench.directory / "log").mkdir()
    with (
        bench.servers.database() as url,
        bench.servers.settings(url) as settings,
        RestartingService(settings, bench.directory / "log", WORKERS) as service,
    ):
        for name in FUNCTIONS:
            algorithms = [
                algorithm
                for algorithm in (*ALGORITHMS, "darts")
                if bench.is_chosen(f"{name} {algorithm}")
            ]
            losses: dict[str, list[list[float]]] = {algorithm: [] for algorithm in algorithms}
            for seed in range(max(round(SEEDS * bench.scale), 1) if algorithms else 0):
                sweeps = _run(service, at, name, algorithms, seed)
                for algorithm in algorithms:
                    losses[algorithm].append(sweeps[algorithm])
            losses.pop("darts", None)  # which minimizes nothing
            _report(name, losses)


def _run(
    service: RestartingService, at: list[int], name: str, algorithms: list[str], seed: int
) -> dict[str, list[float]]:
    """Runs and checks a sweep of each algorithm; returns their losses in the order of their ends."""
    token = service.live.new_owner()
    controllers = [
        Controller(
            PatientKatib(service.port, token),
            _experiment(name, algorithm, seed),
            FUNCTIONS[name][0] if algorithm != "darts" else lambda _row: 1.0,
            trials=TRIALS,
            parallel=PARALLEL,
            seed=seed,
            has_late_trial=True,
        )
        for algorithm in algorithms
    ]
    starts, began = service.starts, time.monotonic()
    losses = SweepsWithRestarts(service, at).run(controllers)
    seconds = time.monotonic() - began
    for controller in controllers:
        with Reader(service.live.url, token).http as reader:
            check_sweep(controller, controller.katib, reader)
    requests = sum(len(item.requests) for each in controllers for item in each.items)
    say(
        f"{name}, seed {seed}: {len(controllers)} sweeps in {seconds:.0f} s, "
        f"{service.starts - starts} restarts, {requests:,} reports, "
        f"{sum(each.katib.repeated for each in controllers)} calls without an answer: all is stored"
    )
    return dict(zip(algorithms, losses, strict=True))


def _experiment(name: str, algorithm: str, seed: int) -> pb.Experiment:
    function, *bounds = FUNCTIONS[name]
    options = {
        "name": f"{function.__name__}-{algorithm}-{seed}",
        "parallel_trial_count": PARALLEL,
        "max_trial_count": TRIALS,
    }
    if algorithm == "darts":
        return darts_experiment(**options)
    parameters = []
    for axis, (low, high) in zip("xy", bounds, strict=True):
        step = GRID_STEPS[name] if algorithm == "grid" else ""
        parameters.append(parameter(axis, "double", low, high, step=step))
    if algorithm == "hyperband":
        parameters.append(parameter("epochs", "int", 1, 3))
        options["settings"] = HYPERBAND
    return experiment(algorithm, *parameters, **options)


def _report(name: str, losses: dict[str, list[list[float]]]) -> None:
    for algorithm, sweeps in losses.items():
        best = statistics.median(min(each) for each in sweeps)
        last = statistics.median(statistics.median(each[-TRIALS // 3 :]) for each in sweeps)
        report(
            f"{name}, {algorithm}: regret of the best trial, median of {len(sweeps)} seeds",
            f"{best:.3g}",
            f"median of the last third {last:.3g}",
        )
