"""Deduplicate points by step: the newest wins, by wall time and then by arrival."""

from __future__ import annotations

from typing import overload

import numpy as np

from tbwire.dedup import deduplicated_order
from tbwire.points import Points, ScalarPoints


@overload
def deduplicate_steps(points: ScalarPoints) -> ScalarPoints: ...
@overload
def deduplicate_steps(points: Points) -> Points: ...
def deduplicate_steps(points: Points) -> Points:
    """Return the points in step order, the newest of each step.

    `points` are in order of arrival; their wall times are not NaN.
    """
    # One point per series is what a live flush has: numpy would take longer to compare none.
    # Most batches are in step order already, and need no sort.
    steps = points.steps
    if len(steps) == 1 or bool((steps[1:] > steps[:-1]).all()):
        return points
    return points.select(deduplicated_order(steps, points.wall_times))


def find_repeated(points: ScalarPoints, deduplicated: ScalarPoints) -> ScalarPoints | None:
    """Return the points of all steps that occur more than once, in order of arrival.

    None if there are none. `deduplicated` is the result of `deduplicate_steps`.
    """
    if len(deduplicated) == len(points):
        return None
    steps, counts = np.unique(points.steps, return_counts=True)
    is_repeated = counts[np.searchsorted(steps, points.steps)] > 1
    return points.select(is_repeated)
