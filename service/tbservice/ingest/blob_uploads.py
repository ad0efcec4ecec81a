"""Upload large blobs in parts: any client may send any part again until the blob is complete.

The parts are those of an S3 multipart upload, with an object key of its own. Once all have
arrived, they are joined to an object, which is read back: a row refers to it only after its
SHA-256 was verified.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import Invalid, TooLarge
from tbservice.ingest.blobs import DIGEST_MISMATCH, content_type
from tbservice.store import blob_uploads, blobs
from tbservice.store.blob_uploads import BlobUpload
from tbservice.store.blobs import StoredBlob
from tbservice.store.objects import ObjectPart, ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import AppendGrant


@dataclass(frozen=True, slots=True)
class BlobState:
    """Whether a batch may refer to a blob, and how many bytes from its start were received."""

    is_stored: bool
    received_bytes: int


def get_state(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    *,
    is_repair: bool = False,
) -> BlobState:
    """Return the state of a blob of `size` bytes; blobs that the grant may not use are not disclosed.

    A blob counts as not stored if its object is missing or has another size: it must be uploaded
    again. With `is_repair`, no blob counts as stored: its object may be damaged, which only
    reading it shows.
    """
    is_stored, upload = _find_blob_or_upload(
        database, objects, grant, sha256, size, is_repair=is_repair
    )
    if is_stored:
        return BlobState(is_stored=True, received_bytes=size)
    if upload is None:
        return BlobState(is_stored=False, received_bytes=0)
    parts = objects.list_parts(upload.object_key, upload.upload_id)
    if parts is not None:
        return BlobState(is_stored=False, received_bytes=_count_received_bytes(parts, size))
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
    """Store a part of a blob; the last missing one completes it. Parts may be repeated, in any order.

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
        Invalid: Offset or length are wrong, or the blob has another SHA-256: then all parts are deleted.
        TooLarge: The blob is too large.
    """
    _check_part(size, offset, length)
    upload = _begin_upload(database, objects, grant, sha256, size, is_repair=is_repair)
    if upload is None:
        return BlobState(is_stored=True, received_bytes=size)

    part = ObjectPart(offset // limits.BLOB_PART_BYTES + 1, length, "")
    is_part_stored = _store_object_part(database, objects, grant, upload, part, content)
    if is_part_stored and offset + length < size:
        return BlobState(is_stored=False, received_bytes=offset + length)

    received_bytes = _join_parts(database, objects, grant, upload)
    if received_bytes < size:
        return BlobState(is_stored=False, received_bytes=received_bytes)
    return _verify_and_record(database, objects, grant, upload, is_repair=is_repair)


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
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.lock(db, upload):
            return False
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:
            return False
        if any((other.number, other.size) == (part.number, part.size) for other in parts):
            return True
        return objects.put_part(upload.object_key, upload.upload_id, part.number, content)


def _join_parts(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> int:
    """Join the parts to an object if all were received; return the bytes received without a gap.

    One request at a time: during the join, S3 may list neither all of the parts nor the object.
    """
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.lock(db, upload) or objects.find_size(upload.object_key) == upload.size:
            return upload.size  # another request has joined them
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:  # S3 has lost parts and object, which the verification will find
            return upload.size
        received_bytes = _count_received_bytes(parts, upload.size)
        if received_bytes == upload.size:
            objects.complete_multipart(upload.object_key, upload.upload_id, parts)
        return received_bytes


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


def _find_blob_or_upload(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    size: int,
    *,
    is_repair: bool = False,
) -> tuple[bool, BlobUpload | None]:
    """Return whether a blob and its object are stored for this grant; if not, its upload, if any."""
    with database.transaction(grant.workspace_id) as db:
        blob = None if is_repair else blobs.find_usable(db, grant, [sha256]).get(sha256)
        upload = None if blob else blob_uploads.touch(db, grant, sha256, size)
    if blob is None:
        return False, upload
    if objects.find_size(blob.object_key) == blob.size:
        return True, None
    with database.transaction(grant.workspace_id) as db:
        return False, blob_uploads.touch(db, grant, sha256, size)


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
    is_stored, upload = _find_blob_or_upload(
        database, objects, grant, sha256, size, is_repair=is_repair
    )
    while upload is None and not is_stored:
        _delete_stale_uploads(database, objects)
        suffix = f".{secrets.token_hex(8)}"
        upload_id = objects.create_multipart(blobs.object_key(grant.workspace_id, sha256, suffix))
        upload = BlobUpload(
            grant.workspace_id, grant.experiment_id, sha256, size, suffix, upload_id
        )
        with database.transaction(grant.workspace_id) as db:
            is_first = blob_uploads.create(db, upload)
        if not is_first:
            objects.abort_multipart(upload.object_key, upload_id)
            is_stored, upload = _find_blob_or_upload(
                database, objects, grant, sha256, size, is_repair=is_repair
            )
    return upload


def _count_received_bytes(parts: Sequence[ObjectPart], size: int) -> int:
    """Return how many bytes from the start of the blob its parts contain without a gap."""
    sizes = {part.number: part.size for part in parts}
    received_bytes, number = 0, 1
    while received_bytes < size and sizes.get(number) == min(
        limits.BLOB_PART_BYTES, size - received_bytes
    ):
        received_bytes += sizes[number]
        number += 1
    return received_bytes


def _verify_and_record(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    upload: BlobUpload,
    *,
    is_repair: bool,
) -> BlobState:
    """Verify the joined object and record it; two requests may do so at the same time."""
    if objects.find_size(upload.object_key) != upload.size:
        _discard_upload(database, objects, grant, upload)
        is_stored, _ = _find_blob_or_upload(database, objects, grant, upload.sha256, upload.size)
        return BlobState(is_stored=is_stored, received_bytes=upload.size if is_stored else 0)

    digest, head = hashlib.sha256(), b""
    for chunk in objects.read(upload.object_key, 0, upload.size):
        head = head or chunk[:16]
        digest.update(chunk)
    if digest.digest() != upload.sha256:
        _discard_upload(database, objects, grant, upload)
        raise Invalid(DIGEST_MISMATCH)
    stored = StoredBlob(upload.sha256, upload.size, content_type(head), upload.object_suffix)
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
    """Record a verified object unless another request has ended the upload; keep one object per blob.

    If the workspace has the blob, its object is kept and the new one deleted; vice versa if that
    is missing or to be repaired.
    """
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.delete(db, upload):
            is_stored = upload.sha256 in blobs.find_usable(db, grant, [upload.sha256])
            return BlobState(is_stored=is_stored, received_bytes=upload.size if is_stored else 0)
        blobs.record(db, grant.workspace_id, [stored])
        blobs.add_to_experiment(db, grant, upload.sha256)
        unused_key = _choose_object(db, objects, upload, is_repair=is_repair)
    if unused_key is not None:
        objects.delete(unused_key)
    return BlobState(is_stored=True, received_bytes=upload.size)


def _choose_object(
    db: Connection, objects: ObjectStore, upload: BlobUpload, *, is_repair: bool
) -> str | None:
    """Decide which of two objects of a blob its row refers to; return the key of the other, if any."""
    known = blobs.find(db, upload.workspace_id, upload.sha256)
    if known is None or known.object_key == upload.object_key:
        return None
    if not is_repair and objects.find_size(known.object_key) == known.size:
        return upload.object_key
    return blobs.move(db, upload.workspace_id, upload.sha256, upload.object_suffix)


def _discard_upload(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> None:
    """Delete an upload and its objects, unless another request has ended it."""
    with database.transaction(grant.workspace_id) as db:
        if blob_uploads.delete(db, upload):
            _delete_objects(objects, upload)


def _delete_stale_uploads(database: Database, objects: ObjectStore) -> None:
    """Delete a few abandoned uploads; done here, so that no process has to schedule it."""
    with database.transaction() as db:
        for upload in blob_uploads.delete_stale(
            db, limits.BLOB_UNFINISHED_SECONDS_MAX, limits.BLOB_SWEEP_ITEMS_MAX
        ):
            _delete_objects(objects, upload)


def _delete_objects(objects: ObjectStore, upload: BlobUpload) -> None:
    """Delete parts and object, in the transaction that deletes the upload: it fails if S3 does."""
    objects.abort_multipart(upload.object_key, upload.upload_id)
    objects.delete(upload.object_key)
