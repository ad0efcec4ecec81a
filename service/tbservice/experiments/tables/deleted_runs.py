"""Queries on `deleted_runs`: which runs were deleted from an experiment, by SHA-256 of the name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId


def insert(db: Connection, grant: ExperimentGrant, name_digest: bytes) -> None:
    """Record that a run is deleted. Repeating it keeps the first time."""
    db.execute(
        text("""
            INSERT INTO deleted_runs (experiment_id, workspace_id, name_digest)
            VALUES (:experiment_id, :workspace_id, :name_digest) ON CONFLICT DO NOTHING
        """),
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "name_digest": name_digest,
        },
    )


def find(
    db: Connection, experiment_id: ExperimentId, name_digests: Sequence[bytes]
) -> dict[bytes, datetime]:
    """Return when each of these runs was deleted; nothing for the others.

    With the present state of the database, in a transaction that is no snapshot: so it finds what
    was deleted while an earlier statement waited for a lock.
    """
    rows = db.execute(
        text("""
            SELECT name_digest, deleted_at FROM deleted_runs
            WHERE experiment_id = :experiment_id
                AND name_digest = ANY (CAST(:name_digests AS bytea[]))
        """),
        {
            "experiment_id": experiment_id,
            "name_digests": encode_array("bytea", list(name_digests)),
        },
    )
    return {bytes(row.name_digest): row.deleted_at for row in rows}


def list_page(
    db: Connection, experiment_id: ExperimentId, after: bytes, limit: int
) -> list[tuple[bytes, datetime]]:
    """Return one page of (name digest, time of deletion), by digest, after the digest `after`."""
    rows = db.execute(
        text("""
            SELECT name_digest, deleted_at FROM deleted_runs
            WHERE experiment_id = :experiment_id AND name_digest > :after
            ORDER BY name_digest LIMIT :limit
        """),
        {"experiment_id": experiment_id, "after": after, "limit": limit},
    )
    return [(bytes(row.name_digest), row.deleted_at) for row in rows]


def delete(db: Connection, experiment_id: ExperimentId, name_digests: Collection[bytes]) -> int:
    """Forget that these runs were deleted; return how many were. Repeating it is a no-op."""
    return db.execute(
        text("""
            DELETE FROM deleted_runs WHERE experiment_id = :experiment_id
                AND name_digest = ANY (CAST(:name_digests AS bytea[]))
        """),
        {
            "experiment_id": experiment_id,
            "name_digests": encode_array("bytea", list(name_digests)),
        },
    ).rowcount
