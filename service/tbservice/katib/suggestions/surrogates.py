"""Models of the objective for Bayesian optimization, by scikit-learn: a mean and a deviation.

Losses are standardized, so that thresholds of acquisition functions have a meaning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy.optimize import minimize
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

Array = np.ndarray[Any, np.dtype[np.float64]]
Surrogate = Callable[[Array], tuple[Array, Array]]
"""Return mean and standard deviation of the standardized loss at each row."""

_TREES_ITEMS: Final = 50
_BOOSTED_ITEMS: Final = 30
_LEAF_TRIALS_MIN: Final = 3
_QUANTILES: Final = (0.16, 0.5, 0.84)
"""Quantiles of a normal distribution: one standard deviation below the mean, mean, one above."""

_LENGTHS_ITEMS_MAX: Final = 20
"""Columns up to which each has its own length scale; with more, they share one."""

_LENGTHS_TRIALS_MAX: Final = 100
"""Trials, the newest ones, that length scales are searched for with: the search takes most of the
time.
"""

_ITERATIONS_MAX: Final = 30
"""Steps of the search for length scales."""

_DEVIATION_MIN: Final = 1e-9


def standardized(losses: Array) -> Array:
    """Return losses with mean 0 and deviation 1, far outliers on the bad side clipped before.

    How bad a diverged trial is says nothing about the good ones.
    """
    low, high = np.quantile(losses, [0.25, 0.75])
    losses = np.minimum(losses, high + 3 * (high - low)) if high > low else losses
    deviation = losses.std()
    centred: Array = losses - losses.mean()
    return centred / deviation if deviation > 0 else centred


class GaussianProcess:
    """A Gaussian process whose length scales are searched for once, and kept for a batch."""

    def __init__(self, rows: Array, losses: Array) -> None:
        rows, losses = rows[-_LENGTHS_TRIALS_MAX:], losses[-_LENGTHS_TRIALS_MAX:]
        columns = rows.shape[1]
        lengths = np.full(columns if columns <= _LENGTHS_ITEMS_MAX else 1, 0.5)
        kernel = ConstantKernel(1.0, (1e-2, 1e3)) * Matern(lengths, (1e-2, 1e2), nu=2.5)
        kernel += WhiteKernel(1e-2, (1e-8, 1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # length scales at their bounds
            model = GaussianProcessRegressor(kernel, optimizer=_optimize).fit(rows, losses)
        self._kernel = model.kernel_

    def fit(self, rows: Array, losses: Array) -> Surrogate:
        """Return the process that went through these losses."""
        model = GaussianProcessRegressor(self._kernel, optimizer=None).fit(rows, losses)

        def predict(points: Array) -> tuple[Array, Array]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # variances that rounding makes negative
                mean, deviation = model.predict(points, return_std=True)
            return mean, np.maximum(deviation, _DEVIATION_MIN)

        return predict


def _optimize(objective: Any, start: Array, bounds: Array) -> tuple[Array, float]:
    found = minimize(
        objective,
        start,
        method="L-BFGS-B",
        jac=True,
        bounds=bounds,
        options={"maxiter": _ITERATIONS_MAX},
    )
    return np.asarray(found.x), float(found.fun)


class Trees:
    """A random forest (`RF`) or extremely randomized trees (`ET`)."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind = {"RF": RandomForestRegressor, "ET": ExtraTreesRegressor}[kind]
        self._seed = seed

    def fit(self, rows: Array, losses: Array) -> Surrogate:
        """Return the forest of these losses; the deviation is that of its trees."""
        forest = self._kind(
            _TREES_ITEMS, min_samples_leaf=_LEAF_TRIALS_MIN, random_state=self._seed
        ).fit(rows, losses)

        def predict(points: Array) -> tuple[Array, Array]:
            each = np.array([tree.predict(points) for tree in forest.estimators_])
            return each.mean(axis=0), np.maximum(each.std(axis=0), _DEVIATION_MIN)

        return predict


class BoostedTrees:
    """Gradient-boosted trees of three quantiles (`GBRT`)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, rows: Array, losses: Array) -> Surrogate:
        """Return the trees of these losses."""
        models = [
            GradientBoostingRegressor(
                loss="quantile",
                alpha=quantile,
                n_estimators=_BOOSTED_ITEMS,
                random_state=self._seed,
            ).fit(rows, losses)
            for quantile in _QUANTILES
        ]

        def predict(points: Array) -> tuple[Array, Array]:
            low, middle, high = (model.predict(points) for model in models)
            return middle, np.maximum((high - low) / 2, _DEVIATION_MIN)

        return predict


Model = GaussianProcess | Trees | BoostedTrees


def make_model(kind: str, rows: Array, losses: Array, seed: int) -> Model:
    """Return the model of a setting `base_estimator`."""
    if kind == "GP":
        return GaussianProcess(rows, losses)
    return BoostedTrees(seed) if kind == "GBRT" else Trees(kind, seed)
