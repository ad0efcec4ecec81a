"""Store blobs: their bytes go into the object store before anything refers to them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

from tbservice.errors import Invalid
from tbservice.ingest.batch import InlineBlob, Segment, iter_inline_blobs
from tbservice.store import blobs
from tbservice.store.blobs import StoredBlob
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import AppendGrant

_CALLS_AT_ONCE: Final = 8
_READ_BYTES: Final = 1024 * 1024
DIGEST_MISMATCH: Final = "the bytes are not those of this SHA-256"

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
)


def content_type(head: bytes) -> str:
    """What a blob that begins with `head` is served as: only types a browser shows without running anything."""
    if head[:4] == b"RIFF" and head[8:12] in {b"WAVE", b"WEBP"}:
        return "audio/wav" if head[8:12] == b"WAVE" else "image/webp"
    return next(
        (kind for signature, kind in _SIGNATURES if head.startswith(signature)),
        "application/octet-stream",
    )


def store_inline(
    database: Database, objects: ObjectStore, grant: AppendGrant, segments: Sequence[Segment]
) -> None:
    """Put the blobs that came inside a batch into the object store: new ones, and those whose object is lost.

    The object of each blob that the workspace has is looked for: that takes half the time of putting it again. A lost
    one has no object, or one of another size. Runs before the batch's transaction, so that no connection waits for S3.
    A batch that is refused afterwards leaves objects that nothing names.
    """
    sent = {blob.sha256: blob for blob in iter_inline_blobs(segments)}
    if not sent:
        return
    with database.transaction(grant.workspace_id) as db:
        known = blobs.find_all(db, grant.workspace_id, sent)

    def put(blob: InlineBlob) -> StoredBlob | None:
        stored = known.get(blob.sha256)
        if stored is not None and objects.find_size(stored.object_key) == stored.size:
            return None
        key = stored.object_key if stored else blobs.object_key(grant.workspace_id, blob.sha256)
        objects.put(key, blob.content)
        return StoredBlob(blob.sha256, len(blob.content), content_type(blob.content[:16]))

    with ThreadPoolExecutor(min(_CALLS_AT_ONCE, len(sent))) as pool:
        put_now = [blob for blob in pool.map(put, sent.values()) if blob is not None]
    if put_now:
        with database.transaction(grant.workspace_id) as db:
            blobs.record(db, grant.workspace_id, put_now)


def store(
    database: Database,
    objects: ObjectStore,
    grant: AppendGrant,
    sha256: bytes,
    content: IO[bytes],
    size: int,
) -> None:
    """Puts one blob of `size` bytes from a seekable file; putting it again repairs its object, if that was damaged.

    Whoever has sent the bytes may name the blob in batches of the experiment, whoever else has put it before. Raises
    Invalid when the bytes are not those that the SHA-256 says.
    """
    digest = hashlib.sha256()
    head = b""
    while piece := content.read(_READ_BYTES):
        head = head or piece[:16]
        digest.update(piece)
    if digest.digest() != sha256:
        raise Invalid(DIGEST_MISMATCH)
    content.seek(0)
    with database.transaction(grant.workspace_id) as db:
        known = blobs.find(db, grant.workspace_id, sha256)
    objects.put(
        known.object_key if known else blobs.object_key(grant.workspace_id, sha256), content
    )
    with database.transaction(grant.workspace_id) as db:
        blobs.record(db, grant.workspace_id, [StoredBlob(sha256, size, content_type(head))])
        blobs.add_to_experiment(db, grant, sha256)
