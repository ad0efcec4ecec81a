"""Store blobs in the object store before anything refers to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, Final

from sqlalchemy import Connection

from tbservice.db.database import Database
from tbservice.errors import Invalid, ObjectMissing, ObjectUnreadable, ServiceError, Unavailable
from tbservice.ingest import charges
from tbservice.ingest.batch import InlineBlob, Segment, iter_inline_blobs
from tbservice.ingest.tables import blob_uploads
from tbservice.ingest.tables.blob_uploads import BlobUpload
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.types.grants import AppendGrant
from tbservice.types.series import Blob
from tbwire.media_types import HEAD_BYTES, find_media_type

_CONCURRENT_CALLS_MAX: Final = 8
_READ_BYTES: Final = 1024 * 1024
DIGEST_MISMATCH: Final = "the SHA-256 of the bytes is not the one in the request"


def store_inline(
    database: Database, objects: ObjectStore, grant: AppendGrant, segments: Sequence[Segment]
) -> None:
    """Store a batch's inline blobs that are new in the workspace or have lost their object.

    A lost object is missing or has another size. The size of every known blob's object is read:
    that takes half the time of storing it again. Runs before the transaction of the batch, so that
    no connection waits for S3. If the batch is refused afterwards, objects remain that nothing
    refers to. Raises Unavailable if a sweep has taken this for an upload that had ended, and
    QuotaExceeded: before any is stored, and afterwards only if others took the room.
    """
    sent = {blob.sha256: blob for blob in iter_inline_blobs(segments)}
    if not sent:
        return
    with database.transaction(grant) as db:
        known = blobs.find_all(db, grant.workspace_id, sent)
        new = (len(blob.content) for digest, blob in sent.items() if digest not in known)
        charges.reserve_blobs(db, grant, sum(new))

    def is_missing(blob: InlineBlob) -> bool:
        stored = known.get(blob.sha256)
        return stored is None or objects.find_size(stored.object_key) != stored.size

    # S3 takes milliseconds for an object however small it is: a summary of images would wait for
    # each in turn.
    with ThreadPoolExecutor(min(_CONCURRENT_CALLS_MAX, len(sent))) as pool:
        looks = zip(sent.values(), pool.map(is_missing, sent.values()), strict=True)
        missing = [blob for blob, is_new in looks if is_new]
        if not missing:
            return
        with _begin_puts(database, grant) as upload:

            def put(blob: InlineBlob) -> StoredBlob:
                content, suffix = blob.content, upload.object_suffix
                objects.put(blobs.object_key(grant.workspace_id, blob.sha256, suffix), content)
                return StoredBlob(blob.sha256, len(content), find_media_type(content), suffix)

            stored = list(pool.map(put, missing))
            with database.transaction(grant) as db:
                unused = _record(db, grant, upload, stored, known)
    _delete_unused(objects, unused)


def store(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    content: IO[bytes],
    size: int,
) -> None:
    """Store one blob of `size` bytes from a seekable file; a repeat replaces a damaged object.

    Batches of the experiment may then refer to the blob, even if another experiment uploaded it
    before: the client has shown that it has the bytes. Raises Invalid if the SHA-256 does not
    match, Unavailable as `store_inline` does.
    """
    digest, head = hashlib.sha256(), b""
    # Before it is stored: no object may be under a digest that its bytes do not have.
    while chunk := content.read(_READ_BYTES):
        head = head or chunk[:HEAD_BYTES]
        digest.update(chunk)
    if digest.digest() != sha256:
        raise Invalid(DIGEST_MISMATCH)
    content.seek(0)

    with database.transaction(grant) as db:
        known = blobs.find_all(db, grant.workspace_id, [sha256])
        charges.reserve_blobs(db, grant, 0 if known else size)
    # Not stored again without a look: the key would be another one, and readers may have this one.
    if sha256 in known and _is_sound(objects, known[sha256]):
        with database.transaction(grant) as db:
            blobs.add_to_experiment(db, grant, sha256)
        return
    with _begin_puts(database, grant) as upload:
        suffix = upload.object_suffix
        objects.put(blobs.object_key(grant.workspace_id, sha256, suffix), content)
        stored = StoredBlob(sha256, size, find_media_type(head), suffix)
        with database.transaction(grant) as db:
            unused = _record(db, grant, upload, [stored], known)
            blobs.add_to_experiment(db, grant, sha256)
    _delete_unused(objects, unused)


@contextmanager
def _begin_puts(database: Database, grant: AppendGrant) -> Iterator[BlobUpload]:
    """Note that objects will be written, so that no sweep takes them for unused ones.

    After an error nothing more is recorded: what was written is left to a sweep.
    """
    with database.transaction(grant) as db:
        upload = blob_uploads.begin_puts(db, grant)
    try:
        yield upload
    except BaseException:
        with suppress(ServiceError), database.transaction(grant) as db:
            blob_uploads.delete(db, upload)
        raise


def _record(
    db: Connection,
    grant: AppendGrant,
    upload: BlobUpload,
    stored: Sequence[StoredBlob],
    known: Mapping[bytes, Blob],
) -> list[str]:
    """Record objects that were written; return the keys that no row names now.

    A row that names another object than `known` keeps it: another request has written that.
    """
    if not blob_uploads.delete(db, upload):
        raise Unavailable("the upload took too long, and its objects count as unused: try again")
    recorded = charges.record_blobs(db, grant, stored)
    unused = []
    for blob in stored:
        if blob.sha256 in recorded:
            continue
        lost = known.get(blob.sha256)
        if lost and blobs.move(db, upload.workspace_id, lost, blob.object_suffix):
            unused.append(lost.object_key)
        else:
            unused.append(blobs.object_key(upload.workspace_id, blob.sha256, blob.object_suffix))
    return unused


def _delete_unused(objects: ObjectStore, keys: Iterable[str]) -> None:
    """Delete objects that no row names, nor ever will; those that remain are left to a sweep."""
    with suppress(Unavailable):
        for key in keys:
            objects.delete(key)


def _is_sound(objects: ObjectStore, blob: Blob) -> bool:
    """Read an object, and return whether it has its bytes."""
    digest = hashlib.sha256()
    try:
        for chunk in objects.read(blob.object_key, 0, blob.size, is_brief=True):
            digest.update(chunk)
    except (ObjectMissing, ObjectUnreadable):
        return False
    return digest.hexdigest() == blob.sha256 and objects.find_size(blob.object_key) == blob.size
