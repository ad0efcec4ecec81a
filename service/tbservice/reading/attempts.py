"""Attempts of a run: what a restarted job superseded, and how an earlier state is selected.

Every function needs a snapshot (`Database.snapshot`). Nothing depends on what compaction has done:
points that it has not merged yet are compared by a scan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound
from tbservice.reading.tables import superseded_counts
from tbservice.reading.tables.superseded_counts import StoredPeriod
from tbservice.series.restarts import find_continued, find_periods, read_restarts
from tbservice.series.scan import AttemptScan, read_scalar_chunks
from tbservice.series.tables import stream_times
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Booleans, ExperimentId, Float64s
from tbservice.types.sampling import ALL_STEPS
from tbservice.types.series import Series
from tbwire.points import DataClass, ScalarPoints

_SERIES_PER_SCAN: Final = 4_000
"""Series whose points are compared by one query."""

_Counts = Counter[tuple[int, int, int]]
"""Superseded points of a run: by their period, the period of the next newer point, and series."""

RunBefore = Mapping[int, float]
"""Wall time (seconds since the epoch), by run id, before which points are read."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a run: its number from 1, and the points of it that later ones superseded.

    `started_at` is the wall time, in seconds since the epoch, of the first record of the file that
    it began with. The newest attempt has no superseded points.
    """

    number: int
    started_at: float
    superseded_points: int


@dataclass(frozen=True, slots=True)
class RunAttempts:
    """The attempts of a run that has several, the oldest first."""

    run_id: int
    run: str
    attempts: list[Attempt]


def list_attempts(db: Connection, grant: ReadGrant) -> list[RunAttempts]:
    """Return the attempts of each run that has several, in the order of the runs' creation.

    A restart that superseded nothing of the attempt before it begins none. With a link, only points
    that it shows count.
    """
    runs = {run.run_id: run for run in stream_times.list_restarted_runs(db, grant.experiment_id)}
    restarts = read_restarts(db, grant.experiment_id, list(runs)) if runs else {}
    if not restarts:
        return []
    counts = _count_superseded(db, grant.experiment_id, restarts)
    names = (
        stream_times.list_file_names(db, grant.experiment_id, list(counts), limits.RUN_FILES_MAX)
        if grant.view is None
        else {}
    )
    listed = []
    for run_id, run in runs.items():
        if counts.get(run_id):
            continued = np.isin(restarts[run_id], list(find_continued(names.get(run_id, []))))
            attempts = _number_attempts(run.start_time, restarts[run_id], counts[run_id], continued)
            if len(attempts) > 1:
                listed.append(RunAttempts(run_id, run.name, attempts))
    return listed


def find_before(db: Connection, grant: ReadGrant, number: int | None) -> RunBefore:
    """Return the runs that have more than `number` attempts, and when the next one began.

    Other runs are read as they are shown; so are all of them if `number` is None. Raises NotFound
    (`attempt_not_found`) if no run has so many attempts.
    """
    if number is None:
        return {}
    runs = list_attempts(db, grant)
    count = max((len(run.attempts) for run in runs), default=1)
    if number > count:
        has = "one attempt" if count == 1 else f"{count} attempts"
        raise NotFound(
            f"there is no attempt {number}: the runs of this experiment have at most {has}",
            code="attempt_not_found",
        )
    return {
        run.run_id: run.attempts[number].started_at for run in runs if len(run.attempts) > number
    }


def find_series_before(series_list: Iterable[Series], before: RunBefore) -> dict[int, float]:
    """Return the wall time before which each series is read, by id, if its run has one."""
    return {
        series.series_id: before[series.run_id] for series in series_list if series.run_id in before
    }


def _find_first_periods(counts: _Counts, continued: Booleans) -> list[int]:
    """Return the period that each attempt begins with: the first one is 0.

    An attempt lasts until a period of which a point superseded one of the attempt itself. So a file
    that replaces only what an earlier attempt had logged, such as the second file of a writer that
    trains again, belongs to the attempt of the first one. A further file of the same process
    (`continued`, by restart) ends the attempt only if it repeats several steps of a series: one may
    be a value that is logged again, as `add_hparams` does.
    """
    firsts = [0]
    for (period, by, _), points in sorted(counts.items(), key=lambda item: item[0][1]):
        if period >= firsts[-1] and (points > 1 or not continued[by - 1]):
            firsts.append(by)
    return firsts


def _number_attempts(
    start_time: float, restarts: Float64s, counts: _Counts, continued: Booleans
) -> list[Attempt]:
    first_periods = _find_first_periods(counts, continued)
    starts = [start_time, *(float(restarts[period - 1]) for period in first_periods[1:])]
    return [
        Attempt(
            number,
            starts[number - 1],
            sum(n for (period, by, _), n in counts.items() if first <= period < end <= by),
        )
        for number, (first, end) in enumerate(pairwise([*first_periods, len(restarts) + 1]), 1)
    ]


def _count_superseded(
    db: Connection, experiment_id: ExperimentId, restarts: Mapping[int, Float64s]
) -> dict[int, _Counts]:
    counts: defaultdict[int, _Counts] = defaultdict(Counter)
    for data_class in (DataClass.TENSOR, DataClass.BLOB_SEQUENCE):
        for run_id, series_id, period, by, points in superseded_counts.count_values(
            db, experiment_id, data_class, restarts
        ):
            counts[run_id][period, by, series_id] += points

    run_ids = list(restarts)
    compared = set(superseded_counts.list_inexact_scalars(db, experiment_id, run_ids))
    stored = superseded_counts.list_scalar_periods(db, experiment_id, run_ids)
    compared |= {
        (row.run_id, row.series_id) for row in stored if not _is_current(row, restarts[row.run_id])
    }
    for row in stored:
        if (row.run_id, row.series_id) in compared:
            continue
        times = np.array([row.period_start, row.superseded_by])
        period, by = find_periods(times, restarts[row.run_id]).tolist()
        counts[row.run_id][period, by, row.series_id] += row.points
    _compare_scalars(db, experiment_id, sorted(compared), restarts, counts)
    return counts


def _is_current(period: StoredPeriod, restarts: Float64s) -> bool:
    """Return whether what was a restart when the points were superseded is one now.

    It is none if an earlier file has later points: then its points may not be superseded.
    """
    times = set(restarts.tolist())
    is_first = period.period_start < restarts[0]
    return (is_first or period.period_start in times) and period.superseded_by in times


def _compare_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    series: list[tuple[int, int]],
    restarts: Mapping[int, Float64s],
    counts: defaultdict[int, _Counts],
) -> None:
    """Compare all points of these series, (run id, series id), and add what is superseded."""
    for start in range(0, len(series), _SERIES_PER_SCAN):
        run_ids = {id_: run_id for run_id, id_ in series[start : start + _SERIES_PER_SCAN]}
        scans = {id_: AttemptScan(restarts=restarts[run_id]) for id_, run_id in run_ids.items()}
        chunks = read_scalar_chunks(
            db,
            experiment_id,
            list(run_ids),
            ALL_STEPS,
            limits.SCAN_CHUNK_POINTS,
            skip_damaged=True,
            attempts=scans,
        )
        for id_, points in chunks:
            run_id = run_ids[id_]
            _add_compared(id_, points, restarts[run_id], counts[run_id])


def _add_compared(
    series_id: int, points: ScalarPoints, restarts: Float64s, counts: _Counts
) -> None:
    """Count the newest points of each step and period, which are by step, then by wall time."""
    steps = points.steps
    if len(steps) < 2 or not (is_same := steps[1:] == steps[:-1]).any():  # noqa: PLR2004 - a pair
        return
    periods = find_periods(points.wall_times, restarts)
    pairs = np.stack([periods[:-1][is_same], periods[1:][is_same]], axis=1)
    lost, lost_counts = np.unique(pairs, axis=0, return_counts=True)
    for (period, by), count in zip(lost.tolist(), lost_counts.tolist(), strict=True):
        counts[period, by, series_id] += count
