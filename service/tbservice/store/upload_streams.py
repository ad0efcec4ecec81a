"""Queries on `upload_streams`: how far each stream of an experiment has been committed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, text

from tbservice.store.arrays import array
from tbservice.types import Cursor, ExperimentGrant, ExperimentId, Stream


def stream_digest(stream: Stream) -> bytes:
    """What identifies a stream in its experiment."""
    parts = (
        stream.run.encode(),
        stream.file_name.encode(),
        stream.first_record_digest,
        str(stream.generation).encode(),
        stream.filters_digest,
    )
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()


@dataclass(frozen=True, slots=True)
class Advance:
    """One stream's move from `start` to the cursor's offset; `cursor.skipped` is the whole count so far."""

    stream_digest: bytes
    cursor: Cursor
    run_id: int
    start: int


def get_cursors(db: Connection, experiment_id: ExperimentId, digests: Sequence[bytes]) -> dict[bytes, Cursor]:
    """The cursors of these streams, by digest; a stream that is new has none."""
    rows = db.execute(
        text("""
            SELECT s.*, runs.name AS run FROM upload_streams AS s
            JOIN runs ON runs.experiment_id = s.experiment_id AND runs.run_id = s.run_id
            WHERE s.experiment_id = :experiment_id AND stream_digest = ANY (CAST(:digests AS bytea[]))
        """),
        {"experiment_id": experiment_id, "digests": array("bytea", list(digests))},
    )
    return {bytes(row.stream_digest): _cursor(row) for row in rows}


def advance(db: Connection, grant: ExperimentGrant, advances: Sequence[Advance]) -> set[bytes]:
    """Moves cursors, holding their rows until the transaction ends. At most one advance a stream.

    Returns the digests of the streams that were no longer at their `start`: unless it is empty, the caller must roll
    back, and must not take the other cursors as this transaction sees them for where they are.
    """
    ordered = sorted(advances, key=lambda move: move.stream_digest)
    digests = [move.stream_digest for move in ordered]
    streams = [move.cursor.stream for move in ordered]
    moved = db.execute(
        text("""
            INSERT INTO upload_streams AS old (experiment_id, workspace_id, stream_digest, run_id, file_name,
                first_record_digest, generation, filters_digest, cursor, checksum, skipped)
            SELECT :experiment_id, :workspace_id, stream_digest, run_id, file_name,
                first_record_digest, generation, filters_digest, cursor, checksum, CAST(skipped AS jsonb)
            FROM unnest(CAST(:digests AS bytea[]), CAST(:run_ids AS bigint[]), CAST(:file_names AS text[]),
                CAST(:first_records AS bytea[]), CAST(:generations AS integer[]), CAST(:filters AS bytea[]),
                CAST(:starts AS bigint[]), CAST(:cursors AS bigint[]), CAST(:checksums AS bigint[]),
                CAST(:skipped AS text[]))
                AS u (stream_digest, run_id, file_name, first_record_digest, generation, filters_digest, start, cursor,
                    checksum, skipped)
            -- A cursor that was deleted meanwhile, with what was read before it, is not made again in the middle.
            WHERE start = 0 OR EXISTS (SELECT FROM upload_streams AS s
                WHERE s.experiment_id = :experiment_id AND s.stream_digest = u.stream_digest)
            ON CONFLICT (experiment_id, stream_digest) DO UPDATE
                SET cursor = excluded.cursor, checksum = excluded.checksum, skipped = excluded.skipped,
                    updated_at = now()
                WHERE (old.stream_digest, old.cursor) IN (
                    SELECT * FROM unnest(CAST(:digests AS bytea[]), CAST(:starts AS bigint[])))
            RETURNING stream_digest
        """),
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "digests": array("bytea", digests),
            "run_ids": array("bigint", [move.run_id for move in ordered]),
            "file_names": array("text", [stream.file_name for stream in streams]),
            "first_records": array("bytea", [stream.first_record_digest for stream in streams]),
            "generations": array("integer", [stream.generation for stream in streams]),
            "filters": array("bytea", [stream.filters_digest for stream in streams]),
            "starts": array("bigint", [move.start for move in ordered]),
            "cursors": array("bigint", [move.cursor.offset for move in ordered]),
            "checksums": array("bigint", [move.cursor.checksum for move in ordered]),
            "skipped": array("text", [json.dumps(move.cursor.skipped) for move in ordered]),
        },
    ).scalars()
    return set(digests).difference(map(bytes, moved))


def list_cursors(db: Connection, experiment_id: ExperimentId, after: bytes, limit: int) -> list[tuple[bytes, Cursor]]:
    """One page of all cursors, in the order of their stream's digest, with that digest."""
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


def delete_of_run(db: Connection, experiment_id: ExperimentId, run_id: int) -> None:
    """Deletes the cursors of a run, so that its files are read again from their start."""
    statement = text("DELETE FROM upload_streams WHERE experiment_id = :experiment_id AND run_id = :run_id")
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
