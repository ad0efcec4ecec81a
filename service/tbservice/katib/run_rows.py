"""Katib's rows of a run: its trial and its observation log, which are deleted with it."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.experiments.run_deletion import register_run_rows
from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.series.tables import runs_tags, wing_tables
from tbservice.types.identifiers import ExperimentId


def register() -> None:
    """Have the core delete Katib's rows with their run and experiment; once per process."""
    register_run_rows(_delete_run_rows)
    wing_tables.register("katib_observations")


def _delete_run_rows(db: Connection, experiment_id: ExperimentId, run_id: int, name: str) -> None:
    """Delete the trial and the log of a run that is deleted. A run without them is a no-op."""
    katib_observations.delete_run(db, experiment_id, run_id)
    katib_trials.delete(db, experiment_id, runs_tags.hash_name(name))
