"""Queries on `time_series` by those who follow an experiment: how far each series has come, as columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice.store import names
from tbservice.store.arrays import array
from tbservice.store.database import binary_rows
from tbservice.types import ExperimentId, Int64s, Selection


@dataclass(frozen=True, slots=True)
class Progress:
    """Columns of series in the order of their ids; what they mean is told by `SeriesState`."""

    series_ids: Int64s
    counts: Int64s
    tail_points: Int64s
    last_steps: Int64s
    rewrites: Int64s
    rewritten_from: Int64s

    def __len__(self) -> int:
        return len(self.series_ids)


class SeriesLabel(NamedTuple):
    """What a series is called, and who owns it."""

    run: str
    tag: str
    plugin: str


def list_progress(db: Connection, experiment_id: ExperimentId, selection: Selection, limit: int) -> Progress:
    """How far the selected series have come, at most `limit` of them: without their names and metadata."""
    conditions, parameters = _conditions(db, experiment_id, selection)
    rows = binary_rows(
        db,
        f"""
            SELECT series_id, count, tail_points, last_step, rewrites, rewritten_from FROM time_series
            WHERE experiment_id = %(experiment_id)s {conditions} ORDER BY series_id LIMIT %(limit)s
        """,  # noqa: S608 - the conditions are constants, chosen by what is asked for
        {"experiment_id": experiment_id, "limit": limit, **parameters},
    )
    return Progress(*np.array(rows, np.int64).reshape(-1, 6).T)


def _conditions(db: Connection, experiment_id: ExperimentId, selection: Selection) -> tuple[str, dict[str, Any]]:
    """What selects the series, with runs and tags by their ids: see `time_series` on why they are not joined."""
    conditions = ""
    parameters: dict[str, Any] = {}
    if selection.plugin is not None:
        conditions += " AND plugin = %(plugin)s"
        parameters["plugin"] = selection.plugin
    if selection.data_class is not None:
        conditions += " AND data_class = %(data_class)s"
        parameters["data_class"] = int(selection.data_class)
    if selection.runs is not None:
        conditions += " AND run_id = ANY (%(run_ids)s::bigint[])"
        parameters["run_ids"] = list(names.list_run_names(db, experiment_id, selection.runs))
    if selection.tags is not None:
        conditions += " AND tag_id = ANY (%(tag_ids)s::bigint[])"
        parameters["tag_ids"] = list(names.list_tag_names(db, experiment_id, selection.tags))
    return conditions, parameters


def get_labels(db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]) -> dict[int, SeriesLabel]:
    """What each of these series is called."""
    rows = binary_rows(
        db,
        """
            SELECT series_id, run_id, tag_id, plugin FROM time_series
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
        """,
        {"experiment_id": experiment_id, "series_ids": array("bigint", series_ids)},
    )
    # Joined in SQL, the names of an experiment that has just come would be looked through once a series: see above.
    runs = _get_names(db, "runs", "run_id", experiment_id, {row[1] for row in rows})
    tags = _get_names(db, "tags", "tag_id", experiment_id, {row[2] for row in rows})
    return {series_id: SeriesLabel(runs[run_id], tags[tag_id], plugin) for series_id, run_id, tag_id, plugin in rows}


def _get_names(
    db: Connection, table: str, id_column: str, experiment_id: ExperimentId, ids: Collection[int]
) -> dict[int, str]:
    rows = binary_rows(
        db,
        f"""
            SELECT {id_column}, name FROM {table}
            WHERE experiment_id = %(experiment_id)s AND {id_column} = ANY (%(ids)s::bigint[])
        """,  # noqa: S608 - called with the constants above
        {"experiment_id": experiment_id, "ids": array("bigint", list(ids))},
    )
    return dict(rows)
