"""Sobol sequences: points that cover the space evenly.

No state: the sequence is that of the experiment, and continues where the last request ended.
"""

from __future__ import annotations

import warnings

from scipy.stats import qmc

from tbservice.katib.suggestions.distinct import draw_unused
from tbservice.katib.suggestions.space import Point
from tbservice.katib.suggestions.task import Task


def propose(task: Task) -> list[Point]:
    """Return the next points of the sequence; random ones in place of points that trials have."""
    sequence = qmc.Sobol(len(task.space.parameters), rng=task.rng_of("scramble"))
    with warnings.catch_warnings():
        # It warns that only numbers of points that are powers of 2 are balanced.
        warnings.simplefilter("ignore")
        if task.offset:  # 0 is refused
            sequence.fast_forward(task.offset)
        rows = sequence.random(task.count)

    used = set(task.history.used)
    points: list[Point] = []
    for row in rows:
        point = task.space.point(row)
        if point in used:
            point = draw_unused(task.space, used, task.rng)
        points.append(point)
        used.add(point)
    return points
