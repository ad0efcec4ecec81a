"""Points that no trial has, as long as the space has any; all of random search."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from tbservice.katib.suggestions.space import Point, Space
from tbservice.katib.suggestions.task import Propose, Task

_ATTEMPTS = 10
"""Draws before a space with a count is searched for a point."""


def draw(space: Space, rng: np.random.Generator) -> Point:
    """Return a random point; each parameter has its distribution."""
    return space.point(rng.random(len(space.parameters)))


def propose(task: Task, ask: Propose | None = None) -> list[Point]:
    """Return points that no trial has, of a sampler; random ones by default."""
    used = set(task.history.used)
    points: list[Point] = []
    for _ in range(task.count):
        points.append(draw_unused(task.space, used, task.rng, ask))
        used.add(points[-1])
    return points


def draw_unused(
    space: Space,
    used: AbstractSet[Point],
    rng: np.random.Generator,
    propose: Propose | None = None,
) -> Point:
    """Return a point that is not used; a used one only if the space has no others.

    Args:
        space: Where to search.
        used: Points of the space to avoid.
        rng: Random numbers.
        propose: The source of points; random ones by default. It is asked a few times.
    """
    for _ in range(_ATTEMPTS):
        point = propose() if propose else draw(space, rng)
        if point not in used:
            return point
    if space.count is None or len(used) >= space.count:
        return point
    # Among any len(used) + 1 points there is an unused one.
    start = space.index_at(rng.random())
    indices = ((start + i) % space.count for i in range(len(used) + 1))
    return next(point for index in indices if (point := space.nth(index)) not in used)
