"""Queries of the sweep: blobs that nothing refers to, their marks, and how far a sweep is.

All need a transaction of the workspace on the primary: a replica may lack what was just committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.database import set_local, wait_in_transaction
from tbservice.db.schema_versions import REQUIRED_REVISION, SWEPT_OBJECTS
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.objects.tables.object_references import ALL_REFERENCES
from tbservice.quotas.tables import usage_counters
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import Usage

SWEEP_LOCK: Final = "sweep objects"
"""Name of the advisory lock of the server that sweeps: two would do the same work twice."""

_SCAN_SECONDS_MAX: Final = 600
"""Seconds that reading all references of one experiment may take."""


@dataclass(frozen=True, slots=True)
class SweepState:
    """How far the sweeps of a workspace are; `is_due` if one is to begin or to be continued."""

    after: bytes
    is_due: bool


def may_delete(db: Connection) -> bool:
    """Return whether every program on the database holds the blobs that it refers to.

    Read each time: it only ever becomes true.
    """
    return (db.execute(text(REQUIRED_REVISION)).scalar() or "") >= SWEPT_OBJECTS


def try_lock(db: Connection) -> bool:
    """Keep other servers from sweeping until the transaction ends; False if one does."""
    is_locked = citus.try_lock_name(db, SWEEP_LOCK)
    wait_in_transaction(db)
    return is_locked


def list_experiments(db: Connection, workspace_id: WorkspaceId) -> list[ExperimentId]:
    """Return all experiments of a workspace: deleted ones too, and copies of frozen links."""
    set_local(db, "shows_deleted", "on")
    statement = text("SELECT experiment_id FROM experiments WHERE workspace_id = :workspace_id")
    rows = db.execute(statement, {"workspace_id": workspace_id})
    return [ExperimentId(each) for each in rows.scalars()]


def list_references(
    db: Connection, experiment_id: ExperimentId, first: bytes, last: bytes
) -> list[bytes]:
    """Return the SHA-256s from `first` to `last` that an experiment refers to, in no order.

    Also by deleted points. One statement, so that a reference that moves between tables is seen.
    """
    db.execute(text(f"SET LOCAL statement_timeout = '{_SCAN_SECONDS_MAX}s'"))
    statement = text(f"""
        SELECT DISTINCT sha256 FROM ({ALL_REFERENCES}) AS r WHERE sha256 BETWEEN :first AND :last
    """)  # noqa: S608 - a constant
    parameters = {"experiment_id": experiment_id, "first": first, "last": last}
    return [bytes(each) for each in db.execute(statement, parameters).scalars()]


def list_old_blobs(
    db: Connection, workspace_id: WorkspaceId, after: bytes, days: float, limit: int
) -> list[StoredBlob]:
    """Return a page of the blobs that were stored more than `days` ago, by SHA-256."""
    statement = text("""
        SELECT sha256, size, content_type, object_suffix FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 > :after
            AND created_at <= now() - :days * interval '1 day'
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


def condemn(db: Connection, workspace_id: WorkspaceId, digests: Sequence[bytes], mark: int) -> None:
    """Mark blobs that will be deleted unless somebody refers to them.

    Waits for the transactions that hold them: a look for references afterwards sees theirs.
    """
    statement = text("""
        UPDATE blobs SET condemned_by = :mark
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    parameters = {"workspace_id": workspace_id, "digests": list(digests), "mark": mark}
    db.execute(statement, parameters)


def delete_condemned(
    db: Connection, workspace_id: WorkspaceId, digests: Sequence[bytes], mark: int
) -> list[StoredBlob]:
    """Delete the rows, of these, that still have the mark, and return them.

    Rights to them (`experiment_blobs`) remain, and name nothing. The workspace uses less then.
    """
    has_counters = usage_counters.exist(db)
    if has_counters:
        usage_counters.create_of_workspace(db, workspace_id)
    statement = text("""
        DELETE FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
            AND condemned_by = :mark
        RETURNING sha256, size, content_type, object_suffix
    """)
    parameters = {"workspace_id": workspace_id, "digests": list(digests), "mark": mark}
    deleted = [
        StoredBlob(bytes(row.sha256), row.size, row.content_type, row.object_suffix)
        for row in db.execute(statement, parameters)
    ]
    if has_counters and deleted:
        freed = Usage(blob_bytes=-sum(blob.size for blob in deleted))
        usage_counters.adjust(db, usage_counters.workspace_counter(workspace_id), freed)
    return deleted


def find_state(db: Connection, workspace_id: WorkspaceId, hours: float) -> SweepState:
    """Return how far a workspace's sweep is. The next one is due `hours` after the last one."""
    statement = text("""
        SELECT after_sha256,
            after_sha256 <> '' OR finished_at IS NULL
                OR finished_at <= now() - :hours * interval '1 hour' AS is_due
        FROM object_sweeps WHERE workspace_id = :workspace_id
    """)
    parameters = {"workspace_id": workspace_id, "hours": float(hours)}
    row = db.execute(statement, parameters).one_or_none()
    return SweepState(b"", True) if row is None else SweepState(bytes(row[0]), bool(row[1]))


def save_state(
    db: Connection,
    workspace_id: WorkspaceId,
    after: bytes,
    objects: int,
    size: int,
    *,
    has_ended: bool,
) -> None:
    """Note where a sweep is, and add the objects and bytes that it has deleted since."""
    statement = text("""
        INSERT INTO object_sweeps AS s
            (workspace_id, after_sha256, finished_at, deleted_objects, deleted_bytes)
        VALUES (:workspace_id, :after, CASE WHEN :has_ended THEN now() END, :objects, :size)
        ON CONFLICT (workspace_id) DO UPDATE SET
            after_sha256 = excluded.after_sha256,
            finished_at = coalesce(excluded.finished_at, s.finished_at),
            deleted_objects = s.deleted_objects + excluded.deleted_objects,
            deleted_bytes = s.deleted_bytes + excluded.deleted_bytes
    """)
    parameters = {
        "workspace_id": workspace_id,
        "after": after,
        "has_ended": has_ended,
        "objects": objects,
        "size": size,
    }
    db.execute(statement, parameters)
