"""Tree-structured Parzen estimators, by optuna: for each parameter alone, or for all together.

No state: a study is built from the trials of the request. Trials under way count as bad ones
(constant liar), so that a batch and stragglers do not gather at one point.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any, Final

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from tbservice.katib.suggestions import distinct
from tbservice.katib.suggestions.history import best_and_newest, squarable
from tbservice.katib.suggestions.space import Choice, Parameter, Point, Space
from tbservice.katib.suggestions.task import Task

optuna.logging.set_verbosity(optuna.logging.ERROR)

_TRIALS_ITEMS_MAX: Final = 1_000
_VALUES_ITEMS_MAX: Final = 20_000
"""Finished trials that a model is made of, and their values: the time of one suggestion grows with
them.
"""

_INDEXED_ITEMS_MAX: Final = 10_000
"""Steps of a parameter up to which the model sees them; it takes more for a continuous range."""

_GOOD_ITEMS_MAX: Final = 25
"""Trials that hyperopt counts as good at most."""


def propose_independent(task: Task) -> list[Point]:
    """Return points of one model per parameter."""
    return _propose(task, is_multivariate=False)


def propose_multivariate(task: Task) -> list[Point]:
    """Return points of one model for all parameters."""
    return _propose(task, is_multivariate=True)


def _propose(task: Task, *, is_multivariate: bool) -> list[Point]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated arguments, which Katib's settings need
        sampler = _make_sampler(task, is_multivariate=is_multivariate)
        study = optuna.create_study(sampler=sampler)
        distributions = _distributions(task.space)
        _add_trials(study, task, distributions)

        def ask() -> Point:
            if task.is_late:
                return distinct.draw(task.space, task.rng)
            return _point(task.space, study.ask(distributions).params)

        return distinct.propose(task, ask)


def _make_sampler(task: Task, *, is_multivariate: bool) -> optuna.samplers.TPESampler:
    settings = dict(task.settings)
    candidates = settings.get("n_EI_candidates", settings.get("n_ei_candidates", 24))
    options: dict[str, Any] = {
        "multivariate": is_multivariate,
        "constant_liar": True,
        "n_startup_trials": settings.get("n_startup_trials", 10),
        "n_ei_candidates": max(candidates, 1),
        "seed": int(task.rng.integers(2**32)),
    }
    # Deprecated in optuna 4.9 with end in 6: only for those who set them.
    if "prior_weight" in settings:
        options["prior_weight"] = settings["prior_weight"]
    if "gamma" in settings:
        options["gamma"] = _good_items(settings["gamma"])
    return optuna.samplers.TPESampler(**options)


def _good_items(gamma: float) -> Any:
    """Return hyperopt's meaning of gamma: the number of good trials among n."""
    return lambda n: min(math.ceil(gamma * math.sqrt(n)), _GOOD_ITEMS_MAX)


def _is_indexed(parameter: Parameter) -> bool:
    """Whether the model sees steps rather than positions in [0, 1]."""
    if isinstance(parameter, Choice):
        return True
    count = parameter.count
    return count is not None and count <= _INDEXED_ITEMS_MAX and parameter.is_uniform


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    distributions: dict[str, BaseDistribution] = {}
    for number, parameter in enumerate(space.parameters):
        if isinstance(parameter, Choice):
            distribution: BaseDistribution = CategoricalDistribution(range(parameter.count))
        elif _is_indexed(parameter):
            distribution = IntDistribution(0, (parameter.count or 1) - 1)
        else:
            distribution = FloatDistribution(0.0, 1.0)
        distributions[str(number)] = distribution  # names may be long
    return distributions


def _params(space: Space, point: Point) -> dict[str, Any]:
    return {
        str(number): value if _is_indexed(parameter) else parameter.position(value)
        for number, (parameter, value) in enumerate(zip(space.parameters, point, strict=True))
    }


def _point(space: Space, params: Mapping[str, Any]) -> Point:
    values = (params[str(number)] for number in range(len(space.parameters)))
    return tuple(
        value if _is_indexed(parameter) else parameter.value(value)
        for parameter, value in zip(space.parameters, values, strict=True)
    )


def _add_trials(
    study: optuna.Study, task: Task, distributions: dict[str, BaseDistribution]
) -> None:
    items_max = min(_TRIALS_ITEMS_MAX, _VALUES_ITEMS_MAX // len(task.space.parameters))
    observed = best_and_newest(task.history.observed, items_max)
    losses = squarable(item.loss for item in observed)
    for item, loss in zip(observed, losses, strict=True):
        params = _params(task.space, item.point)
        study.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=loss)
        )
    for point in task.history.pending[-items_max:]:
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=_params(task.space, point),
                distributions=distributions,
            )
        )
