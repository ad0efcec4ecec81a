"""Queries on `time_series` for change feeds: how far each series has come, as columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice.db.arrays import encode_array
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables import runs_tags
from tbservice.series.tables.time_series import build_conditions
from tbservice.types.identifiers import ExperimentId, Int64s
from tbservice.types.sampling import Selection


@dataclass(frozen=True, slots=True)
class SeriesProgress:
    """Columns of series, by series id. `series_rows.SeriesRow` says what they mean."""

    series_ids: Int64s
    counts: Int64s
    tail_points: Int64s
    last_steps: Int64s
    rewrites: Int64s
    rewritten_from: Int64s

    def __len__(self) -> int:
        return len(self.series_ids)


class SeriesLabel(NamedTuple):
    """The run, tag and plugin of a series."""

    run: str
    tag: str
    plugin: str


def list_progress(
    db: Connection, experiment_id: ExperimentId, selection: Selection, limit: int
) -> SeriesProgress:
    """Return the progress of the first `limit` selected series by id, without their names."""
    run_ids = (
        runs_tags.list_run_names(db, experiment_id, selection.runs)
        if selection.runs is not None
        else ()
    )
    tag_ids = (
        runs_tags.list_tag_names(db, experiment_id, selection.tags)
        if selection.tags is not None
        else ()
    )
    conditions, parameters = build_conditions(selection, run_ids, tag_ids)
    rows = fetch_binary(
        db,
        f"""
            SELECT series_id, count, tail_points, last_step, rewrites, rewritten_from
            FROM time_series
            WHERE experiment_id = %(experiment_id)s {conditions} ORDER BY series_id LIMIT %(limit)s
        """,  # noqa: S608 - the conditions are constants that depend on the selection
        {"experiment_id": experiment_id, "limit": limit, **parameters},
    )
    return SeriesProgress(*np.array(rows, np.int64).reshape(-1, 6).T)


def get_labels(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> dict[int, SeriesLabel]:
    """Return the run, tag and plugin of each of these series that exists, by series id."""
    rows = fetch_binary(
        db,
        """
            SELECT series_id, run_id, tag_id, plugin FROM time_series
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
        """,
        {"experiment_id": experiment_id, "series_ids": encode_array("bigint", series_ids)},
    )
    # No joins in SQL: see `build_conditions` for the reason.
    runs = _get_names(db, "runs", "run_id", experiment_id, {row[1] for row in rows})
    tags = _get_names(db, "tags", "tag_id", experiment_id, {row[2] for row in rows})
    return {
        series_id: SeriesLabel(runs[run_id], tags[tag_id], plugin)
        for series_id, run_id, tag_id, plugin in rows
    }


def _get_names(
    db: Connection, table: str, id_column: str, experiment_id: ExperimentId, ids: Collection[int]
) -> dict[int, str]:
    rows = fetch_binary(
        db,
        f"""
            SELECT {id_column}, name FROM {table}
            WHERE experiment_id = %(experiment_id)s AND {id_column} = ANY (%(ids)s::bigint[])
        """,  # noqa: S608 - called with the constants above
        {"experiment_id": experiment_id, "ids": encode_array("bigint", list(ids))},
    )
    return dict(rows)
