"""Blobs: putting their bytes into the object store before anything names them, and finding those that may be read.

A blob's key is `<experiment>.<series>.<step>.<index>.<start of its SHA-256>`: it opens nothing without a grant on that
experiment, tells no names, and is good for as long as that step shows those bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import Invalid, NotFound
from tbservice.ingest.decode import InlineBlob, Segment, iter_inline_blobs
from tbservice.sample_order import compute_rank_and_key
from tbservice.store import blob_points, blobs, sample_slots
from tbservice.store.blobs import StoredBlob
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import AppendGrant, Blob, ExperimentId, ReadGrant

_CALLS_AT_ONCE: Final = 8
_KEY_DIGEST_CHARS: Final = 16
_READ_BYTES: Final = 1024 * 1024
DIGEST_MISMATCH: Final = "the bytes are not those of this SHA-256"
_BLOB_NOT_FOUND: Final = "there is no such blob, or it is not yours"

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


def make_blob_key(
    experiment_id: ExperimentId, series_id: int, step: int, index: int, sha256: bytes
) -> str:
    """The key of the blob at `index` of a step."""
    return f"{experiment_id}.{series_id}.{step}.{index}.{sha256.hex()[:_KEY_DIGEST_CHARS]}"


def parse_blob_experiment(key: str) -> ExperimentId:
    """Whose blob a key names: a grant on that experiment is what it takes. Raises NotFound when it is no key."""
    return parse_blob_key(key)[0]


def find_blob(db: Connection, grant: ReadGrant, key: str) -> Blob:
    """The blob that a key names. Raises NotFound for another experiment's, and when the step shows other bytes."""
    experiment_id, series_id, step, index, digest_start = parse_blob_key(key)
    if experiment_id != grant.experiment_id:
        raise NotFound(_BLOB_NOT_FOUND)
    rank, sample_key = compute_rank_and_key(np.array([step]), sample_slots.get_ranks(db))
    digests = blob_points.find_digests(
        db, experiment_id, series_id, int(rank[0]), int(sample_key[0])
    )
    if (
        digests is None
        or index >= len(digests)
        or not digests[index].hex().startswith(digest_start)
    ):
        raise NotFound(_BLOB_NOT_FOUND)
    blob = blobs.find(db, grant.workspace_id, digests[index])
    if blob is None:
        raise NotFound(_BLOB_NOT_FOUND)
    return blob


def parse_blob_key(key: str) -> tuple[ExperimentId, int, int, int, str]:
    """What `make_blob_key` made it of, of the SHA-256 only its beginning. Raises NotFound when it is no key."""
    try:
        experiment_id, series_id, step, index, digest_start = key.split(".")
        numbers = int(series_id), int(step), int(index)
    except ValueError as error:
        raise NotFound(_BLOB_NOT_FOUND) from error
    is_possible = (
        0 <= numbers[0] < 2**63 and -(2**63) <= numbers[1] < 2**63 and 0 <= numbers[2] < 2**31
    )
    if not is_possible or len(digest_start) != _KEY_DIGEST_CHARS:
        raise NotFound(_BLOB_NOT_FOUND)
    return ExperimentId(experiment_id), *numbers, digest_start
