"""Queries on `time_series` for HParams: records of sessions, and last values of their metrics.

Results are packed into one value per column: with 100,000 sessions, fetching a row for each would
take longer than the query. No statement joins names or depends on statistics (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.db.arrays import decode_float8s, decode_int8s, encode_array
from tbservice.db.pipeline import PendingResult, execute_binary, fetch_binary, pipeline, set_locals
from tbservice.series.tables.runs_tags import hash_name
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire import hparams
from tbwire.points import DataClass

DIGEST_BYTES: Final = 16
"""Bytes of a record's digest: two hashes of 64 bits, which tell whether it has changed.

SHA-256 takes half of the time of listing 10,000 records. Records that were made to have equal
hashes would be taken for each other in their own experiment, and in no other one.
"""

_RECORD_TAGS: Final = (hparams.EXPERIMENT_TAG, hparams.SESSION_START_TAG)

_RECORDS: Final = """
    SELECT string_agg(int8send(series_id), ''::bytea), string_agg(int8send(run_id), ''::bytea),
        string_agg(int8send(tag_id), ''::bytea),
        string_agg(float8send(metadata_wall_time), ''::bytea),
        string_agg(int8send(octet_length(summary_metadata)), ''::bytea),
        string_agg(int8send(hashbyteaextended(summary_metadata, 0))
            || int8send(hashbyteaextended(summary_metadata, 1)), ''::bytea)
    FROM time_series
    WHERE experiment_id = %(experiment_id)s AND plugin = 'hparams' AND tag_id = ANY (ARRAY(
        SELECT tag_id FROM tags
        WHERE experiment_id = %(experiment_id)s AND name_digest = ANY (%(digests)s)))
"""

_RUNS: Final = """
    SELECT string_agg(int8send(run_id), ''::bytea),
        string_agg(convert_to(name, 'UTF8'), '\\x00'::bytea)
    FROM runs WHERE experiment_id = %(experiment_id)s
"""

_TAGS: Final = """
    SELECT tag_id, name FROM tags
    WHERE experiment_id = %(experiment_id)s AND name_digest = ANY (%(digests)s)
"""

_POINT_COLUMNS: Final = """
    string_agg(int8send(run_id), ''::bytea), string_agg(int8send(tag_id), ''::bytea),
        string_agg(int8send(last_step), ''::bytea),
        string_agg(float8send(last_wall_time), ''::bytea),
        string_agg(float8send(last_value), ''::bytea)
"""

_IS_SCALAR: Final = f"plugin = 'scalars' AND data_class = {int(DataClass.SCALAR)}"


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The summaries and starts of an experiment: ids, wall time in seconds, size and digest.

    Sizes are in bytes, of the summary metadata.
    """

    series_ids: Int64s
    run_ids: Int64s
    tag_ids: Int64s
    wall_times: Float64s
    sizes: Int64s
    digests: list[bytes]


@dataclass(frozen=True, slots=True)
class HparamsListing:
    """Runs, summaries and starts of an experiment; `tag_names` has the tags of these series."""

    run_ids: Int64s
    run_names: list[str]
    tag_names: dict[int, str]
    records: RecordColumns


@dataclass(frozen=True, slots=True)
class LastPoints:
    """The last point of each of some scalar series; wall times in seconds since the epoch."""

    run_ids: Int64s
    tag_ids: Int64s
    steps: Int64s
    wall_times: Float64s
    values: Float64s


def _use_indexes(db: Connection) -> None:
    """Let the later queries of the transaction read series by index, as far as possible.

    PostgreSQL knows neither which tags are selected nor that they are few of an experiment's. It
    would read all series of all workspaces, with two more processes: with 10,000 sessions of 10
    metrics, that takes twice as long for the values of one metric.
    """
    set_locals(db, {"enable_seqscan": "off", "max_parallel_workers_per_gather": "0"})


def list_records(db: Connection, experiment_id: ExperimentId) -> HparamsListing:
    """Return all runs, summaries and starts of sessions, in one round trip, in no order."""
    parameters = {"experiment_id": experiment_id, "digests": _encode_digests(_RECORD_TAGS)}
    with pipeline(db):
        _use_indexes(db)
        runs = execute_binary(db, _RUNS, {"experiment_id": experiment_id})
        tags = execute_binary(db, _TAGS, parameters)
        records = execute_binary(db, _RECORDS, parameters)

    ((run_ids, names),) = runs.rows()
    ((series_ids, record_runs, tag_ids, wall_times, sizes, digests),) = records.rows()
    return HparamsListing(
        decode_int8s(run_ids),
        [] if names is None else bytes(names).decode().split("\0"),
        dict(tags.rows()),
        RecordColumns(
            decode_int8s(series_ids),
            decode_int8s(record_runs),
            decode_int8s(tag_ids),
            decode_float8s(wall_times),
            decode_int8s(sizes),
            _split(digests or b""),
        ),
    )


def read_metadata(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> Iterator[tuple[int, bytes]]:
    """Return series id and summary metadata of these series."""
    rows = fetch_binary(
        db,
        """
            SELECT series_id, summary_metadata FROM time_series
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s)
        """,
        {"experiment_id": experiment_id, "series_ids": encode_array("bigint", series_ids)},
    )
    return ((series_id, bytes(metadata)) for series_id, metadata in rows)


def read_ends(
    db: Connection, experiment_id: ExperimentId, run_ids: Int64s | None
) -> Iterator[tuple[int, float, bytes]]:
    """Return run id, wall time in seconds and summary metadata of these runs' ends of sessions.

    None returns those of all runs.
    """
    condition = "" if run_ids is None else "AND run_id = ANY (%(run_ids)s)"
    rows = fetch_binary(
        db,
        f"""
            SELECT run_id, metadata_wall_time, summary_metadata FROM time_series
            WHERE experiment_id = %(experiment_id)s AND plugin = 'hparams' {condition}
                AND tag_id = ANY (ARRAY(
                    SELECT tag_id FROM tags
                    WHERE experiment_id = %(experiment_id)s AND name_digest = ANY (%(digests)s)))
        """,  # noqa: S608 - one of two constants
        {
            "experiment_id": experiment_id,
            "digests": _encode_digests([hparams.SESSION_END_TAG]),
            **({} if run_ids is None else {"run_ids": encode_array("bigint", run_ids)}),
        },
    )
    return ((run_id, wall_time, bytes(metadata)) for run_id, wall_time, metadata in rows)


def list_last_points_of_tags(
    db: Connection, experiment_id: ExperimentId, tags: Collection[str]
) -> tuple[LastPoints, dict[int, str]]:
    """Return the last points of the scalar series with these tags, and the tags' names by id."""
    parameters = {"experiment_id": experiment_id, "digests": _encode_digests(tags)}
    with pipeline(db):
        _use_indexes(db)
        names = execute_binary(db, _TAGS, parameters)
        points = execute_binary(
            db,
            f"""
                SELECT {_POINT_COLUMNS} FROM time_series
                WHERE experiment_id = %(experiment_id)s AND {_IS_SCALAR} AND tag_id = ANY (ARRAY(
                    SELECT tag_id FROM tags
                    WHERE experiment_id = %(experiment_id)s AND name_digest = ANY (%(digests)s)))
            """,  # noqa: S608 - the constants above
            parameters,
        )
    return _last_points(points), dict(names.rows())


def list_last_points_of_runs(
    db: Connection, experiment_id: ExperimentId, run_ids: Sequence[int] | Int64s
) -> tuple[LastPoints, dict[int, str]]:
    """Return the last points of all scalar series of these runs, and their tags' names by id."""
    rows = execute_binary(
        db,
        f"""
            SELECT {_POINT_COLUMNS} FROM time_series
            WHERE experiment_id = %(experiment_id)s AND {_IS_SCALAR}
                AND run_id = ANY (%(run_ids)s)
        """,  # noqa: S608 - the constants above
        {"experiment_id": experiment_id, "run_ids": encode_array("bigint", run_ids)},
    )
    points = _last_points(rows)
    return points, list_tag_names(db, experiment_id, np.unique(points.tag_ids))


def list_tag_names(
    db: Connection, experiment_id: ExperimentId, tag_ids: Sequence[int] | Int64s
) -> dict[int, str]:
    """Return the names of these tags by id."""
    rows = fetch_binary(
        db,
        """
            SELECT tag_id, name FROM tags
            WHERE experiment_id = %(experiment_id)s AND tag_id = ANY (%(tag_ids)s)
        """,
        {"experiment_id": experiment_id, "tag_ids": encode_array("bigint", tag_ids)},
    )
    return dict(rows)


def list_newest_wall_times(
    db: Connection, experiment_id: ExperimentId, run_ids: Sequence[int] | Int64s
) -> tuple[Int64s, Float64s]:
    """Return run id and newest wall time in seconds of each series of these runs.

    Series of plugin `hparams` are left out: a request that sets hyperparameters has a time of its
    own.
    """
    ((ids, wall_times),) = fetch_binary(
        db,
        """
            SELECT string_agg(int8send(run_id), ''::bytea),
                string_agg(float8send(GREATEST(max_wall_time, last_wall_time)), ''::bytea)
            FROM time_series
            WHERE experiment_id = %(experiment_id)s AND run_id = ANY (%(run_ids)s)
                AND plugin <> 'hparams'
        """,
        {"experiment_id": experiment_id, "run_ids": encode_array("bigint", run_ids)},
    )
    return decode_int8s(ids), decode_float8s(wall_times)


def list_scalar_names(db: Connection, experiment_id: ExperimentId) -> tuple[Int64s, Int64s]:
    """Return run id and tag id of each scalar series of the experiment."""
    ((run_ids, tag_ids),) = fetch_binary(
        db,
        f"""
            SELECT string_agg(int8send(run_id), ''::bytea), string_agg(int8send(tag_id), ''::bytea)
            FROM time_series WHERE experiment_id = %(experiment_id)s AND {_IS_SCALAR}
        """,  # noqa: S608 - the constant above
        {"experiment_id": experiment_id},
    )
    return decode_int8s(run_ids), decode_int8s(tag_ids)


def _last_points(result: PendingResult) -> LastPoints:
    ((run_ids, tag_ids, steps, wall_times, values),) = result.rows()
    return LastPoints(
        decode_int8s(run_ids),
        decode_int8s(tag_ids),
        decode_int8s(steps),
        decode_float8s(wall_times),
        decode_float8s(values),
    )


def _encode_digests(names: Collection[str]) -> object:
    return encode_array("bytea", [hash_name(name) for name in names])


def _split(data: bytes) -> list[bytes]:
    data = bytes(data)
    return [data[start : start + DIGEST_BYTES] for start in range(0, len(data), DIGEST_BYTES)]
