"""Queries that find and delete blobs that nothing refers to, while no service runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.errors import StartupError
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.objects.tables.object_references import ALL_REFERENCES
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_LEAVING_SECONDS: Final = 2.0
"""How long a session may still be seen after its client has closed it, on a busy machine."""


def lock(db: Connection) -> None:
    """Let nobody read or write blobs until the transaction ends. Raises StartupError.

    An upload reads whether a blob is there, sends it or not, and refers to it in a later
    transaction: so no other session may exist, whatever it does now. One that is opened afterwards
    waits for the lock, and then sees what was deleted.
    """
    _check_alone(db, _LEAVING_SECONDS)
    db.execute(text("LOCK TABLE blobs IN ACCESS EXCLUSIVE MODE"))
    _check_alone(db, 0.0)  # a session that was opened in between may have read blobs


def _check_alone(db: Connection, seconds: float) -> None:
    """Check that there is no other session, or within `seconds` none. PostgreSQL's have no user."""
    deadline = time.monotonic() + seconds
    while sessions := _COUNT_OTHERS.of(db)(db):
        if time.monotonic() >= deadline:
            raise StartupError(
                f"{sessions} other sessions use the database: stop every tbservice first (and "
                "poolers, and backups), because an upload may be about to refer to what would be "
                "deleted"
            )
        time.sleep(0.05)


def _count_others(db: Connection) -> int:
    db.execute(text("SELECT pg_stat_clear_snapshot()"))
    statement = text("""
        SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND usename IS NOT NULL AND pid <> pg_backend_pid()
    """)
    return int(db.execute(statement).scalar_one())


_COUNT_OTHERS: Final = citus.Forms[Callable[[Connection], int]](
    _count_others, lambda db: citus.count_sessions(db) - 1
)


def list_experiment_digests(db: Connection, experiment_id: ExperimentId) -> list[bytes]:
    """Return the SHA-256s that the points of an experiment refer to, also deleted points."""
    statement = text(f"SELECT DISTINCT sha256 FROM ({ALL_REFERENCES}) AS r")  # noqa: S608 - a constant
    return [
        bytes(each) for each in db.execute(statement, {"experiment_id": experiment_id}).scalars()
    ]


def list_old_blobs(
    db: Connection, workspace_id: WorkspaceId, after: bytes, days: float, limit: int
) -> list[StoredBlob]:
    """Return a page of the blobs that were stored more than `days` ago, by SHA-256."""
    statement = text("""
        SELECT sha256, size, content_type, object_suffix FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 > :after
            AND created_at < now() - :days * interval '1 day'
        ORDER BY sha256 LIMIT :limit
    """)
    parameters = {
        "workspace_id": workspace_id,
        "after": after,
        "days": float(days),
        "limit": limit,
    }
    return [
        StoredBlob(bytes(row.sha256), row.size, row.content_type, row.object_suffix)
        for row in db.execute(statement, parameters)
    ]


def delete_blobs(db: Connection, workspace_id: WorkspaceId, digests: Sequence[bytes]) -> None:
    """Delete rows of blobs. Rights to them (`experiment_blobs`) remain, and name nothing."""
    statement = text("""
        DELETE FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    db.execute(statement, {"workspace_id": workspace_id, "digests": list(digests)})
