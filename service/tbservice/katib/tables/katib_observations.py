"""Queries on `katib_observations`: the logs of trials, as they were reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, text

from tbservice.db.arrays import decode_float8s, decode_int8s, encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.pipeline import execute_binary, fetch_binary
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import Booleans, ExperimentId, Float64s, Int64s

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogColumns:
    """Logs of one trial in order of arrival, as columns; `received_at` in seconds.

    `numbers` and `steps` mean nothing where `is_number` and `has_step` are false.
    """

    tag_ids: Int64s
    times: Int64s
    received_at: Float64s
    values: Sequence[bytes]
    numbers: Float64s
    is_number: Booleans
    steps: Int64s
    has_step: Booleans


_COLUMNS: Final = {
    "seq": "bigint",
    "tag_id": "bigint",
    "time": "bigint",
    "received_at": "float8",
    "value": "bytea",
    "number": "float8",
    "is_number": "boolean",
    "step": "bigint",
    "has_step": "boolean",
}


def insert(
    db: Connection, grant: AppendGrant, run_id: int, first_seq: int, logs: LogColumns
) -> None:
    """Insert logs after the `first_seq` that the trial has."""
    count = len(logs.values)
    execute_binary(
        db,
        f"""
            INSERT INTO katib_observations (experiment_id, run_id, workspace_id, seq, tag_id, time,
                received_at, value, number, step)
            SELECT e.experiment_id, %(run_id)s, e.workspace_id, seq, tag_id, time, received_at,
                value, CASE WHEN is_number THEN number END, CASE WHEN has_step THEN step END
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(_COLUMNS)} AS u
        """,  # noqa: S608 - the columns are the constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "run_id": run_id,
            "seq": encode_array("bigint", np.arange(first_seq, first_seq + count)),
            "tag_id": encode_array("bigint", logs.tag_ids),
            "time": encode_array("bigint", logs.times),
            "received_at": encode_array("float8", logs.received_at),
            "value": encode_array("bytea", logs.values),
            "number": encode_array("float8", logs.numbers),
            "is_number": encode_array("boolean", logs.is_number),
            "step": encode_array("bigint", logs.steps),
            "has_step": encode_array("boolean", logs.has_step),
        },
    )


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Filter of a trial's logs: by metric if it is not None, and by a closed range of times."""

    tag_id: int | None = None
    first: int = INT64_MIN
    last: int = INT64_MAX


_FILTER: Final = """
    WHERE o.experiment_id = %(experiment_id)s AND o.run_id = %(run_id)s
        AND (%(tag_id)s::bigint IS NULL OR o.tag_id = %(tag_id)s)
        AND o.time BETWEEN %(first)s AND %(last)s
"""


def measure(
    db: Connection, experiment_id: ExperimentId, run_id: int, selected: LogFilter
) -> tuple[int, int]:
    """Return the number of logs, and the bytes of their values."""
    statement = f"""
        SELECT count(*), coalesce(sum(octet_length(value)), 0)::bigint
        FROM katib_observations AS o {_FILTER}
    """  # noqa: S608 - the constant above
    ((count, size),) = fetch_binary(db, statement, _encode(experiment_id, run_id, selected))
    return count, size


def read(
    db: Connection, experiment_id: ExperimentId, run_id: int, selected: LogFilter
) -> list[tuple[int, int, bytes]]:
    """Return time, tag id of the metric, and value of each log, by time, then by arrival.

    Without the tag's name: joined with a new experiment's tags, PostgreSQL may compare all logs
    with all tags (docs/decisions/0007).
    """
    statement = f"""
        SELECT o.time, o.tag_id, o.value FROM katib_observations AS o {_FILTER}
        ORDER BY o.time, o.seq
    """  # noqa: S608 - the constant above
    return fetch_binary(db, statement, _encode(experiment_id, run_id, selected))


def _encode(experiment_id: ExperimentId, run_id: int, selected: LogFilter) -> dict[str, Any]:
    return {
        "experiment_id": experiment_id,
        "run_id": run_id,
        "tag_id": selected.tag_id,
        "first": selected.first,
        "last": selected.last,
    }


def read_arrivals(
    db: Connection, experiment_id: ExperimentId, run_id: int
) -> list[tuple[int, int, float, bytes]]:
    """Return tag id, time, time of receipt and value of each log, in the order of arrival."""
    statement = """
        SELECT tag_id, time, received_at, value FROM katib_observations
        WHERE experiment_id = %(experiment_id)s AND run_id = %(run_id)s ORDER BY seq
    """
    return fetch_binary(db, statement, {"experiment_id": experiment_id, "run_id": run_id})


def read_first(
    db: Connection,
    experiment_id: ExperimentId,
    name_digests: Sequence[bytes],
    metric_digest: bytes,
    limit: int,
    total: int,
) -> dict[bytes, Float64s]:
    """Return the first `limit` logs of one metric of each trial, by time, then by arrival.

    As numbers, NaN for a text, by the SHA-256 of the trial's name; not more than `total` of all
    trials, and nothing for a trial that has none.
    """
    statement = """
        SELECT name_digest, string_agg(float8send(number), ''::bytea ORDER BY time, seq)
        FROM (
            SELECT t.name_digest, o.time, o.seq, o.number
            FROM katib_trials AS t
            CROSS JOIN LATERAL (
                SELECT time, seq, coalesce(number, 'NaN') AS number FROM katib_observations
                WHERE experiment_id = %(experiment_id)s AND run_id = t.run_id AND tag_id =
                    (SELECT tag_id FROM tags WHERE experiment_id = %(experiment_id)s
                        AND name_digest = %(metric_digest)s)
                ORDER BY time, seq LIMIT %(limit)s) AS o
            WHERE t.experiment_id = %(experiment_id)s
                AND t.name_digest = ANY (%(name_digests)s::bytea[])
            LIMIT %(total)s) AS logs
        GROUP BY name_digest
    """
    parameters = {
        "experiment_id": experiment_id,
        "name_digests": encode_array("bytea", list(name_digests)),
        "metric_digest": metric_digest,
        "limit": limit,
        "total": total,
    }
    rows = fetch_binary(db, statement, parameters)
    return {digest: decode_float8s(numbers) for digest, numbers in rows}


@dataclass(frozen=True, slots=True)
class DeletedLogs:
    """Logs of one metric that were scalar points, as columns; `received_at` in seconds."""

    steps: Int64s
    times: Int64s
    received_at: Float64s
    numbers: Float64s


def delete_returning(
    db: Connection, experiment_id: ExperimentId, run_id: int
) -> dict[int, DeletedLogs]:
    """Delete all logs of a trial; return those that were scalar points, by tag id."""
    rows = fetch_binary(
        db,
        """
            WITH deleted AS (
                DELETE FROM katib_observations
                WHERE experiment_id = %(experiment_id)s AND run_id = %(run_id)s
                RETURNING tag_id, step, time, received_at, number)
            SELECT tag_id, string_agg(int8send(step), ''::bytea ORDER BY step),
                string_agg(int8send(time), ''::bytea ORDER BY step),
                string_agg(float8send(received_at), ''::bytea ORDER BY step),
                string_agg(float8send(number), ''::bytea ORDER BY step)
            FROM deleted WHERE step IS NOT NULL GROUP BY tag_id
        """,
        {"experiment_id": experiment_id, "run_id": run_id},
    )
    return {
        tag_id: DeletedLogs(
            decode_int8s(steps), decode_int8s(times), decode_float8s(at), decode_float8s(numbers)
        )
        for tag_id, steps, times, at, numbers in rows
    }


def delete_run(db: Connection, experiment_id: ExperimentId, run_id: int) -> None:
    """Delete all logs of a trial, whose run is deleted."""
    statement = text("""
        DELETE FROM katib_observations WHERE experiment_id = :experiment_id AND run_id = :run_id
    """)
    db.execute(statement, {"experiment_id": experiment_id, "run_id": run_id})
