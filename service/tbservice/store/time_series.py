"""Queries on `time_series`: which series there are, and what is known of each without reading its points."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.store import names
from tbservice.types import DataClass, ExperimentGrant, ExperimentId, Selection, Series


@dataclass(slots=True)
class NewSeries:
    """What a series is made from. `wall_time` is that of the point which brought the metadata."""

    run_id: int
    tag_id: int
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    wall_time: float
    first_step: int


@dataclass(slots=True)
class SeriesState:
    """A series' row, locked until the transaction ends; `update_states` writes it back."""

    series_id: int
    run_id: int
    tag_id: int
    plugin: str
    data_class: int
    summary_metadata: bytes
    metadata_wall_time: float
    count: int
    count_is_exact: bool
    sealed_count: int
    tail_rows: int
    tail_points: int
    max_length: int
    first_step: int
    first_wall_time: float
    first_value: float | None
    last_step: int
    last_wall_time: float
    last_value: float | None


_STATE: Final = """
    series_id, run_id, tag_id, plugin, data_class, summary_metadata, metadata_wall_time, count, count_is_exact,
    sealed_count, tail_rows, tail_points, max_length,
    first_step, first_wall_time, first_value, last_step, last_wall_time, last_value
"""

_WRITTEN: Final[dict[str, str]] = {
    "summary_metadata": "bytea",
    "metadata_wall_time": "float8",
    "count": "bigint",
    "count_is_exact": "boolean",
    "sealed_count": "bigint",
    "tail_rows": "integer",
    "tail_points": "bigint",
    "max_length": "integer",
    "first_step": "bigint",
    "first_wall_time": "float8",
    "first_value": "float8",
    "last_step": "bigint",
    "last_wall_time": "float8",
    "last_value": "float8",
}


def lock_by_name(
    db: Connection, experiment_id: ExperimentId, run_ids: Sequence[int], tag_ids: Sequence[int]
) -> list[SeriesState]:
    """Locks the series of these (run, tag) pairs that there are, in id order, until the transaction ends."""
    rows = db.execute(
        text(f"""
            SELECT {_STATE} FROM time_series
            WHERE experiment_id = :experiment_id AND (run_id, tag_id) IN
                (SELECT r, t FROM unnest(CAST(:run_ids AS bigint[]), CAST(:tag_ids AS bigint[])) AS u (r, t))
            ORDER BY series_id FOR UPDATE
        """),  # noqa: S608 - the columns are the constant above
        {"experiment_id": experiment_id, "run_ids": list(run_ids), "tag_ids": list(tag_ids)},
    )
    return [_state(row) for row in rows]


def lock_due(
    db: Connection, experiment_id: ExperimentId, run_id: int, rows_min: int, points_min: int, limit: int
) -> list[SeriesState]:
    """Locks at most `limit` scalar series of a run whose tail has so many rows or points, passing over locked ones."""
    rows = db.execute(
        text(f"""
            SELECT {_STATE} FROM time_series
            WHERE experiment_id = :experiment_id AND run_id = :run_id
                AND (tail_rows >= :rows_min OR tail_points >= :points_min)
            ORDER BY series_id LIMIT :limit FOR UPDATE SKIP LOCKED
        """),  # noqa: S608 - the columns are the constant above
        {
            "experiment_id": experiment_id,
            "run_id": run_id,
            "rows_min": rows_min,
            "points_min": points_min,
            "limit": limit,
        },
    )
    return [_state(row) for row in rows]


def create(db: Connection, grant: ExperimentGrant, new: Collection[NewSeries]) -> None:
    """Makes series that are not there yet; one that another transaction has just made is left as it is."""
    ordered = sorted(new, key=lambda series: (series.run_id, series.tag_id))
    db.execute(
        text("""
            INSERT INTO time_series (experiment_id, workspace_id, run_id, tag_id, plugin, data_class, summary_metadata,
                metadata_wall_time, first_step, first_wall_time, last_step, last_wall_time)
            SELECT :experiment_id, :workspace_id, run_id, tag_id, plugin, data_class, summary_metadata,
                wall_time, step, '-Infinity', step, '-Infinity'
            FROM unnest(CAST(:run_ids AS bigint[]), CAST(:tag_ids AS bigint[]), CAST(:plugins AS text[]),
                CAST(:data_classes AS smallint[]), CAST(:metadata AS bytea[]), CAST(:wall_times AS float8[]),
                CAST(:steps AS bigint[]))
                AS u (run_id, tag_id, plugin, data_class, summary_metadata, wall_time, step)
            ON CONFLICT DO NOTHING
        """),
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "run_ids": [series.run_id for series in ordered],
            "tag_ids": [series.tag_id for series in ordered],
            "plugins": [series.plugin for series in ordered],
            "data_classes": [int(series.data_class) for series in ordered],
            "metadata": [series.summary_metadata for series in ordered],
            "wall_times": [series.wall_time for series in ordered],
            "steps": [series.first_step for series in ordered],
        },
    )


def update_states(db: Connection, experiment_id: ExperimentId, states: Sequence[SeriesState]) -> None:
    """Writes back rows that this transaction holds locked."""
    assignments = ", ".join(f"{name} = u.{name}" for name in _WRITTEN)
    columns = ", ".join(_WRITTEN)
    arrays = ", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _WRITTEN.items())
    db.execute(
        text(f"""
            UPDATE time_series SET {assignments}
            FROM unnest(CAST(:series_ids AS bigint[]), {arrays}) AS u (series_id, {columns})
            WHERE experiment_id = :experiment_id AND time_series.series_id = u.series_id
        """),  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": experiment_id,
            "series_ids": [state.series_id for state in states],
            **{name: [getattr(state, name) for state in states] for name in _WRITTEN},
        },
    )


def list_series(db: Connection, experiment_id: ExperimentId, selection: Selection) -> list[Series]:
    """The selected series, by run and then by the order in which their tags came."""
    return _list(db, experiment_id, selection, "", "s.run_id, s.tag_id", {})


def list_page(
    db: Connection, experiment_id: ExperimentId, selection: Selection, after: tuple[int, int], limit: int
) -> list[Series]:
    """The first `limit` of the selected series whose (data class, id) is greater than `after`, in that order."""
    place = {"after_class": after[0], "after_id": after[1], "limit": limit}
    condition = "AND (s.data_class, s.series_id) > (:after_class, :after_id)"
    return _list(db, experiment_id, selection, condition, "s.data_class, s.series_id LIMIT :limit", place)


def _list(
    db: Connection,
    experiment_id: ExperimentId,
    selection: Selection,
    place: str,
    order: str,
    place_parameters: dict[str, int],
) -> list[Series]:
    conditions, parameters = _conditions(selection)
    rows = db.execute(
        text(f"""
            SELECT s.series_id, s.run_id, runs.name AS run, tags.name AS tag,
                s.plugin, s.data_class, s.summary_metadata,
                s.count AS points, s.count_is_exact, s.sealed_count, s.max_length,
                s.first_step, s.first_wall_time, s.first_value,
                s.last_step, s.last_wall_time, s.last_value
            FROM time_series AS s
            JOIN runs ON runs.experiment_id = s.experiment_id AND runs.run_id = s.run_id
            JOIN tags ON tags.experiment_id = s.experiment_id AND tags.tag_id = s.tag_id
            WHERE s.experiment_id = :experiment_id {conditions} {place}
            ORDER BY {order}
        """),  # noqa: S608 - the conditions are constants, chosen by what is asked for
        {"experiment_id": experiment_id, **parameters, **place_parameters},
    )
    return [
        Series(
            series_id=row.series_id,
            run_id=row.run_id,
            run=row.run,
            tag=row.tag,
            plugin=row.plugin,
            data_class=DataClass(row.data_class),
            summary_metadata=bytes(row.summary_metadata),
            count=row.points,  # a row has a method `count`
            count_is_exact=row.count_is_exact,
            sealed_count=row.sealed_count,
            max_length=row.max_length,
            first_step=row.first_step,
            first_wall_time=row.first_wall_time,
            first_value=row.first_value,
            last_step=row.last_step,
            last_wall_time=row.last_wall_time,
            last_value=row.last_value,
        )
        for row in rows
    ]


def _conditions(selection: Selection) -> tuple[str, dict[str, Any]]:
    conditions = ""
    parameters: dict[str, Any] = {}
    if selection.plugin is not None:
        conditions += " AND s.plugin = :plugin"
        parameters["plugin"] = selection.plugin
    if selection.data_class is not None:
        conditions += " AND s.data_class = :data_class"
        parameters["data_class"] = int(selection.data_class)
    if selection.runs is not None:
        conditions += " AND runs.name_digest = ANY (CAST(:runs AS bytea[]))"
        parameters["runs"] = [names.digest(run) for run in selection.runs]
    if selection.tags is not None:
        conditions += " AND tags.name_digest = ANY (CAST(:tags AS bytea[]))"
        parameters["tags"] = [names.digest(tag) for tag in selection.tags]
    return conditions, parameters


def list_plugins(db: Connection, experiment_id: ExperimentId) -> list[str]:
    """The plugins that own a series of the experiment, by name."""
    statement = text("SELECT DISTINCT plugin FROM time_series WHERE experiment_id = :experiment_id ORDER BY plugin")
    return list(db.execute(statement, {"experiment_id": experiment_id}).scalars())


def delete(db: Connection, experiment_id: ExperimentId, run_id: int, tag_id: int | None) -> list[int]:
    """Deletes the rows of a run's series, or of one of them, and gives their ids; the caller deletes their points."""
    statement = text("""
        DELETE FROM time_series WHERE experiment_id = :experiment_id AND run_id = :run_id
            AND (CAST(:tag_id AS bigint) IS NULL OR tag_id = :tag_id)
        RETURNING series_id
    """)
    parameters = {"experiment_id": experiment_id, "run_id": run_id, "tag_id": tag_id}
    return list(db.execute(statement, parameters).scalars())


def _state(row: Row[Any]) -> SeriesState:
    return SeriesState(**{**row._mapping, "summary_metadata": bytes(row.summary_metadata)})
