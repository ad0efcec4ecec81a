"""Compute summaries of scalar series from all of their points."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import summary_format
from tbservice.series.tables.series_rows import SeriesRow
from tbservice.series.tables.summary_format import Summary
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import ALL_STEPS
from tbwire.points import DataClass

COMPACTION_SUMMARY_POINTS_MAX: Final = 1_000_000
"""Points that one transaction of compaction reads to compute summaries: about 0.1 s."""

_log = logging.getLogger(__name__)


def compute(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, Summary]:
    """Return the summary of each series by id, of the newest point of each step.

    None at all if a row of points is damaged: what is wrong would be kept.

    Args:
        db: A snapshot, or a transaction that has locked the rows of the series.
        experiment_id: The experiment.
        series_ids: Scalar series; all of their points are read, in bounded memory.
    """
    computed = dict.fromkeys(series_ids, summary_format.EMPTY)
    try:
        for series_id, points in read_scalar_chunks(
            db, experiment_id, series_ids, ALL_STEPS, limits.SCAN_CHUNK_POINTS
        ):
            if len(points):
                computed[series_id] = computed[series_id].extend(points)
    except ValueError as error:
        _log.warning("no summaries of series of experiment %s: %s", experiment_id, error)
        return {}
    return computed


def fill_rows(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[SeriesRow]
) -> list[SeriesRow]:
    """Return the rows with the summaries that are unknown, as far as few enough points are read.

    Args:
        db: A transaction that has locked the rows, with all of their points in the tables.
        experiment_id: The experiment.
        rows: The rows of scalar series.
    """
    unknown: list[int] = []
    points = 0
    for row in rows:
        if (
            row.data_class == DataClass.SCALAR
            and summary_format.unpack(row.summary, row.rewrites, row.last_step) is None
            and points + row.count <= COMPACTION_SUMMARY_POINTS_MAX
        ):
            unknown.append(row.series_id)
            points += row.count
    if not unknown:
        return list(rows)
    computed = compute(db, experiment_id, unknown)
    return [
        row._replace(
            summary=summary_format.pack(computed[row.series_id], row.rewrites, row.last_step)
        )
        if row.series_id in computed
        else row
        for row in rows
    ]
