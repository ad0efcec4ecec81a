"""Queries on `time_series` by those who write points: rows made, locked, and written back.

Every look-up by name is a join that PostgreSQL cannot turn around: with no statistics of an experiment that is new, it
would compare each of its series with each that is wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Connection

from tbservice.store.pg.arrays import encode_array, unnest_rows
from tbservice.store.pg.pipeline import execute_binary, fetch_binary
from tbservice.types import ExperimentGrant, ExperimentId

RunTagIds = tuple[int, int]
"""Run id and tag id."""

SeriesKey = tuple[int, bytes]
"""Run id and the digest of the tag's name: what a writer knows before any tag id was read in its transaction."""


@dataclass(slots=True)
class SeriesState:
    """A series' row: locked until the transaction ends, and written back by `update`; or to be made by `create`.

    `tail_end` are the points that came last, as raw records in step order: newer than the tail's rows, and none of them
    yet. `rewrites` counts the batches with a step that is not after the series' last one, and `rewritten_from` is the
    least such step: whoever has read up to some step and sees the same count has everything up to there.
    """

    series_id: int
    run_id: int
    tag_id: int
    plugin: str
    data_class: int
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
    max_wall_time: float
    rewrites: int
    rewritten_from: int
    tail_end: bytes
    cold_snapshot: tuple[Any, ...] = ()  # of the row as it was locked, what few batches change


_STATE_COLUMNS: Final = """
    series_id, run_id, tag_id, plugin, data_class, metadata_wall_time, count, count_is_exact,
        sealed_count, tail_rows,
    tail_points, max_length, first_step, first_wall_time, first_value, last_step, last_wall_time,
        last_value,
    max_wall_time, rewrites, rewritten_from, tail_end
"""

_HOT_COLUMNS: Final[dict[str, str]] = {
    "count": "bigint",
    "count_is_exact": "boolean",
    "tail_rows": "integer",
    "tail_points": "bigint",
    "last_step": "bigint",
    "last_wall_time": "float8",
    "last_value": "float8",
    "max_wall_time": "float8",
    "tail_end": "bytea",
}
"""What changes with points that come after the last."""

_COLD_COLUMNS: Final[dict[str, str]] = {
    "metadata_wall_time": "float8",
    "sealed_count": "bigint",
    "max_length": "integer",
    "first_step": "bigint",
    "first_wall_time": "float8",
    "first_value": "float8",
    "rewrites": "bigint",
    "rewritten_from": "bigint",
}
"""What else changes after a series was made; its metadata, which may be long, has a statement of its own."""

_get_cold_values = attrgetter(*_COLD_COLUMNS)

_INSERT_COLUMNS: Final[dict[str, str]] = {
    "run_id": "bigint",
    "tag_id": "bigint",
    "plugin": "text",
    "data_class": "smallint",
    **_HOT_COLUMNS,
    **_COLD_COLUMNS,
}

_PLACEHOLDERS: Final = {
    "summary_metadata": "''::bytea",
    "run_id": "0",
    "tag_id": "0",
    "plugin": "''",
    "data_class": "1",
    "metadata_wall_time": "0",
    "first_step": "0",
    "first_wall_time": "0",
}
"""What no row may be without, and no row is given, where an insert always meets the row that is there."""

_KEY_COLUMNS: Final = {"run_id": "bigint", "tag_digest": "bytea"}

# Tags are joined here, so that their ids never have to be kept by a process. `LIMIT 1` keeps the order of the joins.
_TAG_ID_QUERY: Final = """
    SELECT tag_id FROM tags WHERE experiment_id = %(experiment_id)s AND name_digest = w.tag_digest
        LIMIT 1
"""


def find(
    db: Connection, experiment_id: ExperimentId, keys: Collection[SeriesKey]
) -> set[SeriesKey]:
    """Return the keys of the series that exist, without locking them."""
    statement = f"""
        SELECT w.run_id, w.tag_digest FROM {unnest_rows(_KEY_COLUMNS)} AS w
        CROSS JOIN LATERAL ({_TAG_ID_QUERY}) AS t
        CROSS JOIN LATERAL (
            SELECT FROM time_series AS s
            WHERE s.experiment_id = %(experiment_id)s AND s.run_id = w.run_id
                AND s.tag_id = t.tag_id LIMIT 1) AS s
    """  # noqa: S608 - the constants above
    return set(fetch_binary(db, statement, {"experiment_id": experiment_id, **_encode_keys(keys)}))


def lock(
    db: Connection, experiment_id: ExperimentId, keys: Collection[SeriesKey]
) -> dict[SeriesKey, SeriesState]:
    """Lock the series that exist until the transaction ends, in the order of their keys, and return their rows."""
    statement = f"""
        SELECT w.tag_digest, s.* FROM {unnest_rows(_KEY_COLUMNS)} AS w
        CROSS JOIN LATERAL ({_TAG_ID_QUERY}) AS t
        CROSS JOIN LATERAL (
            SELECT {_STATE_COLUMNS} FROM time_series AS s
            WHERE s.experiment_id = %(experiment_id)s AND s.run_id = w.run_id
                AND s.tag_id = t.tag_id
            LIMIT 1 FOR UPDATE) AS s
    """  # noqa: S608 - the constants above
    rows = fetch_binary(
        db, statement, {"experiment_id": experiment_id, **_encode_keys(sorted(keys))}
    )
    states = ((tag_digest, _make_state(row)) for tag_digest, *row in rows)
    return {(state.run_id, tag_digest): state for tag_digest, state in states}


def lock_above_threshold(
    db: Connection,
    experiment_id: ExperimentId,
    run_id: int,
    after_tag_id: int,
    rows_min: int,
    points_min: int,
    limit: int,
) -> list[SeriesState]:
    """Locks at most `limit` scalar series of a run whose tail has so many rows or points, passing over locked ones.

    In the order of their tags' ids, from after the given one on: a run with many is gone through once.
    """
    rows = fetch_binary(
        db,
        f"""
            SELECT {_STATE_COLUMNS} FROM time_series
            WHERE experiment_id = %(experiment_id)s AND run_id = %(run_id)s
                AND tag_id > %(after_tag_id)s
                AND (tail_rows >= %(rows_min)s OR tail_points >= %(points_min)s)
            ORDER BY tag_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
        """,  # noqa: S608 - the columns are the constant above
        {
            "experiment_id": experiment_id,
            "run_id": run_id,
            "after_tag_id": after_tag_id,
            "rows_min": rows_min,
            "points_min": points_min,
            "limit": limit,
        },
    )
    return [_make_state(row) for row in rows]


def _make_state(row: Sequence[Any]) -> SeriesState:
    state = SeriesState(*row)
    state.cold_snapshot = _get_cold_values(state)
    return state


def create(
    db: Connection, grant: ExperimentGrant, new: Sequence[SeriesState], metadata: Sequence[bytes]
) -> dict[RunTagIds, int]:
    """Makes the series as they stand, with their serialized metadata, and gives their ids.

    One that another transaction made meanwhile is left as it is, and out of the answer. `new` is in the order of the
    names: two who make the same series then never wait for each other in a circle.
    """
    columns = ", ".join(_INSERT_COLUMNS)
    arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in _INSERT_COLUMNS.items())
    rows = fetch_binary(
        db,
        f"""
            INSERT INTO time_series (experiment_id, workspace_id, summary_metadata, {columns})
            SELECT %(experiment_id)s, %(workspace_id)s, summary_metadata, {columns}
            FROM unnest(%(metadata)s::bytea[], {arrays}) AS u (summary_metadata, {columns})
            ON CONFLICT DO NOTHING RETURNING run_id, tag_id, series_id
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "metadata": encode_array("bytea", metadata),
            **_encode_columns(new, _INSERT_COLUMNS),
        },
    )
    return {(run_id, tag_id): series_id for run_id, tag_id, series_id in rows}


def update(db: Connection, grant: ExperimentGrant, states: Sequence[SeriesState]) -> None:
    """Writes back rows that this transaction holds locked, all but their metadata: each column costs.

    In two statements at most: one for rows that have only moved on, and one for those of which more has changed.
    """
    moved = [state for state in states if _get_cold_values(state) == state.cold_snapshot]
    changed = [state for state in states if _get_cold_values(state) != state.cold_snapshot]
    if moved:
        _write(db, grant, moved, _HOT_COLUMNS)
    if changed:
        _write(db, grant, changed, _HOT_COLUMNS | _COLD_COLUMNS)


def _write(
    db: Connection, grant: ExperimentGrant, states: Sequence[SeriesState], types: dict[str, str]
) -> None:
    """Writes some columns of rows that are there.

    As an insert that always meets its row: that can only be found by its key. In an UPDATE that joins the new values,
    PostgreSQL, which takes the series of an experiment for few, compares each of them with each value.
    """
    written = {"series_id": "bigint", **types}
    placeholders = {name: value for name, value in _PLACEHOLDERS.items() if name not in written}
    execute_binary(
        db,
        f"""
            INSERT INTO time_series (experiment_id, workspace_id,
                {", ".join([*placeholders, *written])})
            SELECT %(experiment_id)s, %(workspace_id)s,
                {", ".join([*placeholders.values(), *written])}
            FROM {unnest_rows(written)} AS u
            ON CONFLICT (experiment_id, series_id)
                DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in types)}
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **_encode_columns(states, written),
        },
    )


def update_metadata(
    db: Connection, experiment_id: ExperimentId, metadata: dict[int, bytes]
) -> None:
    """Gives series that this transaction holds, by their ids, other serialized metadata."""
    execute_binary(
        db,
        """
            UPDATE time_series SET summary_metadata = u.summary_metadata
            FROM unnest(%(series_ids)s::bigint[], %(metadata)s::bytea[]) AS u (series_id, summary_metadata)
            WHERE experiment_id = %(experiment_id)s AND time_series.series_id = u.series_id
                AND time_series.series_id = ANY (%(series_ids)s::bigint[])
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": encode_array("bigint", list(metadata)),
            "metadata": encode_array("bytea", list(metadata.values())),
        },
    )


def _encode_keys(keys: Collection[SeriesKey]) -> dict[str, Any]:
    run_ids, tag_digests = zip(*keys, strict=True)
    return {
        "run_id": encode_array("bigint", run_ids),
        "tag_digest": encode_array("bytea", tag_digests),
    }


def _encode_columns(states: Sequence[SeriesState], types: dict[str, str]) -> dict[str, Any]:
    return {
        name: encode_array(kind, [getattr(state, name) for state in states])
        for name, kind in types.items()
    }
