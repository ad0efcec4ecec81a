"""Restarts of a run, and which superseded points are kept, as rules on plain values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tbservice.series.restarts import find_continued, find_restarts, get_starts, select_superseded
from tbservice.series.tables.stream_times import StreamTimes

NEVER = -math.inf


def files(*times):
    return [StreamTimes(bytes([number]), *each) for number, each in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "restarts"),
    [
        ([], []),
        ([(10, 15)], []),
        ([(10, 15), (20, 25), (30, 35)], [20, 30]),
        ([(30, 35), (10, 15), (20, 25)], [20, 30]),  # in any order
        ([(10, 15), (15.5, 25)], [15.5]),
        ([(10, 15), (15, 25)], []),  # a point at the start is not before it
        ([(10, 100), (20, 25), (30, 35)], []),  # one file beside all others
        ([(10, 100), (20, 25), (200, 205)], [200]),
        ([(10, 40), (10, 15), (50, 60), (50, 55)], [50]),  # two files of each attempt
        ([(NEVER, 15), (20, 25)], [20]),  # of unknown start
        ([(NEVER, 25), (20, 25)], []),
        ([(10, NEVER), (20, 25)], [20]),  # without points
    ],
)
def test_restart_is_start_after_points_of_earlier_files(times, restarts):
    assert find_restarts(files(*times)).tolist() == restarts


def test_file_continues_process_that_its_name_and_number_tell():
    names = [
        *("tfevents.1.h.7.0", "tfevents.2.h.7.1", "tfevents.3.h.8.2", "tfevents.4.h.7.1"),
        *("tfevents.5.h.7.2.v2", "tfevents.6.h", "tfevents.7.10.0.0.5", "tfevents.8.10.0.0.5"),
        *("tfevents.9.10.0.0.5.7.0", "tfevents.10.10.0.0.5.7.3", "events.11", "tfevents.12.h.7.x"),
    ]
    files = [(float(start), f"events.out.{name}") for start, name in enumerate(names, 1)]
    assert find_continued(files) == {2.0, 5.0, 10.0}


def test_newest_point_of_each_period_but_the_last_is_kept():
    restarts = np.array([20.0, 30.0])
    wall_times = np.array([11.0, 12.0, 21.0, 22.0, 31.0, 32.0, 13.0, 19.0])
    steps = np.array([1, 1, 1, 2, 1, 2, 3, 3])
    kept, periods, by = select_superseded(steps, wall_times, restarts)
    assert kept.tolist() == [1, 2, 3]
    assert get_starts(periods, restarts).tolist() == [NEVER, 20.0, 20.0]
    assert get_starts(by, restarts).tolist() == [20.0, 30.0, 30.0]


def test_no_points_have_no_superseded_ones():
    kept, periods, by = select_superseded(np.empty(0, np.int64), np.empty(0), np.array([20.0]))
    assert len(kept) == len(periods) == len(by) == 0
