"""Queries for columns of the table of runs that are the same for all runs of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from tbservice.db.pipeline import EXPERIMENTS, fetch_binary, fetch_of_experiments
from tbservice.types.identifiers import ExperimentId


def list_origins(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, dict[str, str]]:
    """Return the origin of each experiment: host, commit and so on, of its first upload."""
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT e.experiment_id, e.origin FROM {EXPERIMENTS} AS w (experiment_id)
            JOIN experiments AS e ON e.experiment_id = w.experiment_id
        """,  # noqa: S608 - a constant
        experiment_ids,
        {},
    )
    return {ExperimentId(experiment_id): origin for experiment_id, origin in rows}


def list_start_times(db: Connection, experiment_id: ExperimentId) -> dict[int, float | None]:
    """Return the wall time in seconds at which each run of an experiment began, by run id."""
    rows = fetch_binary(
        db,
        "SELECT run_id, start_time FROM runs WHERE experiment_id = %(experiment_id)s",
        {"experiment_id": experiment_id},
    )
    return dict(rows)
