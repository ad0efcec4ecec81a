"""One request for suggestions, as every algorithm gets it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from tbservice.katib.suggestions.history import History
from tbservice.katib.suggestions.space import Point, Space

SUGGESTION_SECONDS: Final = 1.0
"""Seconds after which the suggestions that a request still lacks are drawn at random."""


@dataclass(frozen=True)
class Task:
    """Task of an algorithm: the points to suggest.

    Attributes:
        space: The search space; it has a parameter.
        settings: Values of the algorithm's settings by name.
        history: The trials of the request.
        count: How many points are wanted.
        offset: How many were suggested before; the number of trials if the request does not say.
        seed_text: What the experiment's random numbers depend on, equal in all its requests.
        deadline: When (`time.monotonic`) to stop asking a model and draw at random instead.
    """

    space: Space
    settings: Mapping[str, Any]
    history: History
    count: int
    offset: int
    seed_text: str
    deadline: float

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers of this request.

        They differ between requests: with the same ones, a sampler that is rebuilt from the trials
        repeats its points. A repeated request gets the same ones again.
        """
        return self.rng_of("batch", str(self.offset), str(self.history.trials_items))

    def rng_of(self, *purpose: str) -> np.random.Generator:
        """Return random numbers that are equal in all requests of the experiment, by purpose."""
        return np.random.default_rng(self.seed_of(*purpose))

    def seed_of(self, *purpose: str) -> int:
        """Return a seed of 32 bits that is equal in all requests of the experiment, by purpose."""
        text = "\0".join((self.seed_text, *purpose))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    @property
    def is_late(self) -> bool:
        """Whether the time for models is over."""
        return time.monotonic() > self.deadline


def deadline() -> float:
    """Return the deadline of a request that begins now."""
    return time.monotonic() + SUGGESTION_SECONDS


Propose = Callable[[], Point]
"""Return the next point of a sampler, or of random numbers."""
