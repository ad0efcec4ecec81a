"""Upload large blobs in parts: any client may send any part again until the blob is complete.

The parts are those of an S3 multipart upload, with its own object key. Once all have
arrived, they are joined to an object, which is read back: a row refers to it only after its
SHA-256 was verified.
"""

from __future__ import annotations

from typing import IO, Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import Conflict, Invalid, TooLarge
from tbservice.ingest import charges
from tbservice.ingest.blob_completion import (
    BlobState,
    count_received_bytes,
    delete_objects,
    find_blob_or_upload,
    join_parts,
    verify_and_record,
)
from tbservice.ingest.tables import blob_uploads
from tbservice.ingest.tables.blob_uploads import BlobUpload
from tbservice.objects.object_store import ObjectPart, ObjectStore
from tbservice.objects.tables import blobs
from tbservice.types.grants import AppendGrant

BLOB_UNFINISHED_SECONDS_MAX: Final = 7 * 24 * 3600
"""Seconds after its last part from which an unfinished blob upload is deleted."""

BLOBS_UNFINISHED_ITEMS_MAX: Final = 1_000
"""Large blobs (items) of an experiment whose upload has begun and not ended."""

BLOB_SWEEP_ITEMS_MAX: Final = 10
"""Unfinished blob uploads deleted at a time, whenever a new one begins."""


def get_state(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    *,
    is_repair: bool = False,
) -> BlobState:
    """Return the state of a blob of `size` bytes, as far as the grant may know it.

    A blob counts as not stored if its object is missing or has another size: it must be uploaded
    again. With `is_repair`, no blob counts as stored: its object may be damaged, which only
    reading it shows.
    """
    is_stored, upload = find_blob_or_upload(
        database, objects, grant, sha256, size, is_repair=is_repair
    )
    if is_stored:
        return BlobState(is_stored=True, received_bytes=size)
    if upload is None:
        return BlobState(is_stored=False, received_bytes=0)
    parts = objects.list_parts(upload.object_key, upload.upload_id)
    if parts is not None:
        return BlobState(is_stored=False, received_bytes=count_received_bytes(parts, size))
    if objects.find_size(upload.object_key) != size:
        return BlobState(is_stored=False, received_bytes=0)
    # Joined but not verified, as a process ended: repeating the last part verifies the object.
    before_last_part = (size - 1) // limits.BLOB_PART_BYTES * limits.BLOB_PART_BYTES
    return BlobState(is_stored=False, received_bytes=before_last_part)


def store_part(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    offset: int,
    content: IO[bytes],
    length: int,
    *,
    is_repair: bool = False,
) -> BlobState:
    """Store a part of a blob; the last missing one completes it.

    Parts may be sent in any order, and repeated.
    Parts of a stored blob are not read, unless `is_repair`: then its object is replaced by the new
    one, once that is verified. The client resumes from `received_bytes` of the result, which is 0
    if the object store has lost the parts.

    Args:
        database: For short transactions before and after calls to the object store.
        objects: The object store.
        grant: The right to append to the experiment.
        sha256: The digest of the blob.
        size: Bytes of the blob.
        offset: Byte offset of the part, a multiple of `BLOB_PART_BYTES`.
        content: A seekable file.
        length: Bytes of the part.
        is_repair: Whether to replace a stored object.

    Raises:
        Invalid: Offset or length are wrong; or the blob has another SHA-256, and its parts were
            deleted.
        TooLarge: The blob is too large.
        Conflict: Too many blobs of the experiment are unfinished (`experiment_full`).
        QuotaExceeded: The workspace has no room for it and what is unfinished.
    """
    _check_part(size, offset, length)
    upload = _begin_upload(database, objects, grant, sha256, size, is_repair=is_repair)
    if upload is None:
        return BlobState(is_stored=True, received_bytes=size)

    # S3 counts parts from 1: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
    part = ObjectPart(offset // limits.BLOB_PART_BYTES + 1, length, "")
    is_part_stored = _store_object_part(database, objects, grant, upload, part, content)
    if is_part_stored and offset + length < size:
        return BlobState(is_stored=False, received_bytes=offset + length)

    received_bytes = join_parts(database, objects, grant, upload)
    if received_bytes < size:
        return BlobState(is_stored=False, received_bytes=received_bytes)
    return verify_and_record(database, objects, grant, upload, is_repair=is_repair)


def _store_object_part(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    upload: BlobUpload,
    part: ObjectPart,
    content: IO[bytes],
) -> bool:
    """Store a part of an upload if it is missing; return False if the upload has ended.

    One request at a time, and no part twice: SeaweedFS deletes the bytes of a part that is
    replaced, even if an object was joined from it meanwhile. They remain readable until its next
    vacuum.
    """
    with database.transaction(grant) as db:
        if not blob_uploads.lock(db, upload):
            return False
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:
            return False
        if any((other.number, other.size) == (part.number, part.size) for other in parts):
            return True
        return objects.put_part(upload.object_key, upload.upload_id, part.number, content)


def _check_part(size: int, offset: int, length: int) -> None:
    if size > limits.BLOB_BYTES_MAX:
        raise TooLarge(f"a blob has at most {limits.BLOB_BYTES_MAX} bytes")
    is_last = offset + length == size
    if (
        length == 0
        or offset % limits.BLOB_PART_BYTES
        or not (is_last or length == limits.BLOB_PART_BYTES)
    ):
        raise Invalid(
            f"a part begins at a multiple of {limits.BLOB_PART_BYTES} bytes and has that many, "
            "or ends at the end of its blob"
        )


def _begin_upload(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    *,
    is_repair: bool,
) -> BlobUpload | None:
    """Return the current upload or a new one; None if the blob is stored."""
    is_stored, upload = find_blob_or_upload(
        database, objects, grant, sha256, size, is_repair=is_repair
    )
    # Two clients may begin the same blob: the row decides, and the loser's multipart upload is
    # aborted.
    while upload is None and not is_stored:
        delete_stale_uploads(database, objects)
        with database.transaction(grant) as db:
            is_known = blobs.find(db, grant.workspace_id, sha256) is not None
            # Unfinished uploads are in the bucket as well, up to their size.
            unfinished = _check_unfinished(db, grant)
            charges.reserve_blobs(db, grant, 0 if is_known else size + unfinished)
        # A key of its own: parts that do not have the digest must not replace an object in use.
        suffix = blob_uploads.make_suffix()
        upload_id = objects.create_multipart(blobs.object_key(grant.workspace_id, sha256, suffix))
        upload = BlobUpload(
            grant.workspace_id, grant.experiment_id, sha256, size, suffix, upload_id
        )
        with database.transaction(grant) as db:
            is_first = blob_uploads.create(db, upload)
        if not is_first:
            objects.abort_multipart(upload.object_key, upload_id)
            is_stored, upload = find_blob_or_upload(
                database, objects, grant, sha256, size, is_repair=is_repair
            )
    return upload


def _check_unfinished(db: Connection, grant: AppendGrant) -> int:
    """Return the bytes of the experiment's unfinished blobs. Raise Conflict for too many."""
    count, size = blob_uploads.measure(db, grant.experiment_id)
    if count >= BLOBS_UNFINISHED_ITEMS_MAX:
        days = BLOB_UNFINISHED_SECONDS_MAX // 86_400
        raise Conflict(
            f"{count:,} large blobs of this experiment are unfinished, the most there can be: "
            f"send the rest of one; what nothing is sent of is deleted after {days} days",
            code="experiment_full",
        )
    return size


def delete_stale_uploads(database: Database, objects: ObjectStore) -> None:
    """Delete a few abandoned uploads: whenever another one begins, and before each sweep."""
    with database.transaction() as db:
        for upload in blob_uploads.delete_stale(
            db, BLOB_UNFINISHED_SECONDS_MAX, BLOB_SWEEP_ITEMS_MAX
        ):
            delete_objects(objects, upload)
