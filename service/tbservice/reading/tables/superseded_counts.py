"""Queries that count superseded points by period, over the three tables of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice.db.arrays import encode_array
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables.points import SHOWN_TABLES
from tbservice.series.tables.superseded_points import SUPERSEDED_TABLES
from tbservice.types.identifiers import ExperimentId, Float64s
from tbwire.points import DataClass


class StoredPeriod(NamedTuple):
    """Superseded scalars of one series and period, as their blocks have them.

    `period_start` is -inf for the first period; `superseded_by` None if points must be compared.
    """

    run_id: int
    series_id: int
    period_start: float
    superseded_by: float | None
    points: int


class PeriodCounts(NamedTuple):
    """Superseded points of one series, of a period, by the period of the next newer points."""

    run_id: int
    series_id: int
    period: int
    superseded_by: int
    points: int


def list_scalar_periods(
    db: Connection, experiment_id: ExperimentId, run_ids: Collection[int]
) -> list[StoredPeriod]:
    """Return the periods of all scalar series of these runs that have superseded points."""
    rows = fetch_binary(
        db,
        """
            SELECT s.run_id, s.series_id, p.period_start, p.superseded_by, p.points::bigint
            FROM (
                SELECT series_id, period_start, superseded_by, sum(count) AS points
                FROM superseded_blocks WHERE experiment_id = %(experiment_id)s
                GROUP BY series_id, period_start, superseded_by
            ) AS p
            JOIN time_series AS s ON s.experiment_id = %(experiment_id)s
                AND s.series_id = p.series_id
            WHERE s.run_id = ANY (%(run_ids)s::bigint[])
        """,
        {"experiment_id": experiment_id, "run_ids": list(run_ids)},
    )
    return [StoredPeriod(*row) for row in rows]


def list_inexact_scalars(
    db: Connection, experiment_id: ExperimentId, run_ids: Collection[int]
) -> list[tuple[int, int]]:
    """Return (run id, series id) of scalar series with points that compaction may yet remove."""
    rows = fetch_binary(
        db,
        """
            SELECT run_id, series_id FROM time_series
            WHERE experiment_id = %(experiment_id)s AND run_id = ANY (%(run_ids)s::bigint[])
                AND data_class = 1 AND NOT count_is_exact
            ORDER BY run_id, series_id
        """,
        {"experiment_id": experiment_id, "run_ids": list(run_ids)},
    )
    return [(run_id, series_id) for run_id, series_id in rows]


def count_values(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    restarts: Mapping[int, Float64s],
) -> list[PeriodCounts]:
    """Return the counts of tensor or blob sequence series by series and periods.

    Reads step and wall time of all points of the series that have superseded ones.

    Args:
        db: A snapshot.
        experiment_id: The experiment of all runs.
        data_class: The data class of the series.
        restarts: The restarts of each run, by run id.
    """
    shown, superseded = SHOWN_TABLES[data_class], SUPERSEDED_TABLES[data_class]
    rows = fetch_binary(
        db,
        f"""
            WITH run AS MATERIALIZED (
                SELECT run_id, array_agg(restart ORDER BY restart) AS restarts
                FROM unnest(%(run_ids)s::bigint[], %(restarts)s::float8[]) AS r (run_id, restart)
                GROUP BY run_id),
            series AS MATERIALIZED (
                SELECT s.series_id, run.run_id, run.restarts
                FROM (SELECT DISTINCT series_id FROM {superseded}
                    WHERE experiment_id = %(experiment_id)s) AS p
                JOIN time_series AS s ON s.experiment_id = %(experiment_id)s
                    AND s.series_id = p.series_id
                JOIN run ON run.run_id = s.run_id),
            points AS (
                SELECT DISTINCT s.run_id, s.series_id, p.step,
                    width_bucket(p.wall_time, s.restarts) AS period
                FROM series AS s
                CROSS JOIN LATERAL (
                    SELECT step, wall_time FROM {shown}
                    WHERE experiment_id = %(experiment_id)s AND series_id = s.series_id
                    UNION ALL
                    SELECT step, wall_time FROM {superseded}
                    WHERE experiment_id = %(experiment_id)s AND series_id = s.series_id
                ) AS p)
            SELECT run_id, series_id, period, superseded_by, count(*)
            FROM (
                SELECT run_id, series_id, period,
                    lead(period) OVER (PARTITION BY series_id, step ORDER BY period)
                        AS superseded_by
                FROM points
            ) AS compared
            WHERE superseded_by IS NOT NULL
            GROUP BY run_id, series_id, period, superseded_by
        """,  # noqa: S608 - constants of ours
        {
            "experiment_id": experiment_id,
            "run_ids": [run_id for run_id, times in restarts.items() for _ in times],
            "restarts": encode_array("float8", np.concatenate(list(restarts.values()))),
        },
    )
    return [PeriodCounts(*row) for row in rows]
