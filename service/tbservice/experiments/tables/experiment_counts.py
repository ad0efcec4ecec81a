"""How many runs and series experiments have, counted up to a bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice.db.pipeline import EXPERIMENTS, fetch_of_experiments
from tbservice.types.identifiers import ExperimentId


class RunAndSeriesCounts(NamedTuple):
    """Runs and series, each at most as many as were to be counted."""

    runs: int
    series: int


def count_runs_and_series(
    db: Connection, experiment_ids: Sequence[ExperimentId], rows_max: int
) -> dict[ExperimentId, RunAndSeriesCounts]:
    """Return the counts of each experiment, which read at most `rows_max` rows of either kind."""
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, r.count, s.count FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (SELECT count(*) FROM (
                SELECT 1 FROM runs WHERE experiment_id = w.experiment_id LIMIT %(rows_max)s) AS r
            ) AS r
            CROSS JOIN LATERAL (SELECT count(*) FROM (
                SELECT 1 FROM time_series WHERE experiment_id = w.experiment_id LIMIT %(rows_max)s
            ) AS s) AS s
        """,  # noqa: S608 - a constant
        experiment_ids,
        {"rows_max": rows_max},
    )
    return {ExperimentId(id_): RunAndSeriesCounts(runs, series) for id_, runs, series in rows}
