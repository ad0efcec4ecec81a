"""Queries on `blob_uploads`: objects that are being written, each under a key that is used once.

Most rows are of one unfinished large blob each, an S3 multipart upload. Only the transaction that
deletes a row may record what was written, and complete or abort the S3 upload. Experiments do not
share uploads, so that none can write into another's blob.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.database import set_local
from tbservice.objects.tables.blobs import object_key
from tbservice.types.grants import AppendGrant, ExperimentGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_SUFFIX_BYTES: Final = 8

_NO_MULTIPART: Final = "none"
"""In place of S3's id. S3 has no such upload, should an older release ask it to abort this one."""


@dataclass(frozen=True, slots=True)
class BlobUpload:
    """A blob of `size` bytes whose parts are those of the S3 multipart upload `upload_id`.

    Or some blobs that are stored without parts: see `begin_puts`.
    """

    workspace_id: WorkspaceId
    experiment_id: ExperimentId
    sha256: bytes
    size: int
    object_suffix: str
    upload_id: str

    @property
    def is_multipart(self) -> bool:
        """Whether S3 has an upload with parts."""
        return self.upload_id != _NO_MULTIPART

    @property
    def object_key(self) -> str:
        """Return the key of the object: no other upload and no existing blob has it."""
        return object_key(self.workspace_id, self.sha256, self.object_suffix)


def touch(db: Connection, grant: ExperimentGrant, sha256: bytes, size: int) -> BlobUpload | None:
    """Return the experiment's upload of this blob and set its time of last use; None if none."""
    statement = text("""
        UPDATE blob_uploads SET touched_at = now()
        WHERE workspace_id = :workspace_id AND experiment_id = :experiment_id
            AND sha256 = :sha256 AND size = :size
        RETURNING object_suffix, upload_id
    """)
    identity = (grant.workspace_id, grant.experiment_id, sha256, size)
    names = ("workspace_id", "experiment_id", "sha256", "size")
    row = db.execute(statement, dict(zip(names, identity, strict=True))).one_or_none()
    return None if row is None else BlobUpload(*identity, row.object_suffix, row.upload_id)


def list_suffixes(db: Connection, workspace_id: WorkspaceId) -> set[str]:
    """Return the suffixes of all keys that unfinished uploads of a workspace write."""
    statement = text("SELECT object_suffix FROM blob_uploads WHERE workspace_id = :workspace_id")
    return set(db.execute(statement, {"workspace_id": workspace_id}).scalars())


def measure(db: Connection, experiment_id: ExperimentId) -> tuple[int, int]:
    """Return number and bytes of the large blobs of an experiment that are being uploaded."""
    statement = text("""
        SELECT count(*), coalesce(sum(size), 0)::bigint FROM blob_uploads
        WHERE experiment_id = :experiment_id AND upload_id <> :not_multipart
    """)
    parameters = {"experiment_id": experiment_id, "not_multipart": _NO_MULTIPART}
    count, size = db.execute(statement, parameters).one()
    return count, size


def make_suffix() -> str:
    """Return a suffix that no key has had, nor will have again."""
    return f".{secrets.token_hex(_SUFFIX_BYTES)}"


def begin_puts(db: Connection, grant: AppendGrant) -> BlobUpload:
    """Insert the upload of one request's blobs, each in one call: all keys have its suffix.

    Its commit need not reach the disk: without the row, nothing is recorded.
    """
    db.execute(text("SET LOCAL synchronous_commit = off"))
    suffix = make_suffix()
    identity = bytes.fromhex(suffix.removeprefix("."))  # of many blobs: no SHA-256 is this short
    upload = BlobUpload(grant.workspace_id, grant.experiment_id, identity, 0, suffix, _NO_MULTIPART)
    create(db, upload)
    return upload


def create(db: Connection, upload: BlobUpload) -> bool:
    """Insert an upload; return False if another request has inserted one for this blob."""
    statement = text("""
        INSERT INTO blob_uploads
            (workspace_id, experiment_id, sha256, size, object_suffix, upload_id)
        VALUES (:workspace_id, :experiment_id, :sha256, :size, :object_suffix, :upload_id)
        ON CONFLICT DO NOTHING RETURNING true
    """)
    return db.execute(statement, _parameters(upload)).one_or_none() is not None


def lock(db: Connection, upload: BlobUpload) -> bool:
    """Lock an upload until the transaction ends; return False if it has ended."""
    statement = text("""
        SELECT true FROM blob_uploads
        WHERE workspace_id = :workspace_id AND experiment_id = :experiment_id
            AND sha256 = :sha256 AND size = :size
            AND upload_id = :upload_id
        FOR UPDATE
    """)
    return db.execute(statement, _parameters(upload)).one_or_none() is not None


def delete(db: Connection, upload: BlobUpload) -> bool:
    """Delete an upload; return False if it has ended.

    Only a caller that gets True may record its object or delete it.
    """
    statement = text("""
        DELETE FROM blob_uploads
        WHERE workspace_id = :workspace_id AND experiment_id = :experiment_id
            AND sha256 = :sha256 AND size = :size
            AND upload_id = :upload_id
        RETURNING true
    """)
    return db.execute(statement, _parameters(upload)).one_or_none() is not None


def delete_stale(db: Connection, seconds: int, items_max: int) -> list[BlobUpload]:
    """Delete and return at most `items_max` uploads unused for `seconds`, of all workspaces.

    Uploads unused for longest are deleted first. The row policy `left_deleted` permits it.
    """
    left_before = db.execute(
        text("SELECT (now() - make_interval(secs => :seconds))::text"), {"seconds": seconds}
    )
    before = left_before.scalar_one()
    set_local(db, "left_before", before)
    stale = text("""
        SELECT workspace_id, experiment_id, sha256, size FROM blob_uploads
        WHERE touched_at < CAST(:before AS timestamptz) ORDER BY touched_at LIMIT :items_max
    """)
    keys = db.execute(stale, {"before": before, "items_max": items_max}).all()
    # One by one: a cluster deletes no rows of several nodes by a list of keys. They are few.
    statement = text("""
        DELETE FROM blob_uploads
        WHERE workspace_id = :workspace_id AND experiment_id = :experiment_id
            AND sha256 = :sha256 AND size = :size AND touched_at < CAST(:before AS timestamptz)
        RETURNING workspace_id, experiment_id, sha256, size, object_suffix, upload_id
    """)
    rows = [
        row for key in keys for row in db.execute(statement, {**key._mapping, "before": before})
    ]
    return [
        BlobUpload(WorkspaceId(row[0]), ExperimentId(row[1]), bytes(row[2]), *row[3:])
        for row in rows
    ]


def _parameters(upload: BlobUpload) -> dict[str, object]:
    return {
        "workspace_id": upload.workspace_id,
        "experiment_id": upload.experiment_id,
        "sha256": upload.sha256,
        "size": upload.size,
        "object_suffix": upload.object_suffix,
        "upload_id": upload.upload_id,
    }
