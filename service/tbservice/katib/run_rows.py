"""Katib's rows of a run: its trial and its observation log."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.katib.tables import katib_observations, katib_trials
from tbservice.series.tables import runs_tags
from tbservice.types.identifiers import ExperimentId


def delete_run_rows(db: Connection, experiment_id: ExperimentId, run_id: int, name: str) -> None:
    """Delete the trial and the log of a run that is deleted. A run without them is a no-op."""
    katib_observations.delete_run(db, experiment_id, run_id)
    katib_trials.delete(db, experiment_id, runs_tags.hash_name(name))
