"""Median stopping: a trial stops if its objective is worse than the middle of earlier trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.settings import Rule, check_count
from tbservice.katib.suggestions.texts import shown
from tbservice.types.identifiers import Float64s

_ALGORITHM: Final = "medianstop"
_INT32_MAX: Final = 2**31 - 1


def _mean(values: Sequence[float] | Float64s) -> float:
    return math.fsum(value / len(values) for value in values)  # the sum may be too large


def _median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else _mean(ordered[half - 1 : half + 1])


_STATISTICS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "median": _median,
    "mean": _mean,
}
"""Statistics called median: Golovin et al. 2017 take the median, Katib's own service the mean."""

_DEFAULTS: Final[dict[str, Any]] = {
    "min_trials_required": 3,
    "start_step": 4,
    "statistic": "median",
}

_RULES: Final = {
    "min_trials_required": Rule(
        int, lambda n: n > 0, "min_trials_required must be greater than zero (>0)", _INT32_MAX
    ),
    "start_step": Rule(
        int, lambda n: n >= 1, "start_step must be greater or equal than one (>=1)", _INT32_MAX
    ),
    "statistic": Rule(str, _STATISTICS.__contains__, "statistic must be median or mean"),
}


def validate(spec: pb.EarlyStoppingSpec) -> None:
    """Check the algorithm of early stopping and its settings.

    Raises:
        Invalid: With Katib's text where Katib has one.
    """
    if spec.algorithm_name != _ALGORITHM:
        raise Invalid(f"unknown algorithm name {shown(spec.algorithm_name)}")
    check_count(spec.algorithm_settings)
    for setting in spec.algorithm_settings:
        if setting.name not in _RULES:
            raise Invalid(
                f"unknown setting {shown(setting.name)} for algorithm {spec.algorithm_name}"
            )
        _RULES[setting.name].read(setting)


def logs_per_trial(spec: pb.EarlyStoppingSpec) -> int:
    """Return how many logs of the objective, the first ones, count of each trial.

    Raises:
        Invalid: A setting breaks its rule.
    """
    return int(_read(spec)["start_step"])


def trials_to_compare(trials: Iterable[pb.Trial]) -> list[str]:
    """Return the names of the trials whose logs count, each once: those that ran to their end."""
    ended = (t.name for t in trials if t.status.condition == pb.TrialStatus.SUCCEEDED)
    return list(dict.fromkeys(ended))


def rules(
    spec: pb.EarlyStoppingSpec,
    objective: pb.ObjectiveSpec,
    logs: Iterable[Sequence[float] | Float64s],
) -> list[pb.EarlyStoppingRule]:
    """Return the rule for trials to come; none while too few trials have logs.

    The mean of its first `start_step` logs counts for each trial. A trial without logs, or with one
    that is no finite number, is left out.

    Args:
        spec: The settings of the experiment; defaults if there are none.
        objective: The objective of the experiment.
        logs: Values of the objective of each finished trial, in order of (time, arrival); NaN for a
            text.

    Raises:
        Invalid: A setting breaks its rule.
    """
    settings = _read(spec)
    start_step = settings["start_step"]
    means = [mean for log in logs if (mean := _mean_of_logs(log[:start_step])) is not None]
    if len(means) < settings["min_trials_required"] or not objective.objective_metric_name:
        return []
    comparison = pb.LESS if objective.type == pb.MAXIMIZE else pb.GREATER
    return [
        pb.EarlyStoppingRule(
            name=objective.objective_metric_name,
            value=str(_STATISTICS[settings["statistic"]](means)),
            comparison=comparison,
            start_step=start_step,
        )
    ]


def _read(spec: pb.EarlyStoppingSpec) -> dict[str, Any]:
    known = {s.name: _RULES[s.name].read(s) for s in spec.algorithm_settings if s.name in _RULES}
    return _DEFAULTS | known


def _mean_of_logs(values: Sequence[float] | Float64s) -> float | None:
    is_known = len(values) > 0 and all(map(math.isfinite, values))
    return _mean(values) if is_known else None
