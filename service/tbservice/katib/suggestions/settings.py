"""Settings of algorithms: their names, rules, and Katib's texts for what breaks a rule.

Katib's tests compare some of the texts literally; their spelling is Katib's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.texts import shown

Setting = pb.AlgorithmSetting | pb.EarlyStoppingSetting


@dataclass(frozen=True)
class Rule:
    """Form of a setting's text.

    Attributes:
        parse: Makes the value of the text; a ValueError says why it cannot.
        is_valid: Whether a value is allowed.
        refusal: The message for values that are not: `{name}` and `{value}` are replaced.
        most: The greatest value, where Katib has none; its text would not say what is wrong.
    """

    parse: Callable[[str], Any]
    is_valid: Callable[[Any], bool]
    refusal: str
    most: float | None = None

    def read(self, setting: Setting) -> Any:
        """Return the value of a setting; raises Invalid with Katib's text."""
        name, value = shown(setting.name), shown(setting.value)
        try:
            parsed = self.parse(setting.value)
        except ValueError as error:
            raise Invalid(f"failed to validate {name}({value}): {shown(str(error))}") from None
        if not self.is_valid(parsed):
            raise Invalid(self.refusal.format(name=name, value=value))
        if self.most is not None and parsed > self.most:
            raise Invalid(f"{name} should be at most {self.most:.10g}")
        return parsed


_CANDIDATES_MAX: Final = 10_000
"""Candidates that a sampler compares for one suggestion."""

_FLOAT_MAX: Final = 1e300
"""Limit that leaves room for sums."""

_NOT_NEGATIVE: Final = Rule(int, lambda n: n >= 0, "{name} should be great or equal than zero")
_CANDIDATES: Final = replace(_NOT_NEGATIVE, most=_CANDIDATES_MAX)


def _one_of(*values: str, refusal: str) -> Rule:
    return Rule(str, lambda value: value in values, refusal)


_BAYESIAN_REFUSAL: Final = "{name} {value} is not supported in Bayesian optimization"
_RANDOM_STATE: Final = {"random_state": _NOT_NEGATIVE}
_TPE: Final = {
    "n_startup_trials": _NOT_NEGATIVE,
    "n_ei_candidates": _CANDIDATES,
    **_RANDOM_STATE,
}

RULES: Final[Mapping[str, Mapping[str, Rule]]] = {
    "random": _RANDOM_STATE,
    "grid": _RANDOM_STATE,
    "sobol": _RANDOM_STATE,
    # the union of what Katib's two implementations take
    "tpe": {
        **_TPE,
        "gamma": Rule(float, lambda x: 0 < x < 1, "gamma should be in the range of (0, 1)"),
        "prior_weight": Rule(
            float, lambda x: x > 0, "prior_weight should be great than zero", _FLOAT_MAX
        ),
        "n_EI_candidates": Rule(
            int, lambda n: n > 0, "n_EI_candidates should be great than zero", _CANDIDATES_MAX
        ),
    },
    "multivariate-tpe": _TPE,
    "cmaes": {
        "restart_strategy": _one_of(
            "ipop",
            "bipop",
            "None",
            "none",
            refusal="restart_strategy {value} is not supported in CMAES optimization",
        ),
        "sigma": Rule(
            float, lambda x: x >= 0, "sigma should be great or equal than zero", _FLOAT_MAX
        ),
        **_RANDOM_STATE,
    },
    "bayesianoptimization": {
        "base_estimator": _one_of("GP", "RF", "ET", "GBRT", refusal=_BAYESIAN_REFUSAL),
        "n_initial_points": _NOT_NEGATIVE,
        "acq_func": _one_of(
            "gp_hedge", "LCB", "EI", "PI", "EIps", "PIps", refusal=_BAYESIAN_REFUSAL
        ),
        "acq_optimizer": _one_of("auto", "sampling", "lbfgs", refusal=_BAYESIAN_REFUSAL),
        **_RANDOM_STATE,
    },
}
"""Settings of each algorithm that refuses unknown ones; Hyperband and DARTS ignore these."""


def check_settings(algorithm: str, settings: Iterable[pb.AlgorithmSetting]) -> None:
    """Refuse unknown settings and values that break a rule, the first in order.

    Raises:
        Invalid: With Katib's text.
    """
    rules = RULES[algorithm]
    for setting in settings:
        if setting.name not in rules:
            raise Invalid(f"unknown setting {shown(setting.name)} for algorithm {algorithm}")
        rules[setting.name].read(setting)


def read_settings(algorithm: str, settings: Iterable[pb.AlgorithmSetting]) -> dict[str, Any]:
    """Return the values of known settings by name; the last one of a name wins.

    Raises:
        Invalid: A value breaks its rule.
    """
    rules = RULES[algorithm]
    return {s.name: rules[s.name].read(s) for s in settings if s.name in rules}


def check_algorithm(algorithm: pb.AlgorithmSpec) -> str:
    """Return the algorithm's name; refuse an unknown one, and too many settings."""
    name = algorithm.algorithm_name
    if name not in {*RULES, "hyperband", "darts"}:
        raise Invalid(f"unknown algorithm name {shown(name)}")
    check_count(algorithm.algorithm_settings)
    return name


def check_count(settings: Iterable[object]) -> None:
    """Refuse more settings than any algorithm has.

    Raises:
        Invalid: There are more than `SUGGESTION_PARAMETERS_ITEMS_MAX`.
    """
    if len(list(settings)) > limits.SUGGESTION_PARAMETERS_ITEMS_MAX:
        raise Invalid(f"more than {limits.SUGGESTION_PARAMETERS_ITEMS_MAX} algorithm settings")
