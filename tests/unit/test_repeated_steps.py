"""Superseded points are counted while they are sent: exactly if the steps of a file never decrease."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.python39 import pairwise
from tbupload.upload.repeated_steps import (
    INEXACT,
    ONE_STEP_SERIES,
    SUPERSEDED,
    RepeatedSteps,
    step_span,
)
from tbupload.upload.summary import Summary


def count(segments, *, is_partial=False):
    """Return the superseded counts of the segments of one series."""
    repeated, total = RepeatedSteps(is_partial=is_partial), Counter()
    for steps in segments:
        total.update(repeated.count({"tag": step_span(np.array(steps, np.int64))}))
    return total[SUPERSEDED], total[INEXACT], total[ONE_STEP_SERIES]


STEPS = st.lists(st.integers(-3, 5), min_size=1, max_size=12)


@given(STEPS, st.lists(st.integers(1, 11), max_size=3))
def test_superseded_count_is_true_however_file_is_cut(steps, cuts):
    bounds = sorted({0, len(steps), *(cut for cut in cuts if cut < len(steps))})
    segments = [steps[start:end] for start, end in pairwise(bounds)]
    superseded, inexact, one_step = count(segments)
    truth = len(steps) - len(set(steps))
    assert superseded == truth if not inexact else superseded <= truth
    assert inexact == 0 or steps != sorted(steps)
    assert one_step == int(len(steps) > 1 and len(set(steps)) == 1)


def test_superseded_points_of_part_of_file_are_lower_bound():
    assert count([[0], [0], [0]], is_partial=True) == (2, 2, 0)
    assert count([[0], [1]], is_partial=True) == (0, 0, 0)


def test_span_knows_steps_that_rise():
    assert step_span(np.array([1, 2, 7])) == (0, 1, 7, True)
    assert step_span(np.array([7, 2, 7, 1])) == (1, 1, 7, False)


def test_summary_tells_superseded_points_and_what_to_do():
    summary = Summary(
        scalars=10, empty_values=2, repeated=Counter({SUPERSEDED: 9, ONE_STEP_SERIES: 1})
    )
    assert summary.is_complete
    _, superseded, hint, empty = summary.lines("sent")
    assert (
        superseded
        == "  9 superseded: a step keeps one point, and their file has more of the same step"
    )
    assert "log with a step (global_step=...)" in hint
    assert empty.startswith("  ignored 2 empty values")
    assert (summary.as_json()["superseded"], summary.as_json()["empty_values"]) == (9, 2)
    summary.repeated[INEXACT] = 1
    assert "  at least 9 superseded" in list(summary.lines("sent"))[1]
