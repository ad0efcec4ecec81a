"""Complete uploads of large blobs: join their parts, verify the object, and record it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import Invalid
from tbservice.ingest import charges
from tbservice.ingest.blobs import DIGEST_MISMATCH
from tbservice.ingest.tables import blob_uploads
from tbservice.ingest.tables.blob_uploads import BlobUpload
from tbservice.objects.object_store import ObjectPart, ObjectStore
from tbservice.objects.tables import blobs
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.types.grants import AppendGrant
from tbwire.media_types import HEAD_BYTES, find_media_type


@dataclass(frozen=True, slots=True)
class BlobState:
    """Whether a batch may refer to a blob, and how many bytes from its start were received."""

    is_stored: bool
    received_bytes: int


def find_blob_or_upload(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    *,
    is_repair: bool = False,
) -> tuple[bool, BlobUpload | None]:
    """Return whether a blob and its object are stored for this grant; if not, also its upload."""
    with database.transaction(grant) as db:
        blob = None if is_repair else blobs.find_usable(db, grant, [sha256]).get(sha256)
        upload = None if blob else blob_uploads.touch(db, grant, sha256, size)
        if blob is None and upload is None and not is_repair:
            # Between the two statements, another client's request may have completed the upload.
            blob = blobs.find_usable(db, grant, [sha256]).get(sha256)
    if blob is None:
        return False, upload
    if objects.find_size(blob.object_key) == blob.size:
        return True, None
    with database.transaction(grant) as db:
        return False, blob_uploads.touch(db, grant, sha256, size)


def count_received_bytes(parts: Sequence[ObjectPart], size: int) -> int:
    """Return how many bytes from the start of the blob its parts contain without a gap."""
    sizes = {part.number: part.size for part in parts}
    received_bytes, number = 0, 1
    while received_bytes < size and sizes.get(number) == min(
        limits.BLOB_PART_BYTES, size - received_bytes
    ):
        received_bytes += sizes[number]
        number += 1
    return received_bytes


def join_parts(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> int:
    """Join the parts to an object if all were received; return the bytes received without a gap.

    One request at a time: during the join, S3 may list neither all of the parts nor the object.
    """
    with database.transaction(grant) as db:
        if not blob_uploads.lock(db, upload) or objects.find_size(upload.object_key) == upload.size:
            return upload.size  # another request has joined them
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:  # S3 has lost parts and object, which the verification will find
            return upload.size
        received_bytes = count_received_bytes(parts, upload.size)
        if received_bytes == upload.size:
            objects.complete_multipart(upload.object_key, upload.upload_id, parts)
        return received_bytes


def verify_and_record(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    upload: BlobUpload,
    *,
    is_repair: bool,
) -> BlobState:
    """Verify the joined object and record it; two requests may do so at the same time."""
    # Only the size is cheap to ask for; the bytes are read below.
    if objects.find_size(upload.object_key) != upload.size:
        _discard_upload(database, objects, grant, upload)
        is_stored, _ = find_blob_or_upload(database, objects, grant, upload.sha256, upload.size)
        return BlobState(is_stored=is_stored, received_bytes=upload.size if is_stored else 0)

    digest, head = hashlib.sha256(), b""
    for chunk in objects.read(upload.object_key, 0, upload.size):
        head = head or chunk[:HEAD_BYTES]
        digest.update(chunk)
    # All parts are thrown away: nobody knows which of them is wrong.
    if digest.digest() != upload.sha256:
        _discard_upload(database, objects, grant, upload)
        raise Invalid(DIGEST_MISMATCH)
    stored = StoredBlob(upload.sha256, upload.size, find_media_type(head), upload.object_suffix)
    return _record_blob(database, objects, grant, upload, stored, is_repair=is_repair)


def _record_blob(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    upload: BlobUpload,
    stored: StoredBlob,
    *,
    is_repair: bool,
) -> BlobState:
    """Record a verified object unless another request has done so; keep one object per blob.

    If the workspace has the blob, its object is kept and the new one deleted; vice versa if that
    is missing or to be repaired.
    """
    with database.transaction(grant) as db:
        if not blob_uploads.delete(db, upload):
            is_stored = upload.sha256 in blobs.find_usable(db, grant, [upload.sha256])
            return BlobState(is_stored=is_stored, received_bytes=upload.size if is_stored else 0)
        charges.record_blobs(db, grant, [stored])
        blobs.add_to_experiment(db, grant, upload.sha256)
        unused_key = _choose_object(db, objects, upload, is_repair=is_repair)
    if unused_key is not None:
        objects.delete(unused_key)
    return BlobState(is_stored=True, received_bytes=upload.size)


def _choose_object(
    db: Connection, objects: ObjectStore, upload: BlobUpload, *, is_repair: bool
) -> str | None:
    """Let the row of a blob refer to one of its objects; return the key of the other, if any."""
    known = blobs.find(db, upload.workspace_id, upload.sha256)
    if known is None or known.object_key == upload.object_key:
        return None
    if not is_repair and objects.find_size(known.object_key) == known.size:
        return upload.object_key
    is_moved = blobs.move(db, upload.workspace_id, known, upload.object_suffix)
    return known.object_key if is_moved else upload.object_key


def _discard_upload(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> None:
    """Delete an upload and its objects, unless another request has ended it."""
    with database.transaction(grant) as db:
        if blob_uploads.delete(db, upload):
            delete_objects(objects, upload)


def delete_objects(objects: ObjectStore, upload: BlobUpload) -> None:
    """Delete parts and object, in the transaction that deletes the upload: it fails if S3 does."""
    if not upload.is_multipart:
        return  # a sweep finds what it wrote
    objects.abort_multipart(upload.object_key, upload.upload_id)
    objects.delete(upload.object_key)
