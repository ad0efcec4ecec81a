"""CMA-ES, by cmaes: a normal distribution over the numeric parameters that moves and changes shape.

No state: the generations are told again from the trials of the request. A generation is as many
finished trials as the population has, in the order of their ends, so that later requests only add
generations. Lists are drawn at random, as in Katib: CMA-ES knows numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from cmaes import CMA, SepCMA

from tbservice.katib.suggestions import distinct
from tbservice.katib.suggestions.history import squarable
from tbservice.katib.suggestions.space import Number, Point
from tbservice.katib.suggestions.specification import check_numbers
from tbservice.katib.suggestions.task import Task

_SIGMA: Final = 1 / 6
"""Initial standard deviation of each parameter, as a part of its range; as in Katib."""

_SIGMA_MAX: Final = 0.5
_FULL_ITEMS_MAX: Final = 30
"""Parameters up to which covariances are learned; with more, only variances (SepCMA): time grows
with the third power, and a sweep is too short for so many covariances.
"""

_POPULATION_ITEMS_MAX: Final = 1_000


def propose(task: Task) -> list[Point]:
    """Return points of the distribution that the finished trials lead to.

    Raises:
        Invalid: The space has fewer than two numeric parameters.
    """
    numeric = [i for i, p in enumerate(task.space.parameters) if isinstance(p, Number)]
    check_numbers(task.space)
    search = _replay(task, numeric)

    def ask() -> Point:
        values = list(distinct.draw(task.space, task.rng))
        for i, position in zip(numeric, search.ask(), strict=True):
            values[i] = task.space.parameters[i].value(min(max(float(position), 0.0), 1.0))
        return tuple(values)

    return distinct.propose(task, ask)


@dataclass
class _Restarts:
    """Population sizes of successive searches.

    `ipop` doubles the population; `bipop` alternates between that and small ones, whichever had
    fewer trials so far (Hansen 2009, "Benchmarking a BI-population CMA-ES").
    """

    strategy: str
    default: int
    large: int
    rng: np.random.Generator
    large_trials: int = 0
    small_trials: int = 0
    is_small: bool = False

    def next(self, trials: int) -> tuple[int, float]:
        """Return population size and scale of sigma after a search that took some trials."""
        if self.is_small:
            self.small_trials += trials
        else:
            self.large_trials += trials
        self.is_small = self.strategy == "bipop" and self.small_trials < self.large_trials
        if self.is_small:
            draws = self.rng.random(2)
            ratio = max(self.large / (2 * self.default), 1.0)
            return int(self.default * ratio ** (draws[0] ** 2)), 10 ** (-2 * draws[1])
        self.large = min(2 * self.large, _POPULATION_ITEMS_MAX)
        return self.large, 1.0


def _replay(task: Task, numeric: list[int]) -> Any:
    """Return the search after all complete generations, ready to be asked."""
    count = len(numeric)
    sigma = _initial_sigma(task, numeric)
    seed = int(task.rng.integers(2**32))
    population = 4 + int(3 * math.log(count))
    rng = task.rng_of("restarts")
    restarts = _Restarts(task.settings.get("restart_strategy", "none"), population, population, rng)
    search = _make_search(np.full(count, 0.5), sigma, population, seed)

    losses = squarable(item.loss for item in task.history.observed)
    rows = _rows(task, numeric)
    first = begin = 0
    while begin + search.population_size <= len(rows):
        end = begin + search.population_size
        search.tell(list(zip(rows[begin:end], losses[begin:end], strict=True)))
        begin = end
        if restarts.strategy in {"ipop", "bipop"} and search.should_stop():
            population, shrink = restarts.next(end - first)
            first = end
            search = _make_search(rng.random(count), sigma * shrink, population, seed)
    return search


def _rows(task: Task, numeric: list[int]) -> list[np.ndarray]:
    parameters = task.space.parameters
    return [
        np.array([parameters[i].position(item.point[i]) for i in numeric])
        for item in task.history.observed
    ]


def _make_search(mean: np.ndarray, sigma: float, population: int, seed: int) -> Any:
    kind = CMA if len(mean) <= _FULL_ITEMS_MAX else SepCMA
    bounds = np.tile([0.0, 1.0], (len(mean), 1))
    return kind(mean=mean, sigma=sigma, bounds=bounds, population_size=population, seed=seed)


def _initial_sigma(task: Task, numeric: list[int]) -> float:
    """Return the setting `sigma` in the unit cube: it is given in units of the smallest range."""
    sigma = float(task.settings.get("sigma", 0.0))
    if sigma == 0:
        return _SIGMA
    spans = []
    for i in numeric:
        parameter = task.space.parameters[i]
        if isinstance(parameter, Number) and parameter.scale:
            spans.append(parameter.scale.high - parameter.scale.low)
    return min(max(sigma / min(spans, default=1.0), 1e-3), _SIGMA_MAX)
