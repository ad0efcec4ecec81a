"""Which experiments a comparison's address names: `<name>:<id>,<name>:<id>`, where the names are the reader's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tbservice import limits
from tbservice.auth import secrets
from tbservice.errors import Malformed
from tbservice.types import ExperimentId

_ITEMS_MIN: Final = 2
_NO_NAMES: Final = frozenset({".", ".."})  # runs are paths that begin with the name


@dataclass(frozen=True, slots=True)
class Part:
    """One of the experiments, and the name its runs begin with."""

    name: str
    experiment_id: ExperimentId


def parse(spec: str) -> tuple[Part, ...]:
    """The experiments in their order. Raises Malformed, which says what is wrong; whether they exist is not asked."""
    texts = spec.split(",")
    if not _ITEMS_MIN <= len(texts) <= limits.comparison_items_max:
        counted = f"{len(texts)} experiment{'s' if len(texts) > 1 else ''}"
        most = limits.comparison_items_max
        raise Malformed(f"the address names {counted}; a comparison is of {_ITEMS_MIN} to {most}")
    parts = tuple(map(_parse_part, texts))
    names = [part.name for part in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Malformed(f"two experiments are named {twice!r}: give each a name of its own")
    return parts


def write(spec: str) -> str:
    """The specification as it stands in an address, always in the same way: a cookie is bound to that path."""
    return quote(spec, safe=":,")


def _parse_part(text: str) -> Part:
    name, colon, experiment_id = text.partition(":")
    if not colon:
        raise Malformed(f"{text!r} has no colon: write a name, a colon and an experiment's id")
    if not name:
        raise Malformed(f"the experiment {experiment_id!r} has no name: write one before the colon")
    if len(name) > limits.comparison_name_chars_max:
        raise Malformed(f"a name has at most {limits.comparison_name_chars_max} characters: {name!r} is too long")
    if name in _NO_NAMES or not name.isprintable():
        raise Malformed(f"{name!r} cannot be a name: take letters and digits")
    if not secrets.is_experiment_id(experiment_id):
        raise Malformed(f"{experiment_id!r} is no experiment's id: copy the one in the address of its page")
    return Part(name, ExperimentId(experiment_id))
