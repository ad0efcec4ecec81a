"""The path segment that names the experiments of a comparison: `<name>:<id>,<name>:<id>`.

Names are free choices of the person who makes the link, as in TensorBoard's `--logdir_spec`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tbservice import limits
from tbservice.auth import secrets
from tbservice.errors import MalformedRequest
from tbservice.types.identifiers import ExperimentId

COMPARISON_NAME_CHARS_MAX: Final = 100
"""Characters of the name of an experiment in a comparison's URL."""

ITEMS_MIN: Final = 2
"""Experiments (items) of a comparison."""

_MADE_NAME_CHARS: Final = 60
_RESERVED_NAMES: Final = frozenset({".", ".."})  # runs are paths that begin with the name


@dataclass(frozen=True, slots=True)
class ComparedExperiment:
    """An experiment of a comparison, and the name that prefixes its runs."""

    name: str
    experiment_id: ExperimentId


def parse(spec: str, items_min: int = ITEMS_MIN) -> tuple[ComparedExperiment, ...]:
    """Return the experiments in their order, without checking that they exist.

    Raises MalformedRequest with a detail that names the fault.
    """
    items = spec.split(",")
    if not items_min <= len(items) <= limits.COMPARISON_ITEMS_MAX:
        count = f"{len(items)} experiment{'s' if len(items) > 1 else ''}"
        raise MalformedRequest(
            f"the address names {count}; a comparison has {items_min} to "
            f"{limits.COMPARISON_ITEMS_MAX} (comparison_items_max)"
        )

    experiments = tuple(map(_parse_experiment, items))
    names = [experiment.name for experiment in experiments]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise MalformedRequest(
            f"two experiments are named {duplicate!r}: give each a different name"
        )
    return experiments


def make_name(name: str, experiment_id: ExperimentId, taken: Collection[str]) -> str:
    """Return what an experiment is called in an address: its name, without what is encoded."""
    letters = [c if c.isalnum() or c in "-_" else "-" for c in name.strip()]
    made = "".join(letters)[:_MADE_NAME_CHARS].strip("-") or experiment_id[:6]
    return made if made not in taken else f"{made}-{experiment_id[:6]}"


def make_spec(experiments: Iterable[ComparedExperiment]) -> str:
    """Return the path segment that names these experiments."""
    return ",".join(f"{quote(each.name, safe='')}:{each.experiment_id}" for each in experiments)


def quote_spec(spec: str) -> str:
    """Return the canonical URL encoding of a specification: a cookie is bound to this path."""
    return quote(spec, safe=":,")


def _parse_experiment(text: str) -> ComparedExperiment:
    name, colon, experiment_id = text.partition(":")
    if not colon:
        raise MalformedRequest(f"{text!r} has no colon: write a name, a colon and an experiment id")
    if not name:
        raise MalformedRequest(
            f"the experiment {experiment_id!r} has no name: write one before the colon"
        )

    chars_max = COMPARISON_NAME_CHARS_MAX
    if len(name) > chars_max:
        raise MalformedRequest(f"a name has at most {chars_max} characters: {name!r} is too long")
    if name in _RESERVED_NAMES or not name.isprintable():
        raise MalformedRequest(f"{name!r} is not allowed as a name: use letters and digits")

    if not secrets.is_experiment_id(experiment_id):
        raise MalformedRequest(
            f"{experiment_id!r} is not an experiment id: copy the one in its URL"
        )
    return ComparedExperiment(name, ExperimentId(experiment_id))
