"""Queries on `upload_streams`: the upload cursor of each stream of an experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.db.arrays import Column, encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.cluster.citus import Forms
from tbservice.db.pipeline import PendingResult, execute_binary, fetch_binary
from tbservice.series.tables import cluster_writes
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.series import Cursor, Stream


def stream_digest(stream: Stream) -> bytes:
    """Return the SHA-256 that identifies a stream in its experiment.

    It covers the fields' bytes, each after its length as a little-endian uint64.
    """
    fields = (
        stream.run.encode(),
        stream.file_name.encode(),
        stream.first_record_digest,
        str(stream.generation).encode(),
        stream.filters_digest,
    )
    return hashlib.sha256(
        # With lengths: without them, "a" + "bc" and "ab" + "c" would be one stream.
        b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    ).digest()


@dataclass(frozen=True, slots=True)
class CursorMove:
    """A stream's move from the offset `start` to a new cursor, with total counts in `skipped`.

    `start_time` is the wall time of the file's first record, if the move is from 0 and it is known;
    `last_wall_time` the greatest one of the points between, None without any.
    """

    stream_digest: bytes
    cursor: Cursor
    run_id: int
    start: int
    start_time: float | None = None
    last_wall_time: float | None = None


@dataclass(frozen=True, slots=True)
class LockedStream:
    """A stream's cursor and run id; the run is locked against deletion.

    `is_restarted` if another file of the run began later than the first one.
    """

    cursor: Cursor
    run_id: int
    is_restarted: bool = False


def lock_streams(
    db: Connection, experiment_id: ExperimentId, runs: Mapping[bytes, str]
) -> dict[bytes, LockedStream]:
    """Return the existing streams by digest and lock their runs (KEY SHARE).

    The cursors themselves are not locked: `move_cursors` checks them.

    Args:
        db: A transaction.
        experiment_id: The experiment.
        runs: The name of each stream's run, by the stream's digest.
    """
    return {
        digest: LockedStream(
            Cursor(Stream(*stream), offset, checksum, skipped), run_id, bool(is_restarted)
        )
        for digest, run_id, offset, checksum, skipped, is_restarted, *stream in _LOCK.of(db)(
            db, experiment_id, runs
        )
    }


def _lock_rows(
    db: Connection, experiment_id: ExperimentId, runs: Mapping[bytes, str]
) -> list[tuple[Any, ...]]:
    return fetch_binary(
        db,
        f"""
            SELECT s.* FROM {unnest_rows({"digest": "bytea"})} AS w
            CROSS JOIN LATERAL (
                SELECT s.stream_digest, s.run_id, s.cursor, s.checksum, s.skipped,
                    r.last_start_time > r.start_time, r.name, s.file_name,
                    s.first_record_digest, s.generation, s.filters_digest
                FROM upload_streams AS s
                JOIN runs AS r ON r.experiment_id = s.experiment_id AND r.run_id = s.run_id
                WHERE s.experiment_id = %(experiment_id)s AND s.stream_digest = w.digest
                LIMIT 1 FOR KEY SHARE OF r) AS s
        """,  # noqa: S608 - a constant
        {"experiment_id": experiment_id, "digest": encode_array("bytea", list(runs))},
    )


_LOCK: Final = Forms(_lock_rows, cluster_writes.lock_streams)


_CURSOR_COLUMNS: Final = {
    "stream_digest": "bytea",
    "run_id": "bigint",
    "file_name": "text",
    "first_record_digest": "bytea",
    "generation": "integer",
    "filters_digest": "bytea",
    "cursor": "bigint",
    "checksum": "bigint",
    "skipped": "text",
    "start_time": "float8",
    "last_wall_time": "float8",
}


def move_cursors(
    db: Connection, grant: ExperimentGrant, moves: Sequence[CursorMove]
) -> PendingResult:
    """Move cursors that are still at their `start`, and lock them until the transaction ends.

    The result contains the digests of the moved streams. If one is missing, the caller must roll
    back, and read the cursor of that stream in a new transaction: this one may not see its value.

    Args:
        db: A transaction of the grant's workspace, in a `pipeline`.
        grant: Grant on the experiment.
        moves: At most one per stream. A move from 0 creates the stream if necessary.
    """
    ordered = sorted(moves, key=lambda move: move.stream_digest)  # by all: they cannot deadlock
    known = [move for move in ordered if move.start]
    new = [move for move in ordered if not move.start]
    result = PendingResult()
    if len(known) == 1:
        result += _move_existing_cursor(db, grant, known[0])
    elif known:
        result += _move_existing_cursors(db, grant, known)
    if new:
        result += _move_from_start(db, grant, new)
    return result


def _move_existing_cursor(
    db: Connection, grant: ExperimentGrant, move: CursorMove
) -> PendingResult:
    """Move one existing cursor, as most batches do: by primary key, in half the time."""
    return execute_binary(
        db,
        """
            UPDATE upload_streams
            SET cursor = %(cursor)s, checksum = %(checksum)s, skipped = %(skipped)s::jsonb,
                updated_at = now(),
                last_wall_time = greatest(last_wall_time, %(last_wall_time)s::float8)
            WHERE experiment_id = %(experiment_id)s AND stream_digest = %(stream_digest)s
                AND cursor = %(start)s
            RETURNING stream_digest
        """,
        {
            "experiment_id": grant.experiment_id,
            "stream_digest": move.stream_digest,
            "start": move.start,
            "cursor": move.cursor.offset,
            "checksum": move.cursor.checksum,
            "skipped": json.dumps(move.cursor.skipped),
            "last_wall_time": move.last_wall_time,
        },
    )


_MOVED_COLUMNS: Final = {
    name: kind
    for name, kind in {**_CURSOR_COLUMNS, "start": "bigint"}.items()
    if name in ("stream_digest", "cursor", "checksum", "skipped", "last_wall_time", "start")
}


def _move_existing_cursors(
    db: Connection, grant: ExperimentGrant, moves: Sequence[CursorMove]
) -> PendingResult:
    """Move several existing cursors: found by primary key, whatever the plan of the join is."""
    values = _encode_columns(moves)
    return execute_binary(
        db,
        f"""
            UPDATE upload_streams AS s SET cursor = u.cursor, checksum = u.checksum,
                skipped = u.skipped::jsonb, updated_at = now(),
                last_wall_time = greatest(s.last_wall_time, u.last_wall_time)
            FROM {unnest_rows(_MOVED_COLUMNS)} AS u
            WHERE s.experiment_id = %(experiment_id)s
                AND s.stream_digest = ANY (%(stream_digest)s::bytea[])
                AND s.stream_digest = u.stream_digest AND s.cursor = u.start
            RETURNING s.stream_digest
        """,  # noqa: S608 - the constants above
        {
            "experiment_id": grant.experiment_id,
            **{name: values[name] for name in _MOVED_COLUMNS},
        },
    )


def _move_from_start(
    db: Connection, grant: ExperimentGrant, moves: Sequence[CursorMove]
) -> PendingResult:
    """Create the streams, unless they are there: then move the cursors that are still at 0."""
    columns = ", ".join(_CURSOR_COLUMNS)
    values = _encode_columns(moves)
    # In the ON CONFLICT of an INSERT, a cluster takes neither arrays nor functions of time.
    return execute_binary(
        db,
        f"""
            INSERT INTO upload_streams AS old (experiment_id, workspace_id, updated_at, {columns})
            SELECT e.experiment_id, e.workspace_id, now(),
                {columns.replace("skipped", "skipped::jsonb")}
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(_CURSOR_COLUMNS)} AS u
            ON CONFLICT (experiment_id, stream_digest) DO UPDATE
                SET cursor = excluded.cursor, checksum = excluded.checksum,
                    skipped = excluded.skipped, updated_at = excluded.updated_at,
                    last_wall_time = greatest(old.last_wall_time, excluded.last_wall_time)
                WHERE old.cursor = 0
            RETURNING stream_digest
        """,  # noqa: S608 - the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **{name: values[name] for name in _CURSOR_COLUMNS},
        },
    )


def _encode_columns(moves: Sequence[CursorMove]) -> dict[str, Any]:
    cursors = [move.cursor for move in moves]
    values: dict[str, Column] = {
        "stream_digest": [move.stream_digest for move in moves],
        "run_id": [move.run_id for move in moves],
        "file_name": [cursor.stream.file_name for cursor in cursors],
        "first_record_digest": [cursor.stream.first_record_digest for cursor in cursors],
        "generation": [cursor.stream.generation for cursor in cursors],
        "filters_digest": [cursor.stream.filters_digest for cursor in cursors],
        "cursor": [cursor.offset for cursor in cursors],
        "checksum": [cursor.checksum for cursor in cursors],
        "skipped": [json.dumps(cursor.skipped) for cursor in cursors],
        "start_time": [move.start_time for move in moves],
        "last_wall_time": [move.last_wall_time for move in moves],
    }
    starts = encode_array("bigint", [move.start for move in moves])
    return {name: encode_array(kind, values[name]) for name, kind in _CURSOR_COLUMNS.items()} | {
        "start": starts
    }


def list_cursors(
    db: Connection, experiment_id: ExperimentId, after: bytes, limit: int
) -> list[tuple[bytes, Cursor]]:
    """Return one page of (stream digest, cursor), by digest, after the digest `after`."""
    rows = db.execute(
        text("""
            SELECT s.*, runs.name AS run FROM upload_streams AS s
            JOIN runs ON runs.experiment_id = s.experiment_id AND runs.run_id = s.run_id
            WHERE s.experiment_id = :experiment_id AND stream_digest > :after
            ORDER BY stream_digest LIMIT :limit
        """),
        {"experiment_id": experiment_id, "after": after, "limit": limit},
    )
    return [(bytes(row.stream_digest), _cursor(row)) for row in rows]


def has_streams(db: Connection, experiment_id: ExperimentId, run_id: int) -> bool:
    """Return whether an event file of the run was uploaded."""
    statement = text("""
        SELECT EXISTS (SELECT FROM upload_streams
            WHERE experiment_id = :experiment_id AND run_id = :run_id)
    """)
    parameters = {"experiment_id": experiment_id, "run_id": run_id}
    return bool(db.execute(statement, parameters).scalar())


def delete_run_streams(db: Connection, experiment_id: ExperimentId, run_id: int) -> None:
    """Delete the cursors of a run, so that its files are uploaded again from their start."""
    statement = text(
        "DELETE FROM upload_streams WHERE experiment_id = :experiment_id AND run_id = :run_id"
    )
    db.execute(statement, {"experiment_id": experiment_id, "run_id": run_id})


def _cursor(row: Row[Any]) -> Cursor:
    stream = Stream(
        run=row.run,
        file_name=row.file_name,
        first_record_digest=bytes(row.first_record_digest),
        generation=row.generation,
        filters_digest=bytes(row.filters_digest),
    )
    return Cursor(stream, row.cursor, row.checksum, row.skipped)
