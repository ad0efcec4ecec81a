"""Statements of each batch in the forms that a cluster (Citus) plans at the least price.

Citus plans each statement when it is executed. One of a single table and experiment, without joins,
costs half of any other: so streams and runs, tags and series are read one after the other, and new
values come as arrays that are searched. The forms for plain PostgreSQL are in `upload_streams` and
`series_rows`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.pipeline import execute_binary, fetch_binary, pipeline
from tbservice.series.tables.runs_tags import hash_name
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId

_EXTRA_ROWS_FACTOR: Final = 2
"""Times the series asked for that are locked at most, if each run is combined with each tag."""

_UPDATE_ROWS_MAX: Final = 1_000
"""Rows that a statement updates, so that its text and its parameters have a bound."""

_PLACE: Final = "width_bucket(series_id, %(series_id)s::bigint[])"
"""The place of a row's series id among the ascending ones that are updated, from 1 on."""


def lock_streams(
    db: Connection, experiment_id: ExperimentId, runs: Mapping[bytes, str]
) -> list[tuple[Any, ...]]:
    """Read streams, then lock their runs (KEY SHARE); return rows as `upload_streams` wants them.

    A run that was deleted between the two statements is missing, and so are its streams then.

    Args:
        db: A transaction.
        experiment_id: The experiment.
        runs: The name of each stream's run, by the stream's digest.
    """
    names = {hash_name(name) for name in runs.values()}
    with pipeline(db):
        streams = execute_binary(
            db,
            """
                SELECT stream_digest, run_id, cursor, checksum, skipped, file_name,
                    first_record_digest, generation, filters_digest
                FROM upload_streams
                WHERE experiment_id = %(experiment_id)s
                    AND stream_digest = ANY (%(digests)s::bytea[])
            """,
            {"experiment_id": experiment_id, "digests": encode_array("bytea", list(runs))},
        )
        locked = execute_binary(
            db,
            """
                SELECT run_id, last_start_time > start_time, name FROM runs
                WHERE experiment_id = %(experiment_id)s
                    AND name_digest = ANY (%(names)s::bytea[])
                ORDER BY run_id FOR KEY SHARE
            """,
            {"experiment_id": experiment_id, "names": encode_array("bytea", sorted(names))},
        )
    by_id = {run_id: of_run for run_id, *of_run in locked.rows()}
    return [(*row[:5], *by_id[row[1]], *row[5:]) for row in streams.rows() if row[1] in by_id]


def lock_series(
    db: Connection, experiment_id: ExperimentId, columns: str, keys: Collection[tuple[int, bytes]]
) -> dict[tuple[int, bytes], tuple[Any, ...]]:
    """Lock the existing series until the transaction ends; return their columns by key.

    They are locked by run and then by tag, each in the order of ids, by all transactions.

    Args:
        db: A transaction.
        experiment_id: The experiment.
        columns: Columns of `time_series`, of which run_id and tag_id are the second and third.
        keys: Run ids and the SHA-256 of tags' names.
    """
    tags = _find_tags(db, experiment_id, {digest for _, digest in keys})
    digests = {tag_id: digest for digest, tag_id in tags.items()}
    pairs = sorted((run_id, tags[digest]) for run_id, digest in keys if digest in tags)
    if not pairs:
        return {}
    run_ids, tag_ids = ({pair[place] for pair in pairs} for place in (0, 1))
    if len(run_ids) * len(tag_ids) <= _EXTRA_ROWS_FACTOR * len(pairs):
        rows = _lock_combinations(db, experiment_id, columns, sorted(run_ids), sorted(tag_ids))
    else:
        rows = _lock_pairs(db, experiment_id, columns, pairs)
    asked = set(pairs)
    return {(row[1], digests[row[2]]): row for row in rows if (row[1], row[2]) in asked}


def _find_tags(
    db: Connection, experiment_id: ExperimentId, digests: Collection[bytes]
) -> dict[bytes, int]:
    rows = fetch_binary(
        db,
        """
            SELECT name_digest, tag_id FROM tags
            WHERE experiment_id = %(experiment_id)s AND name_digest = ANY (%(digests)s::bytea[])
        """,
        {"experiment_id": experiment_id, "digests": encode_array("bytea", sorted(digests))},
    )
    return dict(rows)


def _lock_combinations(
    db: Connection,
    experiment_id: ExperimentId,
    columns: str,
    run_ids: Sequence[int],
    tag_ids: Sequence[int],
) -> list[tuple[Any, ...]]:
    return fetch_binary(
        db,
        f"""
            SELECT {columns} FROM time_series
            WHERE experiment_id = %(experiment_id)s AND run_id = ANY (%(run_ids)s::bigint[])
                AND tag_id = ANY (%(tag_ids)s::bigint[])
            ORDER BY run_id, tag_id FOR UPDATE
        """,  # noqa: S608 - called with a constant
        {
            "experiment_id": experiment_id,
            "run_ids": encode_array("bigint", run_ids),
            "tag_ids": encode_array("bigint", tag_ids),
        },
    )


def _lock_pairs(
    db: Connection, experiment_id: ExperimentId, columns: str, pairs: Sequence[tuple[int, int]]
) -> list[tuple[Any, ...]]:
    run_ids, tag_ids = zip(*pairs, strict=True)
    return fetch_binary(
        db,
        f"""
            SELECT s.* FROM {unnest_rows({"run_id": "bigint", "tag_id": "bigint"})} AS w
            CROSS JOIN LATERAL (
                SELECT {columns} FROM time_series AS s
                WHERE s.experiment_id = %(experiment_id)s AND s.run_id = w.run_id
                    AND s.tag_id = w.tag_id
                LIMIT 1 FOR UPDATE) AS s
        """,  # noqa: S608 - called with a constant
        {
            "experiment_id": experiment_id,
            "run_id": encode_array("bigint", run_ids),
            "tag_id": encode_array("bigint", tag_ids),
        },
    )


def update_series(
    db: Connection, grant: ExperimentGrant, rows: Sequence[Any], types: Mapping[str, str]
) -> None:
    """Update columns of locked series.

    Args:
        db: A transaction.
        grant: Grant on the experiment.
        rows: Objects with `series_id` and the columns as attributes.
        types: SQL type by column.
    """
    ordered = sorted(rows, key=attrgetter("series_id"))
    for start in range(0, len(ordered), _UPDATE_ROWS_MAX):
        page = ordered[start : start + _UPDATE_ROWS_MAX]
        values = {name: [getattr(row, name) for row in page] for name in types}
        columns = [_make_column(name, types[name], values[name]) for name in types]
        statement = f"""
            UPDATE time_series SET {", ".join(column.assignment for column in columns)}
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_id)s::bigint[])
        """  # noqa: S608 - called with constants
        parameters = {"experiment_id": grant.experiment_id} | {
            "series_id": encode_array("bigint", [row.series_id for row in page])
        }
        for column in columns:
            parameters |= column.parameters
        execute_binary(db, statement, parameters)


class _Column(NamedTuple):
    assignment: str
    parameters: dict[str, Any]


def _make_column(name: str, kind: str, values: Sequence[Any]) -> _Column:
    """Return how a column is set: to one value, or to that at the place of the row's series id.

    Citus writes parameters into its statements as text, which arrays of byte strings make long.
    """
    if kind == "bytea":
        assignment = f"""
            {name} = substring(%({name})s::bytea
                FROM (%({name}_start)s::integer[])[{_PLACE}]
                FOR (%({name}_length)s::integer[])[{_PLACE}])
        """
        return _Column(assignment, _concatenate(name, values))
    first = values[0]
    if isinstance(first, int) and values.count(first) == len(values):
        return _Column(f"{name} = %({name})s::{kind}", {name: first})
    # Citus 14.0.1 crashes if an assigned value is an element of an array; greatest(x) is x.
    assignment = f"{name} = greatest((%({name})s::{kind}[])[{_PLACE}])"
    return _Column(assignment, {name: encode_array(kind, values)})


class BytesColumn(NamedTuple):
    """A column of `unnest_rows` with byte strings: element types, its value, and parameters."""

    types: dict[str, str]
    value: str
    parameters: dict[str, Any]


def make_bytes_column(name: str, values: Sequence[bytes]) -> BytesColumn:
    """Return a column of byte strings for an INSERT … SELECT from `unnest_rows`.

    They are sent as one string, of which each row takes its part: see `_make_column`.
    """
    return BytesColumn(
        {f"{name}_start": "integer", f"{name}_length": "integer"},
        f"substring(%({name})s::bytea FROM {name}_start FOR {name}_length)",
        _concatenate(name, values),
    )


def _concatenate(name: str, values: Sequence[bytes]) -> dict[str, Any]:
    """Return one byte string, and where in it each value starts (from 1 on), and its length."""
    starts = list(accumulate(map(len, values[:-1]), initial=1))
    return {
        name: b"".join(values),
        f"{name}_start": encode_array("integer", starts),
        f"{name}_length": encode_array("integer", list(map(len, values))),
    }
