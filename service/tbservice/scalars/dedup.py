"""One point a step: the newest wins, and newest means the greatest wall time, then the later arrival."""

from __future__ import annotations

import numpy as np

from tbservice.store.scalar_format import ScalarPoints


def deduplicate_steps(points: ScalarPoints) -> ScalarPoints:
    """The points in step order, one a step. `points` come in order of arrival; wall times are never NaN."""
    if bool(np.all(points.steps[1:] > points.steps[:-1])):
        return points
    order = np.lexsort(
        (points.wall_times, points.steps)
    )  # stable: on equal keys the later arrival stays last
    steps = points.steps[order]
    is_last = np.append(steps[1:] != steps[:-1], True)
    return points.select(order[is_last])
