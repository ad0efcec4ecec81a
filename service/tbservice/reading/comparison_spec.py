"""Which experiments a comparison's address names: `<name>:<id>,<name>:<id>`, where the names are the reader's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tbservice import limits
from tbservice.auth import secrets
from tbservice.errors import MalformedRequest
from tbservice.types import ExperimentId

_ITEMS_MIN: Final = 2
_RESERVED_NAMES: Final = frozenset({".", ".."})  # runs are paths that begin with the name


@dataclass(frozen=True, slots=True)
class ComparedExperiment:
    """One of the experiments, and the name its runs begin with."""

    name: str
    experiment_id: ExperimentId


def parse(spec: str) -> tuple[ComparedExperiment, ...]:
    """The experiments in their order. Raises MalformedRequest, which says what is wrong; whether they exist is not asked."""
    texts = spec.split(",")
    if not _ITEMS_MIN <= len(texts) <= limits.COMPARISON_ITEMS_MAX:
        counted = f"{len(texts)} experiment{'s' if len(texts) > 1 else ''}"
        most = limits.COMPARISON_ITEMS_MAX
        raise MalformedRequest(
            f"the address names {counted}; a comparison is of {_ITEMS_MIN} to {most}"
        )
    experiments = tuple(map(_parse_experiment, texts))
    names = [experiment.name for experiment in experiments]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise MalformedRequest(
            f"two experiments are named {duplicate!r}: give each a name of its own"
        )
    return experiments


def quote_spec(spec: str) -> str:
    """The specification as it stands in an address, always in the same way: a cookie is bound to that path."""
    return quote(spec, safe=":,")


def _parse_experiment(text: str) -> ComparedExperiment:
    name, colon, experiment_id = text.partition(":")
    if not colon:
        raise MalformedRequest(
            f"{text!r} has no colon: write a name, a colon and an experiment's id"
        )
    if not name:
        raise MalformedRequest(
            f"the experiment {experiment_id!r} has no name: write one before the colon"
        )
    if len(name) > limits.COMPARISON_NAME_CHARS_MAX:
        raise MalformedRequest(
            f"a name has at most {limits.COMPARISON_NAME_CHARS_MAX} characters: {name!r} is too long"
        )
    if name in _RESERVED_NAMES or not name.isprintable():
        raise MalformedRequest(f"{name!r} cannot be a name: take letters and digits")
    if not secrets.is_experiment_id(experiment_id):
        raise MalformedRequest(
            f"{experiment_id!r} is no experiment's id: copy the one in the address of its page"
        )
    return ComparedExperiment(name, ExperimentId(experiment_id))
