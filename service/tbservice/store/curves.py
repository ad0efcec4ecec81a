"""Queries for the small curves of lists: tags of several experiments, and runs with a tag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Connection

from tbservice.store.pg.pipeline import EXPERIMENTS, fetch_of_experiments
from tbservice.store.runs_tags import hash_name
from tbservice.types import ExperimentId


def list_common_tags(
    db: Connection, experiment_ids: Sequence[ExperimentId], limit: int
) -> list[str]:
    """Return scalar tags of these experiments, those of most experiments first.

    Looks at a few tags of the newest runs: what an experiment has in all may be a million.
    """
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT DISTINCT w.experiment_id, t.name
            FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (
                SELECT run_id FROM runs AS r WHERE r.experiment_id = w.experiment_id
                ORDER BY run_id DESC LIMIT 2
            ) AS r
            CROSS JOIN LATERAL (
                SELECT tag_id FROM time_series AS s
                WHERE s.experiment_id = w.experiment_id AND s.run_id = r.run_id AND data_class = 1
                ORDER BY tag_id LIMIT 20
            ) AS s
            JOIN tags AS t ON t.experiment_id = w.experiment_id AND t.tag_id = s.tag_id
            WHERE length(t.name) <= 200
        """,  # noqa: S608 - a constant
        experiment_ids,
        {},
    )
    counts = Counter(name for _, name in rows)
    return sorted(counts, key=lambda name: (-counts[name], name))[:limit]


def list_runs_with_tag(
    db: Connection, experiment_ids: Sequence[ExperimentId], tag: str, runs_max: int
) -> dict[ExperimentId, list[str]]:
    """Return the newest runs of each experiment that have a scalar series of the tag.

    Looks at `runs_max` runs of each.
    """
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, r.name
            FROM {EXPERIMENTS} AS w (experiment_id)
            JOIN tags AS t ON t.experiment_id = w.experiment_id AND t.name_digest = %(tag_digest)s
            CROSS JOIN LATERAL (
                SELECT run_id, name FROM runs AS r WHERE r.experiment_id = w.experiment_id
                ORDER BY run_id DESC LIMIT %(runs_max)s
            ) AS r
            JOIN time_series AS s ON s.experiment_id = w.experiment_id AND s.run_id = r.run_id
                AND s.tag_id = t.tag_id AND s.data_class = 1
            ORDER BY w.experiment_id, r.run_id DESC
        """,  # noqa: S608 - a constant
        experiment_ids,
        {"tag_digest": hash_name(tag), "runs_max": runs_max},
    )
    runs: dict[ExperimentId, list[str]] = {}
    for experiment_id, name in rows:
        runs.setdefault(ExperimentId(experiment_id), []).append(name)
    return runs
