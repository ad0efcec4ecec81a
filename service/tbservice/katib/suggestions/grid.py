"""Grid search: every combination of steps and items once, in an order that spreads out.

No state: the order is fixed, and the request says how many were suggested before. So combinations
of trials that Katib leaves out of its requests are not suggested again either.
"""

from __future__ import annotations

import math

from tbservice.errors import Invalid
from tbservice.katib.suggestions.space import Point, Space
from tbservice.katib.suggestions.task import Task
from tbservice.katib.suggestions.texts import shown


def combinations(space: Space) -> int:
    """Return how many points the grid has.

    Raises:
        Invalid: A DOUBLE parameter has no step.
    """
    for parameter in space.parameters:
        if parameter.count is None:
            raise Invalid(
                f"Param {shown(parameter.name)} step is nil; For discrete search space, all "
                "parameters must include step"
            )
    return space.count or 0


def propose(task: Task) -> list[Point]:
    """Return the next points of the grid that no trial has; used ones when all are used.

    Raises:
        Invalid: A DOUBLE parameter has no step.
    """
    count = combinations(task.space)
    stride, start = _stride(task, count), task.seed_of("start") % count
    used = set(task.history.used)
    points: list[Point] = []
    index = task.offset
    for _ in range(task.count):
        is_exhausted = len(used) >= count
        while True:
            point = task.space.nth((start + index * stride) % count)
            index += 1
            if is_exhausted or point not in used:
                break
        used.add(point)
        points.append(point)
    return points


def _stride(task: Task, count: int) -> int:
    """Return a number coprime to `count`: its multiples visit every index once.

    In plain order, the last parameter would vary first, and the first one hardly at all in an
    experiment that ends early.
    """
    stride = max(1, task.space.index_at(task.rng_of("stride").random()))
    while math.gcd(stride, count) != 1:
        stride += 1
    return stride
