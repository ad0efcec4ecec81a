"""Queries on `blobs`: a workspace's objects in S3. The object is written first, its row last.

A transaction that stores a reference to a blob calls `hold`: nothing else keeps a sweep
(`integrity/sweep.py`) from deleting it. A key is written once, and never again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.series import Blob

_KEY: Final = re.compile(r"\d+/([0-9a-f]{64})(?:\.[0-9a-f]{16})?")
_DIGESTS_PER_STATEMENT: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob whose object exists; `size` in bytes."""

    sha256: bytes
    size: int
    content_type: str
    object_suffix: str = ""


def object_key(workspace_id: WorkspaceId, sha256: bytes, suffix: str = "") -> str:
    """Return the key of a blob's object; `suffix` is empty if an older release stored it."""
    return f"{workspace_id}/{sha256.hex()}{suffix}"


def digest_of(key: str) -> bytes | None:
    """Return the SHA-256 in an object's key; None if it is no key of a blob."""
    name = _KEY.fullmatch(key)
    return bytes.fromhex(name[1]) if name else None


def suffix_of(key: str) -> str:
    """Return the suffix of an object's key."""
    return "." + key.partition(".")[2] if "." in key else ""


def record(db: Connection, workspace_id: WorkspaceId, blobs: Sequence[StoredBlob]) -> set[bytes]:
    """Record that these objects exist; return the SHA-256s of the blobs that had no row."""
    ordered = sorted(blobs, key=lambda blob: blob.sha256)  # one order of locks: no deadlocks
    rows = db.execute(
        text("""
            INSERT INTO blobs (workspace_id, sha256, size, content_type, object_suffix)
            SELECT :workspace_id, sha256, size, content_type, object_suffix
            FROM unnest(CAST(:digests AS bytea[]), CAST(:sizes AS bigint[]),
                CAST(:content_types AS text[]), CAST(:object_suffixes AS text[]))
                AS u (sha256, size, content_type, object_suffix)
            ON CONFLICT DO NOTHING RETURNING sha256
        """),
        {
            "workspace_id": workspace_id,
            "digests": [blob.sha256 for blob in ordered],
            "sizes": [blob.size for blob in ordered],
            "content_types": [blob.content_type for blob in ordered],
            "object_suffixes": [blob.object_suffix for blob in ordered],
        },
    )
    return {bytes(digest) for digest in rows.scalars()}


def move(db: Connection, workspace_id: WorkspaceId, previous: Blob, object_suffix: str) -> bool:
    """Let a blob's row refer to another object; return False if it no longer names `previous`."""
    statement = text("""
        UPDATE blobs SET object_suffix = :object_suffix
        WHERE workspace_id = :workspace_id AND sha256 = :sha256 AND object_suffix = :previous
        RETURNING true
    """)
    sha256 = bytes.fromhex(previous.sha256)
    parameters = {
        "workspace_id": workspace_id,
        "sha256": sha256,
        "object_suffix": object_suffix,
        "previous": suffix_of(previous.object_key),
    }
    return db.execute(statement, parameters).one_or_none() is not None


# By way of JSON, which also works before the migration 0015.
_HELD: Final = """
    SELECT sha256, size, content_type, object_suffix,
        to_jsonb(b) ->> 'condemned_by' IS NOT NULL AS is_condemned
    FROM blobs AS b
    WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    ORDER BY sha256
"""
# The row may be on another node, which would end a transaction that has only locked it before the
# reference is committed here. One that has written there waits (two phases).
_HOLD: Final = citus.Forms(
    [text(f"{_HELD} FOR SHARE")],
    [
        text("""
            UPDATE blobs SET size = size
            WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
        """),
        text(_HELD),
    ],
)


def hold(
    db: Connection, workspace_id: WorkspaceId, digests: Collection[bytes]
) -> dict[bytes, Blob]:
    """Keep these blobs until the transaction ends, and after it if it stores a reference to them.

    Locks their rows, and takes away the mark of a sweep that is about to delete them. Returns those
    that exist, by SHA-256: the others were never stored, or have been deleted.
    """
    parameters = {"workspace_id": workspace_id, "digests": list(digests)}
    *locks, reading = _HOLD.of(db)
    for lock in locks:
        db.execute(lock, parameters)
    rows = db.execute(reading, parameters).all()
    condemned = [row.sha256 for row in rows if row.is_condemned]
    if condemned:
        spare = text("""
            UPDATE blobs SET condemned_by = NULL
            WHERE workspace_id = :workspace_id AND sha256 = ANY (CAST(:digests AS bytea[]))
        """)
        db.execute(spare, {"workspace_id": workspace_id, "digests": condemned})
    return _make_blobs(workspace_id, rows)


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
    usable = select_usable(db, grant, digests)
    return find_all(db, grant.workspace_id, usable) if usable else {}


def select_usable(
    db: Connection, grant: AppendGrant, digests: Collection[bytes]
) -> Collection[bytes]:
    """Return the SHA-256s that a batch may name with this grant, of blobs that may not exist."""
    if grant.may_name_workspace_blobs or not digests:
        return digests
    statement = text("""
        SELECT sha256 FROM experiment_blobs
        WHERE experiment_id = :experiment_id AND sha256 = ANY (CAST(:digests AS bytea[]))
    """)
    rows = db.execute(statement, {"experiment_id": grant.experiment_id, "digests": list(digests)})
    return {bytes(digest) for digest in rows.scalars()}


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
    parameters = {"workspace_id": workspace_id, "digests": list(digests)}
    return _make_blobs(workspace_id, db.execute(statement, parameters))


def measure(db: Connection, workspace_id: WorkspaceId, digests: Sequence[bytes]) -> int:
    """Return the bytes of the workspace's blobs that have these SHA-256s."""
    chunks = range(0, len(digests), _DIGESTS_PER_STATEMENT)
    return sum(
        blob.size
        for start in chunks
        for blob in find_all(
            db, workspace_id, digests[start : start + _DIGESTS_PER_STATEMENT]
        ).values()
    )


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


def _make_blobs(workspace_id: WorkspaceId, rows: Iterable[Any]) -> dict[bytes, Blob]:
    blobs = {}
    for row in rows:
        digest = bytes(row.sha256)
        key = object_key(workspace_id, digest, row.object_suffix)
        blobs[digest] = Blob(key, row.size, row.content_type, digest.hex())
    return blobs
