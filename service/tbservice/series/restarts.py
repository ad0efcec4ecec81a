"""Restarts of a run, and which of its superseded points are kept: rules on plain values.

A *restart* is the start of an event file, if the run has earlier files, and none of them has a
point at or after it. Restarts divide the time of a run into *periods*. Each period keeps its newest
point of a step; the point of the last period is shown. The result is the same in whatever order
points and files arrive, if no point is earlier than its file: a restart that separates two points
was known when they were compared, or a later one that separates them too (docs/decisions/0029).

Files that are written at the same time, by several processes, are no restarts of each other: of
their points only the newest of each step is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.series.tables import stream_times
from tbservice.series.tables.stream_times import StreamTimes
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire.dedup import deduplicated_order

_PROCESS: Final = re.compile(r"tfevents\.\d+\.(.+\.\d+)\.(\d+)(?:\.v2)?$", re.ASCII)
"""Host and process, and the number of the file: in names by TensorFlow 2 and PyTorch."""


def read_restarts(
    db: Connection,
    experiment_id: ExperimentId,
    run_ids: Collection[int],
) -> dict[int, Float64s]:
    """Return the ascending restarts of each run; runs without any are missing.

    Only the first `RUN_FILES_MAX` files of a run count.
    """
    known = stream_times.list_times(db, experiment_id, run_ids, limits.RUN_FILES_MAX)
    restarts = {run_id: find_restarts(files) for run_id, files in known.items()}
    return {run_id: times for run_id, times in restarts.items() if len(times)}


def read_bounds(
    db: Connection,
    experiment_id: ExperimentId,
    run_ids: Collection[int],
    moved: Mapping[int, Sequence[StreamTimes]] | None = None,
) -> dict[int, Float64s]:
    """Return the times that separate points to keep, ascending; runs without restarts are missing.

    They are the restarts, and the start of the first file: an earlier file may yet arrive, and make
    a restart of it.

    Args:
        db: A transaction or a snapshot. If it sees points, it sees their streams too.
        experiment_id: The experiment of all runs.
        run_ids: The runs.
        moved: Streams of each run that a batch is about to write; those that are not new have inf
            as their start.
    """
    known = stream_times.list_times(db, experiment_id, run_ids, limits.RUN_FILES_MAX)
    bounds: dict[int, Float64s] = {}
    for run_id in run_ids:
        files = _merge(known.get(run_id, []), (moved or {}).get(run_id, []))
        restarts = find_restarts(files)
        if len(restarts):
            first = files[0].start_time
            is_known = first > -math.inf
            bounds[run_id] = np.concatenate([[first], restarts]) if is_known else restarts
    return bounds


def _merge(known: Iterable[StreamTimes], moved: Iterable[StreamTimes]) -> list[StreamTimes]:
    merged = {times.stream_digest: times for times in known}
    for digest, start, last in moved:
        before = merged.get(digest)
        if before is not None:
            newest = max(last, before.last_wall_time)
            merged[digest] = before._replace(last_wall_time=newest)
        elif start < math.inf:  # else it is behind the first files
            merged[digest] = StreamTimes(digest, start, last)
    first = sorted(merged.values(), key=lambda times: times.start_time)
    return first[: limits.RUN_FILES_MAX]


def find_restarts(files: Sequence[StreamTimes]) -> Float64s:
    """Return the starts, ascending, that are later than every point of the earlier files."""
    restarts = []
    last_wall_time = previous_last = -math.inf
    previous_start: float | None = None
    for _, start, last in sorted(files, key=lambda times: times.start_time):
        # Files with the same start are compared with what was before all of them: in either order,
        # neither restarts the other.
        if start != previous_start:
            previous_last = last_wall_time
            if previous_start is not None and previous_last < start:
                restarts.append(start)
        previous_start = start
        last_wall_time = max(last_wall_time, last)
    return np.array(restarts, np.float64)


def find_continued(files: Iterable[tuple[float, str]]) -> set[float]:
    """Return the starts of files that a process wrote after another of the run.

    TensorFlow and PyTorch number the files of a process. A number that is not greater than that of
    the file before is one of another process: a restarted container has the same host and process.

    Args:
        files: (start, name), by start.
    """
    newest: dict[str, int] = {}
    continued: set[float] = set()
    for start, name in files:
        if match := _PROCESS.search(name):
            process, number = match[1], int(match[2])
            # The default is its own number: the first file of a process continues nothing.
            if number > newest.get(process, number):
                continued.add(start)
            newest[process] = number
    return continued


def find_periods(wall_times: Float64s, restarts: Float64s) -> Int64s:
    """Return the period of each wall time: the number of restarts at or before it."""
    # "right": a point at the time of a restart belongs to the period that begins with it.
    return np.searchsorted(restarts, wall_times, "right")


def get_starts(periods: Int64s, restarts: Float64s) -> Float64s:
    """Return the restart that each period begins with; -inf for the first."""
    return np.concatenate([[-math.inf], restarts])[periods]


class Superseded(NamedTuple):
    """Points to keep that are not shown: their indices, by step, then by wall time.

    `periods` has the period of each point, `superseded_by` that of the next newer point of its
    step.
    """

    indices: Int64s
    periods: Int64s
    superseded_by: Int64s


def select_superseded(steps: Int64s, wall_times: Float64s, restarts: Float64s) -> Superseded:
    """Return which points are to be kept although others have won their steps.

    Args:
        steps: One step per point.
        wall_times: One wall time per point; the points are in order of arrival.
        restarts: The restarts of the run.
    """
    newest = deduplicated_order(steps, wall_times, periods=find_periods(wall_times, restarts))
    newest_steps, periods = steps[newest], find_periods(wall_times[newest], restarts)
    lost = np.flatnonzero(newest_steps[1:] == newest_steps[:-1])  # to the next one
    return Superseded(newest[lost], periods[lost], periods[lost + 1])
