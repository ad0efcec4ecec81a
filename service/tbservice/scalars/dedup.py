"""Deduplicate points by step: the newest wins, by wall time and then by arrival."""

from __future__ import annotations

import numpy as np

from tbservice.store.scalar_format import ScalarPoints


def deduplicate_steps(points: ScalarPoints) -> ScalarPoints:
    """Return the points in step order, the newest of each step.

    `points` are in order of arrival; their wall times are not NaN.
    """
    if bool(np.all(points.steps[1:] > points.steps[:-1])):
        return points
    order = np.lexsort((points.wall_times, points.steps))  # stable: the later arrival stays last
    steps = points.steps[order]
    is_last = np.append(steps[1:] != steps[:-1], True)
    return points.select(order[is_last])
