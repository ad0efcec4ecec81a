"""Random search: every point is drawn from the distributions of the parameters."""

from __future__ import annotations

from tbservice.katib.suggestions.distinct import draw_unused
from tbservice.katib.suggestions.space import Point
from tbservice.katib.suggestions.task import Task


def propose(task: Task) -> list[Point]:
    """Return random points that no trial has."""
    used = set(task.history.used)
    points: list[Point] = []
    for _ in range(task.count):
        points.append(draw_unused(task.space, used, task.rng))
        used.add(points[-1])
    return points
