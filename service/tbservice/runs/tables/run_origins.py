"""Queries for columns of the table of runs that are the same for all runs of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from tbservice.db.pipeline import EXPERIMENTS, fetch_binary, fetch_of_experiments
from tbservice.runs.tables import tags_of_runs
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


def list_newest_uploads(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, tuple[Any, ...]]:
    """Return a value for each experiment with uploads that changes with its newest one."""
    rows = _fetch_newest_uploads(db, experiment_ids, "upload_id, seen_at")
    return {ExperimentId(experiment_id): tuple(version) for experiment_id, *version in rows}


def read_newest_uploads(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> list[tuple[ExperimentId, dict[str, str], list[str]]]:
    """Return origin, without long texts, and packages of the newest upload of each experiment."""
    columns = "origin - ARRAY['console', 'console_times', 'git_diff'] AS origin, packages"
    rows = _fetch_newest_uploads(db, experiment_ids, columns) if experiment_ids else []
    return [(ExperimentId(id_), origin, packages) for id_, origin, packages in rows]


def _fetch_newest_uploads(
    db: Connection, experiment_ids: Sequence[ExperimentId], columns: str
) -> list[tuple[Any, ...]]:
    return fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, u.* FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (
                SELECT {columns} FROM uploads WHERE experiment_id = w.experiment_id
                ORDER BY created_at DESC, upload_id DESC LIMIT 1
            ) AS u
        """,  # noqa: S608 - constants
        experiment_ids,
        {},
    )


def list_runs(
    db: Connection, experiment_id: ExperimentId, *, with_tags: bool
) -> dict[int, tuple[float | None, list[str]]]:
    """Return wall time in seconds of the beginning, and tags, of each run, by run id.

    Without tags for readers of links, whose views do not have them.
    """
    tags = "tags" if with_tags and tags_of_runs.is_supported(db) else "'{}'::text[]"
    rows = fetch_binary(
        db,
        f"SELECT run_id, start_time, {tags} FROM runs WHERE experiment_id = %(experiment_id)s",  # noqa: S608 - a constant
        {"experiment_id": experiment_id},
    )
    return {run_id: (start_time, tags) for run_id, start_time, tags in rows}
