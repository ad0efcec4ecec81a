"""What suggestions are worth: whether models learn, over seeds, with trials that never end.

Figures on other functions, and of all algorithms: `make bench ARGS=suggestions`.
"""

from __future__ import annotations

import statistics

import pytest

from support.sweeps import Sweep, experiment, parameter, rosenbrock, sphere
from tbservice.katib.suggestions import suggest

SEEDS = range(3)
SPACES = {
    "sphere": (sphere, parameter("x", "double", -10, 10), parameter("y", "double", -10, 10)),
    "rosenbrock": (rosenbrock, parameter("x", "double", -2, 2), parameter("y", "double", -1, 3)),
}


@pytest.fixture(autouse=True)
def _models_without_deadline(monkeypatch):
    monkeypatch.setattr("tbservice.katib.suggestions.task.SUGGESTION_SECONDS", 600.0)


def regrets(algorithm, name, trials):
    """Medians over seeds: of the best trial, and of the median of the last third."""
    function, *parameters = SPACES[name]
    losses = [
        Sweep(
            experiment(algorithm, *parameters, name=f"sweep-{seed}"), function, trials, seed=seed
        ).run(lambda request: suggest(request)[0])
        for seed in SEEDS
    ]
    best = statistics.median(min(each) for each in losses)
    last = statistics.median(statistics.median(each[-trials // 3 :]) for each in losses)
    return best, last


@pytest.mark.parametrize(
    ("algorithm", "name", "trials"),
    [
        ("tpe", "rosenbrock", 60),
        ("multivariate-tpe", "sphere", 60),
        ("cmaes", "rosenbrock", 60),
        ("bayesianoptimization", "sphere", 24),
    ],
)
def test_model_regret_is_less_than_half_of_random(algorithm, name, trials):
    best, last = regrets(algorithm, name, trials)
    random_best, random_last = regrets("random", name, trials)
    assert best < random_best
    assert last < random_last / 2


def test_cmaes_converges_without_state():
    """A study that is rebuilt without its optimizer stays at 6.8 on such a function."""
    assert regrets("cmaes", "sphere", 150)[1] < 0.01
