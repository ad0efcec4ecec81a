"""Large blobs that arrive in pieces: any of them may be sent again, by any client, until the whole one is there.

The pieces are the parts of an S3 upload, under a name that no other object bears. When all are there, they become an
object, which is read back: only when its bytes are those of the blob's SHA-256 does a row name it.
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
    """Whether a batch may name a blob, and how many bytes from its start have been received; all of them if so."""

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
    """Return how far a blob of `size` bytes has come. What the grant may not name is never told.

    A blob whose object is lost or has another size is not stored: it has to be sent again. With `is_repair`, no blob
    counts as stored: its object may be damaged, which only reading it would tell.
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
    # They were joined, but nobody lived to verify them: that is done when the last piece comes again.
    return BlobState(
        is_stored=False,
        received_bytes=(size - 1) // limits.BLOB_PART_BYTES * limits.BLOB_PART_BYTES,
    )


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
    """Takes `length` bytes of a blob of `size` from `offset` on, from a seekable file; the last piece completes it.

    Pieces may come in any order and again. Those of a blob that is stored pass unread, unless the upload `is_repair`:
    then its object is replaced by the new one, which has been verified. `received_bytes` of the answer says where to
    go on: at 0 when what was there has been lost. Raises Invalid when the piece is not where pieces are, or all of
    them together have another SHA-256: then they are forgotten.
    """
    _check_part(size, offset, length)
    upload = _begin_upload(database, objects, grant, sha256, size, is_repair=is_repair)
    if upload is None:
        return BlobState(is_stored=True, received_bytes=size)
    number = offset // limits.BLOB_PART_BYTES + 1
    if (
        _store_object_part(
            database, objects, grant, upload, ObjectPart(number, length, ""), content
        )
        and offset + length < size
    ):
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
    """Put a part of an upload, unless it is there; return whether it is, False when the upload has ended.

    One request at a time, and no part twice: SeaweedFS deletes the bytes of a part that is replaced, also when an
    object that was joined meanwhile refers to them. They stay readable until its next vacuum, and then are lost.
    """
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.lock(db, upload):
            return False
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:
            return False
        if any((there.number, there.size) == (part.number, part.size) for there in parts):
            return True
        return objects.put_part(upload.object_key, upload.upload_id, part.number, content)


def _join_parts(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> int:
    """Makes the object when all parts are there; answers how many bytes from the start on there are.

    One request at a time: while an upload is being joined, S3 may show neither all of its parts nor its object.
    """
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.lock(db, upload) or objects.find_size(upload.object_key) == upload.size:
            return upload.size  # another request was quicker
        parts = objects.list_parts(upload.object_key, upload.upload_id)
        if parts is None:  # neither parts nor an object: S3 has lost both
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
            f"a piece begins at a multiple of {limits.BLOB_PART_BYTES} bytes and has as many, or ends with its blob"
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
    """Return whether a blob is stored for this grant, its object included; if not, its upload, if one was begun."""
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
    """The upload that is under way, or a new one; None when the blob is stored."""
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
    """How many bytes from the blob's start on its parts hold without a gap."""
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
    """Verifies the object that the pieces became, and records it; two requests may do so at once."""
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
    """Record a verified object, unless another request has ended the upload; keep one object for each blob.

    Where the workspace has the blob already, its object stays and the new one is deleted, unless that is lost or to be
    replaced: then it is the other way round.
    """
    with database.transaction(grant.workspace_id) as db:
        if not blob_uploads.delete(db, upload):
            is_stored = upload.sha256 in blobs.find_usable(db, grant, [upload.sha256])
            return BlobState(is_stored=is_stored, received_bytes=upload.size if is_stored else 0)
        blobs.record(db, grant.workspace_id, [stored])
        blobs.add_to_experiment(db, grant, upload.sha256)
        superfluous_key = _choose_object(db, objects, upload, is_repair=is_repair)
    if superfluous_key is not None:
        objects.delete(superfluous_key)
    return BlobState(is_stored=True, received_bytes=upload.size)


def _choose_object(
    db: Connection, objects: ObjectStore, upload: BlobUpload, *, is_repair: bool
) -> str | None:
    """Decide which of two objects of the same blob its row names; return the key of the other, None without two."""
    known = blobs.find(db, upload.workspace_id, upload.sha256)
    if known is None or known.object_key == upload.object_key:
        return None
    if not is_repair and objects.find_size(known.object_key) == known.size:
        return upload.object_key
    return blobs.move(db, upload.workspace_id, upload.sha256, upload.object_suffix)


def _discard_upload(
    database: Database, objects: ObjectStore, grant: AppendGrant, upload: BlobUpload
) -> None:
    """Forgets an upload and deletes what there is of it, unless another request has decided about it."""
    with database.transaction(grant.workspace_id) as db:
        if blob_uploads.delete(db, upload):
            _delete_objects(objects, upload)


def _delete_stale_uploads(database: Database, objects: ObjectStore) -> None:
    """Deletes what is left of blobs that nobody went on sending: here, so that no process has to wait for it."""
    with database.transaction() as db:
        for upload in blob_uploads.delete_stale(
            db, limits.BLOB_UNFINISHED_SECONDS_MAX, limits.BLOB_SWEEP_ITEMS_MAX
        ):
            _delete_objects(objects, upload)


def _delete_objects(objects: ObjectStore, upload: BlobUpload) -> None:
    """Deletes parts and object. Within the transaction that ends the upload: when S3 is away, it has not ended."""
    objects.abort_multipart(upload.object_key, upload.upload_id)
    objects.delete(upload.object_key)
