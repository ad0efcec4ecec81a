"""Queries on `time_series`: which series there are, and what is known of each without reading its points."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.store import runs_tags
from tbservice.store.pg.arrays import decode_int8s
from tbservice.store.pg.pipeline import fetch_binary
from tbservice.store.series_selection import build_conditions
from tbservice.types import DataClass, ExperimentId, Int64s, Selection, Series

_DATA_CLASSES: Final = {int(one): one for one in DataClass}


def list_series(db: Connection, experiment_id: ExperimentId, selection: Selection) -> list[Series]:
    """The selected series, by run and then by the order in which their tags came."""
    return _list_where(db, experiment_id, selection, "", "run_id, tag_id", {})


def list_page(
    db: Connection,
    experiment_id: ExperimentId,
    selection: Selection,
    after: tuple[int, int],
    limit: int,
) -> list[Series]:
    """The first `limit` of the selected series whose (data class, id) is greater than `after`, in that order."""
    place = {"after_class": after[0], "after_id": after[1], "limit": limit}
    condition = "AND (data_class, series_id) > (%(after_class)s, %(after_id)s)"
    return _list_where(
        db, experiment_id, selection, condition, "data_class, series_id LIMIT %(limit)s", place
    )


def _list_where(
    db: Connection,
    experiment_id: ExperimentId,
    selection: Selection,
    place: str,
    order: str,
    place_parameters: dict[str, int],
) -> list[Series]:
    chosen = _resolve_selection(db, experiment_id, selection)
    rows = fetch_binary(  # SQLAlchemy takes several times as long for a hundred thousand rows
        db,
        f"""
            SELECT series_id, run_id, run_id, tag_id, plugin, data_class, summary_metadata,
                count, count_is_exact, sealed_count, max_length,
                first_step, first_wall_time, first_value,
                last_step, last_wall_time, last_value,
                GREATEST(max_wall_time, last_wall_time)
            FROM time_series
            WHERE experiment_id = %(experiment_id)s {chosen.conditions} {place}
            ORDER BY {order}
        """,  # noqa: S608 - the conditions are constants, chosen by what is asked for
        {"experiment_id": experiment_id, **chosen.parameters, **place_parameters},
    )
    return [
        Series(
            *[
                *row[:2],
                chosen.runs[row[2]],
                chosen.tags[row[3]],
                row[4],
                _DATA_CLASSES[row[5]],
                *row[6:],
            ]
        )
        for row in rows
        if row[2] in chosen.runs and row[3] in chosen.tags
    ]


@dataclass(frozen=True, slots=True)
class _ResolvedSelection:
    """What a selection selects: conditions on `time_series`, their parameters, and the names to its ids."""

    conditions: str
    parameters: dict[str, Any]
    runs: dict[int, str]
    tags: dict[int, str]


def _resolve_selection(
    db: Connection, experiment_id: ExperimentId, selection: Selection
) -> _ResolvedSelection:
    runs = runs_tags.list_run_names(db, experiment_id, selection.runs)
    tags = runs_tags.list_tag_names(db, experiment_id, selection.tags)
    return _ResolvedSelection(*build_conditions(selection, runs, tags), runs, tags)


class LastPoint(NamedTuple):
    """The point with the greatest step of a scalar series."""

    run: str
    tag: str
    step: int
    wall_time: float
    value: float


def list_last_points(
    db: Connection, experiment_id: ExperimentId, selection: Selection
) -> list[LastPoint]:
    """The last point of each of the selected series, which have some, by run."""
    chosen = _resolve_selection(db, experiment_id, selection)
    rows = fetch_binary(
        db,
        f"""
            SELECT run_id, tag_id, last_step, last_wall_time, last_value FROM time_series
            WHERE experiment_id = %(experiment_id)s AND last_value IS NOT NULL {chosen.conditions}
            ORDER BY run_id, tag_id
        """,  # noqa: S608 - the conditions are constants, chosen by what is asked for
        {"experiment_id": experiment_id, **chosen.parameters},
    )
    return [
        LastPoint(chosen.runs[run_id], chosen.tags[tag_id], *point)
        for run_id, tag_id, *point in rows
        if run_id in chosen.runs and tag_id in chosen.tags
    ]


@dataclass(frozen=True, slots=True)
class TagGroupRow:
    """The series of one run that share plugin, data class and metadata: tag ids, and longest blob sequences beside."""

    run_id: int
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    tag_ids: Int64s
    lengths_max: Int64s


def list_tag_groups(
    db: Connection, experiment_id: ExperimentId, kinds: Collection[tuple[str, DataClass]]
) -> list[TagGroupRow]:
    """The series of these kinds (plugin and data class), a row a group instead of a row a series; by run."""
    rows = fetch_binary(
        db,
        """
            SELECT run_id, plugin, data_class, summary_metadata,
                string_agg(int8send(tag_id), ''::bytea), string_agg(int8send(max_length), ''::bytea)
            FROM time_series
            WHERE experiment_id = %(experiment_id)s AND (plugin, data_class) IN
                (SELECT * FROM unnest(%(plugins)s::text[], %(data_classes)s::smallint[]))
            GROUP BY run_id, plugin, data_class, summary_metadata
            ORDER BY run_id, plugin, data_class, summary_metadata
        """,
        {
            "experiment_id": experiment_id,
            "plugins": [plugin for plugin, _ in kinds],
            "data_classes": [int(data_class) for _, data_class in kinds],
        },
    )
    return [
        TagGroupRow(
            run_id,
            plugin,
            _DATA_CLASSES[data_class],
            metadata,
            decode_int8s(tag_ids),
            decode_int8s(lengths),
        )
        for run_id, plugin, data_class, metadata, tag_ids, lengths in rows
    ]


def list_tag_ids(db: Connection, experiment_id: ExperimentId) -> dict[int, Int64s]:
    """The ids of the tags of each run (by id), in the order of the runs; those of the tags in none."""
    rows = fetch_binary(
        db,
        """
            SELECT run_id, string_agg(int8send(tag_id), ''::bytea) FROM time_series
            WHERE experiment_id = %(experiment_id)s GROUP BY run_id ORDER BY run_id
        """,
        {"experiment_id": experiment_id},
    )
    return {run_id: decode_int8s(tag_ids) for run_id, tag_ids in rows}


def list_kinds(db: Connection, experiment_id: ExperimentId) -> list[tuple[str, DataClass]]:
    """The kinds of series (plugin and data class) that the experiment has, by the plugin's name."""
    statement = text("""
        SELECT DISTINCT plugin, data_class FROM time_series WHERE experiment_id = :experiment_id
        ORDER BY plugin, data_class
    """)
    rows = db.execute(statement, {"experiment_id": experiment_id})
    return [(plugin, _DATA_CLASSES[data_class]) for plugin, data_class in rows]


def delete(
    db: Connection, experiment_id: ExperimentId, run_id: int, tag_id: int | None
) -> list[int]:
    """Deletes the rows of a run's series, or of one of them, and gives their ids; the caller deletes their points."""
    statement = text("""
        DELETE FROM time_series WHERE experiment_id = :experiment_id AND run_id = :run_id
            AND (CAST(:tag_id AS bigint) IS NULL OR tag_id = :tag_id)
        RETURNING series_id
    """)
    parameters = {"experiment_id": experiment_id, "run_id": run_id, "tag_id": tag_id}
    return list(db.execute(statement, parameters).scalars())
