"""Deduplication of a step's points, compared with a plain loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbwire.dedup import deduplicated_order

points = st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0.5, 1.0, 2.0])), min_size=1)


def remaining(points, arrivals):
    best = {}
    for index in sorted(range(len(points)), key=arrivals.__getitem__):
        step, wall_time = points[index]
        if step not in best or wall_time >= points[best[step]][1]:
            best[step] = index
    return [best[step] for step in sorted(best)]


@pytest.mark.parametrize("is_shuffled", [False, True])
@given(points, st.randoms(use_true_random=False))
def test_remaining_points_have_greatest_wall_time(is_shuffled, points, random):
    arrivals = list(range(len(points)))
    if is_shuffled:
        random.shuffle(arrivals)
    order = deduplicated_order(
        np.array([step for step, _ in points], np.int64),
        np.array([wall_time for _, wall_time in points]),
        np.array(arrivals) if is_shuffled else None,
    )
    assert order.tolist() == remaining(points, arrivals)


@given(points, st.sampled_from([0.75, 1.0, 1.5]))
def test_remaining_points_of_periods_are_those_of_each_by_itself(points, restart):
    steps = np.array([step for step, _ in points], np.int64)
    wall_times = np.array([wall_time for _, wall_time in points])
    periods = np.searchsorted([restart], wall_times, "right")
    order = deduplicated_order(steps, wall_times, periods=periods)
    expected = []
    for period in (0, 1):
        indices = np.flatnonzero(periods == period)
        if len(indices):
            expected += indices[deduplicated_order(steps[indices], wall_times[indices])].tolist()
    expected.sort(key=lambda index: (steps[index], periods[index]))
    assert order.tolist() == expected
