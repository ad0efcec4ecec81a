"""Refuse experiments that no algorithm can serve, before their first trial.

Katib fails the experiment with the message if the status is INVALID_ARGUMENT, and takes most other
statuses for consent: everything here is `Invalid`.
"""

from __future__ import annotations

import math

from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import darts
from tbservice.katib.suggestions.grid import combinations
from tbservice.katib.suggestions.hyperband import read_plan
from tbservice.katib.suggestions.settings import RULES, check_algorithm, check_settings
from tbservice.katib.suggestions.space import Choice, Space
from tbservice.katib.suggestions.specification import check_numbers, read_space
from tbservice.katib.suggestions.texts import parse_number


def validate(experiment: pb.Experiment) -> None:
    """Check the algorithm, its settings and the search space of an experiment.

    Raises:
        Invalid: With Katib's text where Katib has one.
    """
    spec = experiment.spec
    algorithm = check_algorithm(spec.algorithm)
    if algorithm == "darts":
        darts.check(spec)
        return
    if algorithm in RULES:
        check_settings(algorithm, spec.algorithm.algorithm_settings)

    space = read_space(spec.parameter_specs.parameters)
    if algorithm == "cmaes":
        check_numbers(space)
    elif algorithm == "grid":
        _check_grid(space, spec.max_trial_count)
    elif algorithm == "hyperband":
        _check_hyperband(space, spec)


def _check_grid(space: Space, trials: int) -> None:
    count = combinations(space)
    if trials > count:
        raise Invalid(f"Max Trial Count: {trials} > all possible search combinations: {count}")


def _check_hyperband(space: Space, spec: pb.ExperimentSpec) -> None:
    settings = {s.name: s.value for s in spec.algorithm.algorithm_settings}
    if "r_l" not in settings or "resource_name" not in settings:
        raise Invalid("r_l and resource_name must be set.")
    plan = read_plan(settings)
    parallel = math.ceil(plan.eta**plan.last)
    if spec.parallel_trial_count < parallel:
        raise Invalid(f"parallelTrialCount must be not less than {parallel}.")
    resource = next((p for p in space.parameters if p.name == settings["resource_name"]), None)
    if resource is None:
        raise Invalid("value of resource_name setting must be in parameters.")
    items = resource.items if isinstance(resource, Choice) else ()
    if items and not any(parse_number(item) is not None for item in items):
        raise Invalid("the parameter that resource_name names must have numbers as values.")
