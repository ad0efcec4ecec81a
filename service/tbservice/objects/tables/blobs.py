"""Queries on `blobs`: a workspace's objects in S3. The object is written first, its row last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.series import Blob

_DIGESTS_PER_STATEMENT: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob whose object exists; `size` in bytes."""

    sha256: bytes
    size: int
    content_type: str
    object_suffix: str = ""


def object_key(workspace_id: WorkspaceId, sha256: bytes, suffix: str = "") -> str:
    """Return the key of a blob's object; `suffix` is not empty if it was sent in parts."""
    return f"{workspace_id}/{sha256.hex()}{suffix}"


def record(db: Connection, workspace_id: WorkspaceId, blobs: Sequence[StoredBlob]) -> None:
    """Record that these objects exist. Idempotent."""
    ordered = sorted(blobs, key=lambda blob: blob.sha256)  # one order of locks: no deadlocks
    db.execute(
        text("""
            INSERT INTO blobs (workspace_id, sha256, size, content_type, object_suffix)
            SELECT :workspace_id, sha256, size, content_type, object_suffix
            FROM unnest(CAST(:digests AS bytea[]), CAST(:sizes AS bigint[]),
                CAST(:content_types AS text[]), CAST(:object_suffixes AS text[]))
                AS u (sha256, size, content_type, object_suffix)
            ON CONFLICT DO NOTHING
        """),
        {
            "workspace_id": workspace_id,
            "digests": [blob.sha256 for blob in ordered],
            "sizes": [blob.size for blob in ordered],
            "content_types": [blob.content_type for blob in ordered],
            "object_suffixes": [blob.object_suffix for blob in ordered],
        },
    )


def move(db: Connection, workspace_id: WorkspaceId, sha256: bytes, object_suffix: str) -> str:
    """Let a blob's row refer to another object; return the key of the previous object."""
    statement = text("""
        UPDATE blobs SET object_suffix = :object_suffix
        WHERE workspace_id = :workspace_id AND sha256 = :sha256
        RETURNING old.object_suffix
    """)
    parameters = {"workspace_id": workspace_id, "sha256": sha256, "object_suffix": object_suffix}
    return object_key(workspace_id, sha256, db.execute(statement, parameters).scalar_one())


def add_to_experiment(db: Connection, grant: AppendGrant, sha256: bytes) -> None:
    """Record that a blob was uploaded through the grant's experiment. Idempotent."""
    statement = text("""
        INSERT INTO experiment_blobs (experiment_id, sha256, workspace_id)
        VALUES (:experiment_id, :sha256, :workspace_id) ON CONFLICT DO NOTHING
    """)
    parameters = {
        "experiment_id": grant.experiment_id,
        "sha256": sha256,
        "workspace_id": grant.workspace_id,
    }
    db.execute(statement, parameters)


def find_usable(
    db: Connection, grant: AppendGrant, digests: Collection[bytes]
) -> dict[bytes, Blob]:
    """Return the blobs that a batch may refer to with this grant, by SHA-256."""
    if grant.may_name_workspace_blobs:
        return find_all(db, grant.workspace_id, digests)
    statement = text("""
        SELECT sha256 FROM experiment_blobs
        WHERE experiment_id = :experiment_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    rows = db.execute(statement, {"experiment_id": grant.experiment_id, "digests": list(digests)})
    usable = [bytes(digest) for digest in rows.scalars()]
    return find_all(db, grant.workspace_id, usable) if usable else {}


def find(db: Connection, workspace_id: WorkspaceId, sha256: bytes) -> Blob | None:
    """Return a workspace's blob; None if it does not exist."""
    return find_all(db, workspace_id, [sha256]).get(sha256)


def find_all(
    db: Connection, workspace_id: WorkspaceId, digests: Collection[bytes]
) -> dict[bytes, Blob]:
    """Return the workspace's blobs that have these SHA-256s, by SHA-256."""
    statement = text("""
        SELECT sha256, size, content_type, object_suffix FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    blobs = {}
    for row in db.execute(statement, {"workspace_id": workspace_id, "digests": list(digests)}):
        digest = bytes(row.sha256)
        key = object_key(workspace_id, digest, row.object_suffix)
        blobs[digest] = Blob(key, row.size, row.content_type, digest.hex())
    return blobs


def list_page(
    db: Connection, workspace_id: WorkspaceId, after: bytes, limit: int
) -> list[StoredBlob]:
    """Return a page of the workspace's blobs with greater SHA-256s than `after`, ascending."""
    statement = text("""
        SELECT sha256, size, content_type, object_suffix FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 > :after ORDER BY sha256 LIMIT :limit
    """)
    rows = db.execute(statement, {"workspace_id": workspace_id, "after": after, "limit": limit})
    return [
        StoredBlob(bytes(row.sha256), row.size, row.content_type, row.object_suffix) for row in rows
    ]


def list_unknown(
    db: Connection, workspace_id: WorkspaceId, digests: Sequence[bytes]
) -> list[bytes]:
    """Return the SHA-256s that belong to no blob of the workspace."""
    unknown: list[bytes] = []
    for start in range(0, len(digests), _DIGESTS_PER_STATEMENT):
        page = digests[start : start + _DIGESTS_PER_STATEMENT]
        known = find_all(db, workspace_id, page)
        unknown += [digest for digest in page if digest not in known]
    return unknown
