"""How many runs and series experiments have, counted up to a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

from tbservice.store.pg.arrays import encode_array
from tbservice.types import ExperimentId


class RunAndSeriesCounts(NamedTuple):
    """Runs and series, each at most as many as were to be counted."""

    runs: int
    series: int


def count_runs_and_series(
    db: Connection, experiment_ids: Sequence[ExperimentId], rows_max: int
) -> dict[ExperimentId, RunAndSeriesCounts]:
    """Return the counts of each experiment, which read at most `rows_max` rows of either kind."""
    rows = db.execute(
        text("""
            SELECT id,
                (SELECT count(*) FROM
                    (SELECT 1 FROM runs WHERE experiment_id = id LIMIT :rows_max) AS r) AS runs,
                (SELECT count(*) FROM
                    (SELECT 1 FROM time_series WHERE experiment_id = id LIMIT :rows_max) AS s
                ) AS series
            FROM unnest(CAST(:ids AS text[])) AS id
        """),
        {"ids": encode_array("text", experiment_ids), "rows_max": rows_max},
    )
    return {ExperimentId(row.id): RunAndSeriesCounts(row.runs, row.series) for row in rows}
