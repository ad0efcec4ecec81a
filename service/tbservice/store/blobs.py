"""Queries on `blobs`: which bytes a workspace has put into the object store. Object first, row last."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, text

from tbservice.types import Blob, WorkspaceId


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob whose object is there; `size` in bytes."""

    sha256: bytes
    size: int
    content_type: str
    object_suffix: str = ""


def object_key(workspace_id: WorkspaceId, sha256: bytes, suffix: str = "") -> str:
    """Where a workspace's blob is in the bucket; `suffix` when it came in pieces. Workspaces share no object."""
    return f"{workspace_id}/{sha256.hex()}{suffix}"


def record(db: Connection, workspace_id: WorkspaceId, blobs: Sequence[StoredBlob]) -> None:
    """Notes that these objects are there; noting it again changes nothing."""
    ordered = sorted(blobs, key=lambda blob: blob.sha256)
    db.execute(
        text("""
            INSERT INTO blobs (workspace_id, sha256, size, content_type, object_suffix)
            SELECT :workspace_id, sha256, size, content_type, object_suffix
            FROM unnest(CAST(:digests AS bytea[]), CAST(:sizes AS bigint[]), CAST(:content_types AS text[]),
                        CAST(:object_suffixes AS text[])) AS u (sha256, size, content_type, object_suffix)
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


def list_known(db: Connection, workspace_id: WorkspaceId, digests: Collection[bytes]) -> dict[bytes, int]:
    """Those of the digests that the workspace has, with their size in bytes."""
    statement = text("""
        SELECT sha256, size FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    rows = db.execute(statement, {"workspace_id": workspace_id, "digests": list(digests)})
    return {bytes(row.sha256): row.size for row in rows}


def find(db: Connection, workspace_id: WorkspaceId, sha256: bytes) -> Blob | None:
    """A workspace's blob."""
    return find_all(db, workspace_id, [sha256]).get(sha256)


def find_all(db: Connection, workspace_id: WorkspaceId, digests: Collection[bytes]) -> dict[bytes, Blob]:
    """Those of a workspace's blobs that have these digests."""
    statement = text("""
        SELECT sha256, size, content_type, object_suffix FROM blobs
        WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    found = {}
    for row in db.execute(statement, {"workspace_id": workspace_id, "digests": list(digests)}):
        digest = bytes(row.sha256)
        key = object_key(workspace_id, digest, row.object_suffix)
        found[digest] = Blob(key, row.size, row.content_type, digest.hex())
    return found
