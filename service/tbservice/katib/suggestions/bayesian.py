"""Bayesian optimization: ask a model of the objective where the next trial is worth most.

No state: the model is made of the trials of the request. For trials under way, and for the points
already in the batch, the model's own prediction is taken as their result (Ginsbourger et al. 2010,
"kriging believer").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from tbservice.katib.suggestions.distinct import draw, draw_unused
from tbservice.katib.suggestions.history import Observed, best_and_newest, squarable
from tbservice.katib.suggestions.space import Choice, Point, Space
from tbservice.katib.suggestions.surrogates import (
    Array,
    GaussianProcess,
    Surrogate,
    make_model,
    standardized,
)
from tbservice.katib.suggestions.task import Task

_TRIALS_ITEMS_MAX: Final = 200
"""Finished trials that a model is made of: a Gaussian process takes their third power in time."""

_PENDING_ITEMS_MAX: Final = 200
_INITIAL_TRIALS: Final = 10
_CANDIDATES_ITEMS: Final = 1_000
_NEAR_CANDIDATES_ITEMS: Final = 200
_NEAR_DEVIATIONS: Final = (0.02, 0.1)
_ONE_HOT_ITEMS_MAX: Final = 20
"""Items of a list up to which each is a column; longer lists are one column with the index."""

_POLISH_ITERATIONS_MAX: Final = 20
_FAR_DEVIATIONS: Final = -5.0
_KAPPA: Final = 1.96
_HEDGE: Final = ("LCB", "EI", "PI")


def propose(task: Task) -> list[Point]:
    """Return points that promise most; random ones until there are `n_initial_points` trials."""
    used = set(task.history.used)
    points: list[Point] = []
    observed = best_and_newest(task.history.observed, _TRIALS_ITEMS_MAX)
    if len(observed) >= max(task.settings.get("n_initial_points", _INITIAL_TRIALS), 1):
        search = _Search(task, observed)
        while len(points) < task.count and not task.is_late:
            point = search.next(used)
            if point is None:
                break
            points.append(point)
            used.add(point)

    while len(points) < task.count:
        points.append(draw_unused(task.space, used, task.rng))
        used.add(points[-1])
    return points


class _Search:
    """The model of a request and the candidates that it compares."""

    def __init__(self, task: Task, observed: Sequence[Observed]) -> None:
        self._task, self._space = task, task.space
        self._acquisition = task.settings.get("acq_func", "gp_hedge")
        self._candidates = _candidates(task, observed)
        self._columns = encode(self._space, self._candidates)
        self._rows = encode(self._space, [item.point for item in observed])
        losses = squarable(item.loss for item in observed)
        self._losses = standardized(np.array(losses))
        kind = task.settings.get("base_estimator", "GP")
        self._model = make_model(kind, self._rows, self._losses, task.seed_of("model"))
        self._costs = self._predict_costs(observed)
        self._surrogate = self._model.fit(self._rows, self._losses)
        self._believe(task.history.pending[-_PENDING_ITEMS_MAX:])

    def next(self, used: set[Point]) -> Point | None:
        """Return the best candidate that is not used, and take its prediction as its result."""
        kind = self._acquisition
        if kind == "gp_hedge":
            kind = _HEDGE[int(self._task.rng.integers(len(_HEDGE)))]
        scores = acquisition(kind, self._surrogate, self._columns, float(self._losses.min()))
        if self._costs is not None:
            scores = scores - self._costs
        order = np.argsort(-scores, kind="stable")
        unused = (self._candidates[i] for i in order if self._candidates[i] not in used)
        point = next(unused, None)
        if point is None:
            return None
        if self._is_polished() and (better := self._polish(point, kind)) not in used:
            point = better
        self._believe([point])
        return point

    def _believe(self, points: Sequence[Point]) -> None:
        """Take predictions as results."""
        if points:
            rows = encode(self._space, points)
            self._losses = np.append(self._losses, self._surrogate(rows)[0])
            self._rows = np.vstack([self._rows, rows])
            self._surrogate = self._model.fit(self._rows, self._losses)

    def _predict_costs(self, observed: Sequence[Observed]) -> Array | None:
        """Return the logarithm of each candidate's expected duration; None unless it is wanted."""
        seconds = [item.seconds for item in observed if item.seconds]
        if not self._acquisition.endswith("ps") or len(seconds) < len(observed):
            return None
        logs = np.log(np.array(seconds))
        spread = float(logs.std()) or 1.0
        values = (logs - logs.mean()) / spread
        mean, _ = GaussianProcess(self._rows, values).fit(self._rows, values)(self._columns)
        return mean * spread

    def _is_polished(self) -> bool:
        """Whether a candidate is improved by L-BFGS; only a Gaussian process has slopes."""
        setting = self._task.settings.get("acq_optimizer", "auto")
        has_costs = self._costs is not None
        return isinstance(self._model, GaussianProcess) and setting != "sampling" and not has_costs

    def _polish(self, point: Point, kind: str) -> Point:
        """Return the best point near a candidate; steps and lists stay as they are."""
        free = [i for i, p in enumerate(self._space.parameters) if p.count is None]
        if not free:
            return point
        row = encode(self._space, [point])[0]
        columns = [_first_column(self._space, i) for i in free]
        best = float(self._losses.min())

        def cost(positions: Array) -> tuple[float, Array]:
            shift = 1e-6
            rows = np.tile(row, (len(columns) + 1, 1))
            rows[:, columns] = positions
            rows[np.arange(1, len(rows)), columns] += shift
            scores = -acquisition(kind, self._surrogate, rows, best)
            return float(scores[0]), (scores[1:] - scores[0]) / shift

        found = minimize(
            cost,
            row[columns],
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(columns),
            options={"maxiter": _POLISH_ITERATIONS_MAX},
        )
        values = list(point)
        for i, position in zip(free, found.x, strict=True):
            values[i] = self._space.parameters[i].value(float(position))
        return tuple(values)


def acquisition(kind: str, surrogate: Surrogate, rows: Array, best: float) -> Array:
    """Return how promising each row is; larger is better.

    Improvements are logarithms: near an optimum, the numbers themselves are 0 almost everywhere,
    and the choice would be random (Ament et al. 2023, "Unexpected improvements to expected
    improvement").
    """
    mean, deviation = surrogate(rows)
    if kind == "LCB":
        return _KAPPA * deviation - mean
    ratio = (best - mean) / deviation
    if kind.startswith("PI"):
        return np.asarray(norm.logcdf(ratio))
    far = np.minimum(ratio, _FAR_DEVIATIONS)
    tail = norm.logpdf(far) - 2 * np.log(-far)  # what the next line tends to
    near = np.maximum(ratio, _FAR_DEVIATIONS)
    gain = np.log(norm.pdf(near) + near * norm.cdf(near))
    return np.asarray(np.log(deviation) + np.where(ratio < _FAR_DEVIATIONS, tail, gain))


def _candidates(task: Task, observed: Sequence[Observed]) -> list[Point]:
    """Return random points, and points near the best trials."""
    rng, space = task.rng, task.space
    points = [draw(space, rng) for _ in range(_CANDIDATES_ITEMS)]
    best = sorted(observed, key=lambda item: item.loss)[:5]
    for number in range(_NEAR_CANDIDATES_ITEMS):
        near = np.array(space.positions(best[number % len(best)].point))
        step = rng.normal(0, _NEAR_DEVIATIONS[number % 2], len(near))
        points.append(space.point(np.clip(near + step, 0, 1)))
    return list(dict.fromkeys(points))


def _width(space: Space, index: int) -> int:
    parameter = space.parameters[index]
    is_one_hot = isinstance(parameter, Choice) and parameter.count <= _ONE_HOT_ITEMS_MAX
    return parameter.count or 1 if is_one_hot else 1


def _first_column(space: Space, index: int) -> int:
    return sum(_width(space, i) for i in range(index))


def encode(space: Space, points: Sequence[Point]) -> Array:
    """Return a row of numbers in [0, 1] for each point: positions, and short lists one-hot."""
    rows = np.zeros((len(points), _first_column(space, len(space.parameters))))
    column = 0
    for index, parameter in enumerate(space.parameters):
        values = [point[index] for point in points]
        width = _width(space, index)
        if width > 1:
            rows[np.arange(len(points)), column + np.array(values, int)] = 1
        else:
            rows[:, column] = [parameter.position(value) for value in values]
        column += width
    return rows
