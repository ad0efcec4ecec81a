"""Store blobs in the object store before anything refers to them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

from tbservice.db.database import Database
from tbservice.errors import Invalid
from tbservice.ingest.batch import InlineBlob, Segment, iter_inline_blobs
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.types.grants import AppendGrant
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
    refers to.
    """
    sent = {blob.sha256: blob for blob in iter_inline_blobs(segments)}
    if not sent:
        return

    with database.transaction(grant) as db:
        known = blobs.find_all(db, grant.workspace_id, sent)

    def store_if_missing(blob: InlineBlob) -> StoredBlob | None:
        stored = known.get(blob.sha256)
        if stored is not None and objects.find_size(stored.object_key) == stored.size:
            return None
        key = stored.object_key if stored else blobs.object_key(grant.workspace_id, blob.sha256)
        objects.put(key, blob.content)
        return StoredBlob(blob.sha256, len(blob.content), find_media_type(blob.content))

    # S3 takes milliseconds for an object however small it is: a summary of images would wait for
    # each in turn.
    with ThreadPoolExecutor(min(_CONCURRENT_CALLS_MAX, len(sent))) as pool:
        results = list(pool.map(store_if_missing, sent.values()))
    stored_blobs = [blob for blob in results if blob is not None]
    if stored_blobs:
        with database.transaction(grant) as db:
            blobs.record(db, grant.workspace_id, stored_blobs)


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
    match.
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
        known = blobs.find(db, grant.workspace_id, sha256)
    objects.put(
        known.object_key if known else blobs.object_key(grant.workspace_id, sha256), content
    )
    with database.transaction(grant) as db:
        blobs.record(db, grant.workspace_id, [StoredBlob(sha256, size, find_media_type(head))])
        blobs.add_to_experiment(db, grant, sha256)
