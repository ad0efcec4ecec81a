"""Answer a request for suggestions: check its sizes, read its trials, ask the algorithm."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import Final

from threadpoolctl import threadpool_limits

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import darts, hyperband
from tbservice.katib.suggestions.history import read_history
from tbservice.katib.suggestions.settings import RULES, check_algorithm, read_settings
from tbservice.katib.suggestions.space import Point
from tbservice.katib.suggestions.specification import read_space
from tbservice.katib.suggestions.task import Task, deadline

SUGGESTED_TRIALS_ITEMS_MAX: Final = 1_000
"""Suggestions in one reply."""

SUGGESTION_TRIALS_ITEMS_MAX: Final = 10_000
"""Trials in one request for suggestions."""

SUGGESTION_TOTAL_ITEMS_MAX: Final = 100_000
"""Suggestions that an experiment may ask for altogether."""

SUGGESTION_REPLY_BYTES_MAX: Final = 4 * limits.MIB
"""Bytes of one reply with suggestions: what clients of gRPC accept by default."""

Assignments = Sequence[tuple[str, str]]

_ROOM: Final = "tbservice.katib.suggestions"
_PROPOSE: Final = {
    "random": ("distinct", "propose"),
    "grid": ("grid", "propose"),
    "sobol": ("sobol", "propose"),
    "tpe": ("tpe", "propose_independent"),
    "multivariate-tpe": ("tpe", "propose_multivariate"),
    "cmaes": ("cma_es", "propose"),
    "bayesianoptimization": ("bayesian", "propose"),
}
"""Module and function of each algorithm. They are imported by the first request, or by
`handler_jobs`: their libraries take seconds to load, and validation needs none of them.
"""


def load(algorithm: str) -> Callable[[Task], list[Point]]:
    """Return the function of an algorithm; imports its library."""
    module, function = _PROPOSE[algorithm]
    propose: Callable[[Task], list[Point]]
    propose = getattr(importlib.import_module(f"{_ROOM}.{module}"), function)
    return propose


def load_all() -> None:
    """Import the libraries of all algorithms."""
    for algorithm in _PROPOSE:
        load(algorithm)


def suggest(request: pb.GetSuggestionsRequest) -> pb.GetSuggestionsReply:
    """Return exactly as many suggestions as the request wants.

    A repeated request gets the same suggestions, unless models ran out of time: every algorithm
    reads its state off the trials of the request.

    Raises:
        Invalid: The experiment makes no sense, or a limit is exceeded.
    """
    count, total = _read_numbers(request)
    spec = request.experiment.spec
    algorithm = check_algorithm(spec.algorithm)

    reply = pb.GetSuggestionsReply()
    if count:
        for row in _rows(request, algorithm, count, total):
            assignments = reply.parameter_assignments.add().assignments
            for name, value in row:
                assignments.add(name=name, value=value)
    return reply


def _read_numbers(request: pb.GetSuggestionsRequest) -> tuple[int, int]:
    """Return how many suggestions are wanted, and how many altogether; 0 if that is not said.

    Up to 0.12, field 4 was the total; 0.13 filled field 3 beside today's fields 4 and 5.
    """
    count = request.request_number or request.current_request_number
    total = request.total_request_number
    if not total and request.request_number > 0:
        total = request.current_request_number
    if count < 0 or total < 0:
        raise Invalid("request numbers must not be negative")
    if count > SUGGESTED_TRIALS_ITEMS_MAX:
        raise Invalid(f"{count} suggestions wanted, at most {SUGGESTED_TRIALS_ITEMS_MAX} at a time")
    if total > SUGGESTION_TOTAL_ITEMS_MAX:
        raise Invalid(
            f"{total} suggestions wanted altogether, "
            f"at most {SUGGESTION_TOTAL_ITEMS_MAX} for an experiment"
        )
    if len(request.trials) > SUGGESTION_TRIALS_ITEMS_MAX:
        raise Invalid(
            f"{len(request.trials)} trials in the request, "
            f"at most {SUGGESTION_TRIALS_ITEMS_MAX}: begin a new experiment"
        )
    return count, total


def _rows(
    request: pb.GetSuggestionsRequest, algorithm: str, count: int, total: int
) -> Sequence[Assignments]:
    experiment = request.experiment
    spec = experiment.spec
    if algorithm == "darts":
        row = darts.propose(spec)
        _check_size(count * sum(len(name) + len(value.encode()) for name, value in row))
        return [row] * count

    space = read_space(spec.parameter_specs.parameters)
    if not space.parameters:
        raise Invalid("the experiment has no parameters")
    _check_size(count * sum(len(p.name.encode()) + p.text_bytes_max for p in space.parameters))
    settings = spec.algorithm.algorithm_settings
    task = Task(
        space=space,
        settings=read_settings(algorithm, settings) if algorithm in RULES else {},
        history=read_history(space, spec.objective, request.trials),
        count=count,
        offset=max(total - count, 0) if total else len(request.trials),
        seed_text=_seed_text(experiment),
        deadline=deadline(),
    )
    if algorithm == "hyperband":
        texts = {setting.name: setting.value for setting in settings}
        return hyperband.propose(task, texts, spec.objective, request.trials)
    propose = load(algorithm)
    # A pool of threads for small matrices takes ten times the time on a busy machine, and takes the
    # processors from ingest.
    with threadpool_limits(1):
        return [space.texts(point) for point in propose(task)]


def _check_size(size: int) -> None:
    if size > SUGGESTION_REPLY_BYTES_MAX:
        raise Invalid(
            f"the reply would have {size} bytes, at most {SUGGESTION_REPLY_BYTES_MAX}: "
            "ask for fewer suggestions at a time, or use shorter names and values"
        )


def _seed_text(experiment: pb.Experiment) -> str:
    """Return what random numbers depend on: `random_state`, or else the experiment itself.

    Not all of its specification: people raise the number of trials of a running experiment.
    """
    spec = experiment.spec
    for setting in spec.algorithm.algorithm_settings:
        if setting.name == "random_state":
            return f"random_state {setting.value}"
    digest = hashlib.sha256(spec.parameter_specs.SerializeToString(deterministic=True))
    return f"{experiment.name} {digest.hexdigest()}"
