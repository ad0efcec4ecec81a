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

_CONCURRENT_CALLS_MAX: Final = 8
_READ_BYTES: Final = 1024 * 1024
DIGEST_MISMATCH: Final = "the SHA-256 of the bytes is not the one in the request"

# Signatures at the start of a file: PNG (W3C, section 5.2), JPEG (ITU-T T.81, B.1.1.3: SOI and the
# next marker), GIF (GIF89a, section 17), BMP (BITMAPFILEHEADER), Ogg (RFC 3533, section 6), FLAC
# (RFC 9639, section 6), ID3v2 (id3.org, section 3.1). RIFF below: WAVE and WebP (RFC 9649, 2.4).
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
    """Return the content type of a blob that begins with `head`, from a list of safe types.

    Browsers display these types without running anything; other blobs are
    application/octet-stream.
    """
    if head[:4] == b"RIFF" and head[8:12] in {b"WAVE", b"WEBP"}:  # bytes 4 to 7 are a size
        return "audio/wav" if head[8:12] == b"WAVE" else "image/webp"
    return next(
        (kind for signature, kind in _SIGNATURES if head.startswith(signature)),
        "application/octet-stream",
    )


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
        return StoredBlob(blob.sha256, len(blob.content), content_type(blob.content[:16]))

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
    while chunk := content.read(_READ_BYTES):
        head = head or chunk[:16]
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
        blobs.record(db, grant.workspace_id, [StoredBlob(sha256, size, content_type(head))])
        blobs.add_to_experiment(db, grant, sha256)
