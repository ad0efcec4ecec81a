"""Queries for the small curves of lists: tags of several experiments, and runs with a tag.

Their result depends on names and start times, not on the order in which the data arrived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice.db.pipeline import EXPERIMENTS, fetch_binary, fetch_of_experiments
from tbservice.series.tables.runs_tags import hash_name
from tbservice.types.identifiers import ExperimentId

CHART_RUNS_ITEMS_MAX: Final = 100
"""Runs (items) of an experiment that its curves are chosen from: the first by the hash of their
names, so that they do not depend on the order of arrival.
"""

CHART_SERIES_ITEMS_MAX: Final = 1_000
"""Series (items) of a run among which its scalar tags are looked for."""

_RUNS: Final = f"""(
    SELECT run_id, name, start_time FROM runs AS r WHERE r.experiment_id = w.experiment_id
    ORDER BY name_digest LIMIT {CHART_RUNS_ITEMS_MAX})"""  # noqa: S608 - a constant

_TAGS_PER_RUN: Final = 20


def list_tags(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, list[str]]:
    """Return scalar tags of each experiment; experiments without any are missing.

    Tags of which a run has several points come first, since a single point is no curve (the final
    metrics that are logged with hyperparameters, for example); then by `rank_tag`. The steps tell:
    counts may include superseded points. Looks at the newest three of its runs: what an experiment
    has in all may be a million.
    """
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, t.name, bool_or(t.is_curve)
            FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (
                SELECT run_id FROM {_RUNS} AS r
                ORDER BY starts_with(name, 'system/'), start_time DESC NULLS LAST, name COLLATE "C"
                LIMIT 3
            ) AS r
            CROSS JOIN LATERAL (
                SELECT t.name, s.is_curve FROM (
                    SELECT tag_id, first_step < last_step AS is_curve FROM time_series AS s
                    WHERE s.experiment_id = w.experiment_id AND s.run_id = r.run_id
                        AND data_class = 1
                    ORDER BY tag_id LIMIT {CHART_SERIES_ITEMS_MAX}
                ) AS s
                JOIN tags AS t ON t.experiment_id = w.experiment_id AND t.tag_id = s.tag_id
                WHERE length(t.name) <= 200
                ORDER BY NOT s.is_curve, strpos(lower(t.name), 'loss') = 0, t.name COLLATE "C"
                LIMIT {_TAGS_PER_RUN}
            ) AS t
            GROUP BY w.experiment_id, t.name
        """,  # noqa: S608 - constants
        experiment_ids,
        {},
    )
    tags: defaultdict[ExperimentId, dict[str, bool]] = defaultdict(dict)
    for experiment_id, name, is_curve in rows:
        tags[ExperimentId(experiment_id)][name] = is_curve
    return {
        experiment_id: sorted(are_curves, key=lambda tag: (not are_curves[tag], rank_tag(tag)))
        for experiment_id, are_curves in tags.items()
    }


def rank_tag(tag: str) -> tuple[bool, bool, str]:
    """Return the key that tags are sorted by: losses first, metrics of the machine last."""
    return tag.startswith("system/"), "loss" not in tag.lower(), tag


def list_runs_with_tag(
    db: Connection, experiment_ids: Sequence[ExperimentId], tag: str
) -> dict[ExperimentId, list[str]]:
    """Return the runs of each experiment that have a scalar series of the tag, the newest first."""
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, r.name
            FROM {EXPERIMENTS} AS w (experiment_id)
            JOIN tags AS t ON t.experiment_id = w.experiment_id AND t.name_digest = %(tag_digest)s
            CROSS JOIN LATERAL {_RUNS} AS r
            JOIN time_series AS s ON s.experiment_id = w.experiment_id AND s.run_id = r.run_id
                AND s.tag_id = t.tag_id AND s.data_class = 1
            ORDER BY w.experiment_id, r.start_time DESC NULLS LAST, r.name COLLATE "C"
        """,  # noqa: S608 - constants
        experiment_ids,
        {"tag_digest": hash_name(tag)},
    )
    runs: dict[ExperimentId, list[str]] = {}
    for experiment_id, name in rows:
        runs.setdefault(ExperimentId(experiment_id), []).append(name)
    return runs


def list_tag_page(
    db: Connection, experiment_id: ExperimentId, search: str, first: int, limit: int
) -> tuple[list[str], int]:
    """Return scalar tags of all runs whose name contains a text, in the order of `list_tags`.

    Also returns how many there are; 0 on a page after the last one. Reads all rows of series.
    """
    rows = fetch_binary(
        db,
        """
            SELECT t.name, count(*) OVER () FROM (
                SELECT tag_id, bool_or(first_step < last_step) AS is_curve FROM time_series
                WHERE experiment_id = %(experiment_id)s AND data_class = 1 AND count > 0
                GROUP BY tag_id
            ) AS s
            JOIN tags AS t ON t.experiment_id = %(experiment_id)s AND t.tag_id = s.tag_id
            WHERE strpos(lower(t.name), lower(%(search)s)) > 0
            ORDER BY NOT is_curve, starts_with(t.name, 'system/'),
                strpos(lower(t.name), 'loss') = 0, t.name COLLATE "C"
            LIMIT %(limit)s OFFSET %(first)s
        """,
        {"experiment_id": experiment_id, "search": search, "limit": limit, "first": first},
    )
    return [name for name, _ in rows], rows[0][1] if rows else 0


def list_run_page(
    db: Connection, experiment_id: ExperimentId, search: str, limit: int
) -> tuple[list[str], int]:
    """Return runs whose name contains a text, in the order of `list_runs_with_tag`, and how many.

    Those with metrics of the machine alone come last.
    """
    rows = fetch_binary(
        db,
        """
            SELECT name, count(*) OVER () FROM runs
            WHERE experiment_id = %(experiment_id)s
                AND strpos(lower(name), lower(%(search)s)) > 0
            ORDER BY starts_with(name, 'system/'), start_time DESC NULLS LAST, name COLLATE "C"
            LIMIT %(limit)s
        """,
        {"experiment_id": experiment_id, "search": search, "limit": limit},
    )
    return [name for name, _ in rows], rows[0][1] if rows else 0
