"""Queries on `time_series` for writers of points: create, lock and update rows.

Look-ups by name are LATERAL joins with LIMIT 1, which PostgreSQL cannot reorder: without statistics
of a new experiment it would compare all its series with all names looked up
(docs/decisions/0007). The module is long because its statements share their lists of columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.cluster.citus import ANY_EXPERIMENT, Forms
from tbservice.db.pipeline import execute_binary, fetch_binary
from tbservice.series.tables import cluster_writes
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId

RunTagIds = tuple[int, int]
"""Run id and tag id."""

SeriesKey = tuple[int, bytes]
"""Run id and SHA-256 of the tag's name: known before the transaction has read tag ids."""


class SeriesRow(NamedTuple):
    """The columns of a series that writers of points read: locked, to be written, or to be created.

    `tail_end` is the inline buffer: the last points as raw records in step order, later than the
    write buffer. `rewrites` counts the batches with a step at or before the series' last step, and
    `rewritten_from` is the lowest such step: a reader that has all points up to a step, and sees
    the same count again, still has all of them. `summary` is packed (`summary_format.py`), empty
    for unknown.
    """

    series_id: int
    run_id: int
    tag_id: int
    plugin: str
    data_class: int

    # Columns that points after the last step leave as they are: _COLD_COLUMNS.
    metadata_wall_time: float
    sealed_count: int
    max_length: int
    first_step: int
    first_wall_time: float
    first_value: float | None
    rewrites: int
    rewritten_from: int

    # Columns that they change: _HOT_COLUMNS.
    count: int  # type: ignore[assignment] # hides a method of tuples
    count_is_exact: bool
    tail_rows: int
    tail_points: int
    last_step: int
    last_wall_time: float
    last_value: float | None
    max_wall_time: float
    tail_end: bytes
    summary: bytes = b""

    def with_hot(self, *values: Any) -> SeriesRow:
        """Return the row with other values of all hot columns: in a third of `_replace`'s time."""
        return SeriesRow._make(self[: _COLD.stop] + values)


_ROW_COLUMNS: Final = ", ".join(SeriesRow._fields)

_HAS_SUMMARY: Final = "time_series has summary"
"""Key of `Connection.info`: whether the schema has the column, which came with 0014."""

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
    "summary": "bytea",
}
"""Columns that points after the last step change."""

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
"""Other columns that may change. Metadata, which may be long, has its own statement."""

_COLD: Final = slice(
    SeriesRow._fields.index("metadata_wall_time"), SeriesRow._fields.index("count")
)
"""Place of the cold columns in a row. A comparison of two slices takes a fifth of one by names."""

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
"""Values for NOT NULL columns of an upsert that always finds its row, and never writes them."""

_KEY_COLUMNS: Final = {"run_id": "bigint", "tag_digest": "bytea"}

# Tags are joined here, so that processes need not cache their ids (docs/decisions/0013).
_TAG_ID_QUERY: Final = """
    SELECT tag_id FROM tags WHERE experiment_id = {} AND name_digest = w.tag_digest LIMIT 1
"""


def _find_tag(db: Connection) -> str:
    return _TAG_ID_QUERY.format(ANY_EXPERIMENT.of(db))


def find(
    db: Connection, experiment_id: ExperimentId, keys: Collection[SeriesKey]
) -> dict[SeriesKey, float]:
    """Return the newest wall time, also of metadata, of each series that exists; locks nothing."""
    statement = f"""
        SELECT w.run_id, w.tag_digest, s.wall_time FROM {unnest_rows(_KEY_COLUMNS)} AS w
        CROSS JOIN LATERAL ({_find_tag(db)}) AS t
        CROSS JOIN LATERAL (
            SELECT GREATEST(s.metadata_wall_time, s.max_wall_time) AS wall_time
            FROM time_series AS s
            WHERE s.experiment_id = %(experiment_id)s AND s.run_id = w.run_id
                AND s.tag_id = t.tag_id LIMIT 1) AS s
    """  # noqa: S608 - the constants above
    rows = fetch_binary(db, statement, {"experiment_id": experiment_id, **_encode_keys(keys)})
    return {(run_id, tag_digest): wall_time for run_id, tag_digest, wall_time in rows}


def lock(
    db: Connection, experiment_id: ExperimentId, keys: Collection[SeriesKey]
) -> dict[SeriesKey, SeriesRow]:
    """Lock the existing series until the transaction ends and return their rows by key.

    Rows are locked in the order of the keys, as by all transactions: so they cannot deadlock.
    """
    found = _LOCK.of(db)(db, experiment_id, _row_columns(db), keys)
    return {key: SeriesRow._make(columns) for key, columns in found.items()}


def _lock_rows(
    db: Connection, experiment_id: ExperimentId, columns: str, keys: Collection[SeriesKey]
) -> dict[SeriesKey, tuple[Any, ...]]:
    statement = f"""
        SELECT w.tag_digest, s.* FROM {unnest_rows(_KEY_COLUMNS)} AS w
        CROSS JOIN LATERAL ({_find_tag(db)}) AS t
        CROSS JOIN LATERAL (
            SELECT {columns} FROM time_series AS s
            WHERE s.experiment_id = %(experiment_id)s AND s.run_id = w.run_id
                AND s.tag_id = t.tag_id
            LIMIT 1 FOR UPDATE) AS s
    """  # noqa: S608 - the constants above
    rows = fetch_binary(
        db, statement, {"experiment_id": experiment_id, **_encode_keys(sorted(keys))}
    )
    return {(row[2], row[0]): row[1:] for row in rows}


_LOCK: Final = Forms(_lock_rows, cluster_writes.lock_series)


def lock_above_threshold(
    db: Connection,
    experiment_id: ExperimentId,
    run_id: int,
    after_tag_id: int,
    rows_min: int,
    points_min: int,
    limit: int,
) -> list[SeriesRow]:
    """Lock up to `limit` series of a run that have enough to compact; skip locked ones.

    Args:
        db: A transaction, until whose end they are locked.
        experiment_id: The experiment.
        run_id: The run.
        after_tag_id: The last tag id of the previous call; series are locked by ascending tag id.
        rows_min: Rows in the write buffer, from which on a series is locked.
        points_min: Uncompacted points, from which on a series is locked as well.
        limit: Series at most.
    """
    rows = fetch_binary(
        db,
        f"""
            SELECT {_row_columns(db)} FROM time_series
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
    return [SeriesRow._make(row) for row in rows]


def create(
    db: Connection, grant: ExperimentGrant, new: Sequence[SeriesRow], metadata: Sequence[bytes]
) -> dict[RunTagIds, int]:
    """Insert series and return their ids by (run id, tag id).

    A series that another transaction has created meanwhile is not changed, and is missing in the
    result.

    Args:
        db: A transaction of the grant's workspace.
        grant: Grant on the experiment.
        new: Rows in the order of their names, which all transactions use: so they cannot deadlock.
        metadata: The serialized summary metadata of each row.
    """
    has_summaries(db)
    types = _without_missing(db, _INSERT_COLUMNS)
    if (ids := citus.new_ids(db, grant, len(new))) is not None:
        types = {"series_id": "bigint", **types}
        new = [row._replace(series_id=id_) for row, id_ in zip(new, ids, strict=True)]
    columns = ", ".join(types)
    arrays = ", ".join(f"%({name})s::{kind}[]" for name, kind in types.items())
    rows = fetch_binary(
        db,
        f"""
            INSERT INTO time_series (experiment_id, workspace_id, summary_metadata, {columns})
            SELECT e.experiment_id, e.workspace_id, summary_metadata, {columns}
            FROM {citus.insert_source(db)} AS e
            CROSS JOIN unnest(%(metadata)s::bytea[], {arrays}) AS u (summary_metadata, {columns})
            ON CONFLICT DO NOTHING RETURNING run_id, tag_id, series_id
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "metadata": encode_array("bytea", metadata),
            **_encode_columns(new, types),
        },
    )
    return {(run_id, tag_id): series_id for run_id, tag_id, series_id in rows}


def update(
    db: Connection, grant: ExperimentGrant, changes: Iterable[tuple[SeriesRow, SeriesRow]]
) -> None:
    """Update rows from what this transaction has locked to what they become, except their metadata.

    Each column costs time. So rows in which only hot columns change are updated by a statement of
    their own.
    """
    appended: list[SeriesRow] = []
    changed: list[SeriesRow] = []
    for before, after in changes:
        is_appended = before[_COLD] == after[_COLD]
        (appended if is_appended else changed).append(after)
    if appended:
        _WRITE.of(db)(db, grant, appended, _without_missing(db, _HOT_COLUMNS))
    if changed:
        _WRITE.of(db)(db, grant, changed, _without_missing(db, _HOT_COLUMNS | _COLD_COLUMNS))


def _write(
    db: Connection, grant: ExperimentGrant, rows: Sequence[SeriesRow], types: dict[str, str]
) -> None:
    """Update some columns of existing rows, with an INSERT … ON CONFLICT that always conflicts.

    It can only find a row by primary key. For an UPDATE that joins the new values, PostgreSQL may
    choose a plan that compares all series of the experiment with all values
    (docs/decisions/0010).
    """
    written = {"series_id": "bigint", **types}
    placeholders = {name: value for name, value in _PLACEHOLDERS.items() if name not in written}
    execute_binary(
        db,
        f"""
            INSERT INTO time_series (experiment_id, workspace_id,
                {", ".join([*placeholders, *written])})
            SELECT e.experiment_id, e.workspace_id,
                {", ".join([*placeholders.values(), *written])}
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(written)} AS u
            ON CONFLICT (experiment_id, series_id)
                DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in types)}
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **_encode_columns(rows, written),
        },
    )


_WRITE: Final = Forms(_write, cluster_writes.update_series)


def has_summaries(db: Connection) -> bool:
    """Return whether the schema has the column `summary`; a migration may add it meanwhile."""
    if not db.info.get(_HAS_SUMMARY):
        statement = """
            SELECT EXISTS (SELECT FROM pg_attribute
                WHERE attrelid = CAST('time_series' AS regclass) AND attname = 'summary')
        """
        db.info[_HAS_SUMMARY] = bool(db.execute(text(statement)).scalar())
    return bool(db.info[_HAS_SUMMARY])


def _row_columns(db: Connection) -> str:
    """Return the columns of `SeriesRow` to select; looks once whether the schema has the last."""
    return _ROW_COLUMNS if has_summaries(db) else f"{_ROW_COLUMNS[: -len('summary')]}''::bytea"


def _without_missing(db: Connection, types: dict[str, str]) -> dict[str, str]:
    """Return the columns that the schema has; the row was locked or is created: no other look."""
    if db.info.get(_HAS_SUMMARY):
        return types
    return {name: kind for name, kind in types.items() if name != "summary"}


def read_metadata(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], bytes_max: int
) -> dict[int, bytes]:
    """Return the serialized metadata of existing series by id, of as many as fit `bytes_max`.

    Without `bytes_max` a small request could make a worker read a lot into memory.
    """
    rows = fetch_binary(
        db,
        """
            SELECT series_id, summary_metadata FROM (
                SELECT series_id, summary_metadata,
                    sum(octet_length(summary_metadata)) OVER (ORDER BY series_id) AS bytes
                FROM time_series
                WHERE experiment_id = %(experiment_id)s
                    AND series_id = ANY (%(series_ids)s::bigint[])) AS s
            WHERE bytes <= %(bytes_max)s
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": encode_array("bigint", series_ids),
            "bytes_max": bytes_max,
        },
    )
    return {series_id: bytes(metadata) for series_id, metadata in rows}


def update_metadata(
    db: Connection, experiment_id: ExperimentId, metadata: dict[int, bytes]
) -> None:
    """Replace the serialized metadata of series that this transaction has locked, by series id."""
    execute_binary(
        db,
        """
            UPDATE time_series SET summary_metadata = u.summary_metadata
            FROM unnest(%(series_ids)s::bigint[], %(metadata)s::bytea[])
                AS u (series_id, summary_metadata)
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


def _encode_columns(rows: Sequence[SeriesRow], types: dict[str, str]) -> dict[str, Any]:
    columns = dict(zip(SeriesRow._fields, zip(*rows, strict=True), strict=True))
    return {name: encode_array(kind, columns[name]) for name, kind in types.items()}
