"""Queries on `time_series`: lists of series and of what their rows say about their points."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.db.arrays import decode_int8s, encode_array
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables import runs_tags
from tbservice.types.identifiers import ExperimentId, Int64s
from tbservice.types.sampling import Selection
from tbservice.types.series import Series
from tbwire.points import DataClass


def build_conditions(
    selection: Selection, run_ids: Iterable[int], tag_ids: Iterable[int]
) -> tuple[str, dict[str, Any]]:
    """Return conditions, each after an AND, and their parameters.

    Names are not joined in SQL: PostgreSQL has no statistics of a new experiment yet, estimates it
    as small, and would scan all tags for each series.

    Args:
        selection: The selection.
        run_ids: Ids of the selection's runs; ignored if it selects all runs.
        tag_ids: Ids of its tags; ignored if it selects all tags.
    """
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
        parameters["run_ids"] = list(run_ids)
    if selection.tags is not None:
        conditions += " AND tag_id = ANY (%(tag_ids)s::bigint[])"
        parameters["tag_ids"] = list(tag_ids)
    # PostgreSQL treats NaN as equal to itself and greater than all numbers (manual, 8.1.3).
    if selection.last_value_min is not None:
        conditions += " AND last_value >= %(last_value_min)s AND last_value <> 'NaN'"
        parameters["last_value_min"] = selection.last_value_min
    if selection.last_value_max is not None:
        conditions += " AND last_value <= %(last_value_max)s AND last_value <> 'NaN'"
        parameters["last_value_max"] = selection.last_value_max
    return conditions, parameters


_DATA_CLASSES: Final = {int(data_class): data_class for data_class in DataClass}


def list_series(db: Connection, experiment_id: ExperimentId, selection: Selection) -> list[Series]:
    """Return the selected series, by run and then by tag, each in the order of creation."""
    resolved = resolve_selection(db, experiment_id, selection)
    return _list_where(db, experiment_id, resolved, "", "run_id, tag_id", {})


def list_page(
    db: Connection,
    experiment_id: ExperimentId,
    selection: Selection,
    after: tuple[int, int],
    limit: int,
) -> list[Series]:
    """Return the first `limit` selected series after `after`, by (data class, id)."""
    parameters = {"after_class": after[0], "after_id": after[1], "limit": limit}
    condition = "AND (data_class, series_id) > (%(after_class)s, %(after_id)s)"
    resolved = resolve_selection(db, experiment_id, selection)
    return _list_where(
        db, experiment_id, resolved, condition, "data_class, series_id LIMIT %(limit)s", parameters
    )


def list_after(
    db: Connection,
    experiment_id: ExperimentId,
    resolved: ResolvedSelection,
    after: int,
    limit: int,
) -> list[Series]:
    """Return the first `limit` selected series with an id above `after`, by id.

    Each page is a range of the primary key, and names are resolved before the first: so all pages
    of 400,000 series take as long as one listing. Series of runs and tags that were created since
    then are left out.
    """
    condition = "AND series_id > %(after)s"
    parameters = {"after": after, "limit": limit}
    return _list_where(
        db, experiment_id, resolved, condition, "series_id LIMIT %(limit)s", parameters
    )


def _list_where(
    db: Connection,
    experiment_id: ExperimentId,
    resolved: ResolvedSelection,
    condition: str,
    order: str,
    parameters: dict[str, int],
) -> list[Series]:
    rows = fetch_binary(  # several times as fast as SQLAlchemy with a hundred thousand rows
        db,
        f"""
            SELECT series_id, run_id, run_id, tag_id, plugin, data_class, summary_metadata,
                count, count_is_exact, sealed_count, max_length,
                first_step, first_wall_time, first_value,
                last_step, last_wall_time, last_value,
                GREATEST(max_wall_time, last_wall_time)
            FROM time_series
            WHERE experiment_id = %(experiment_id)s {resolved.conditions} {condition}
            ORDER BY {order}
        """,  # noqa: S608 - the conditions are constants that depend on the selection
        {"experiment_id": experiment_id, **resolved.parameters, **parameters},
    )
    return [
        Series(
            *[
                *row[:2],
                resolved.runs[row[2]],
                resolved.tags[row[3]],
                row[4],
                _DATA_CLASSES[row[5]],
                *row[6:],
            ]
        )
        for row in rows
        if row[2] in resolved.runs and row[3] in resolved.tags
    ]


@dataclass(frozen=True, slots=True)
class ResolvedSelection:
    """A selection as conditions on `time_series`, their parameters, and the names by id."""

    conditions: str
    parameters: dict[str, Any]
    runs: dict[int, str]
    tags: dict[int, str]


def resolve_selection(
    db: Connection, experiment_id: ExperimentId, selection: Selection
) -> ResolvedSelection:
    """Return the selection with the ids and names of its runs and tags."""
    runs = runs_tags.list_run_names(db, experiment_id, selection.runs)
    tags = runs_tags.list_tag_names(db, experiment_id, selection.tags)
    return ResolvedSelection(*build_conditions(selection, runs, tags), runs, tags)


@dataclass(frozen=True, slots=True)
class TagGroupRow:
    """The series of one run that share plugin, data class and metadata.

    `lengths_max` has the number of blobs of the longest sequence for each of `tag_ids`.
    """

    run_id: int
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    tag_ids: Int64s
    lengths_max: Int64s


def list_tag_groups(
    db: Connection, experiment_id: ExperimentId, kinds: Collection[tuple[str, DataClass]]
) -> list[TagGroupRow]:
    """Return the series of these kinds (plugin and data class) in groups, by run."""
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
    """Return the tag ids of each run by run id; runs in order of creation, tags in no order."""
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
    """Return the kinds of series (plugin and data class) of the experiment, by plugin."""
    statement = text("""
        SELECT DISTINCT plugin, data_class FROM time_series WHERE experiment_id = :experiment_id
        ORDER BY plugin, data_class
    """)
    rows = db.execute(statement, {"experiment_id": experiment_id})
    return [(plugin, _DATA_CLASSES[data_class]) for plugin, data_class in rows]


def list_run_tags(db: Connection, experiment_id: ExperimentId, run_id: int) -> list[int]:
    """Return the ids of a run's tags."""
    statement = text("""
        SELECT tag_id FROM time_series WHERE experiment_id = :experiment_id AND run_id = :run_id
    """)
    parameters = {"experiment_id": experiment_id, "run_id": run_id}
    return list(db.execute(statement, parameters).scalars())


def delete(
    db: Connection, experiment_id: ExperimentId, run_id: int, tag_id: int | None
) -> list[int]:
    """Delete the rows of a run's series, or of one tag, and return their ids.

    The caller deletes their points.
    """
    statement = text("""
        DELETE FROM time_series WHERE experiment_id = :experiment_id AND run_id = :run_id
            AND (CAST(:tag_id AS bigint) IS NULL OR tag_id = :tag_id)
        RETURNING series_id
    """)
    parameters = {"experiment_id": experiment_id, "run_id": run_id, "tag_id": tag_id}
    return list(db.execute(statement, parameters).scalars())


def delete_by_id(db: Connection, experiment_id: ExperimentId, series_ids: Collection[int]) -> None:
    """Delete the rows of these series. The caller deletes their points."""
    statement = text("""
        DELETE FROM time_series WHERE experiment_id = :experiment_id
            AND series_id = ANY (CAST(:series_ids AS bigint[]))
    """)
    parameters = {
        "experiment_id": experiment_id,
        "series_ids": encode_array("bigint", list(series_ids)),
    }
    db.execute(statement, parameters)
