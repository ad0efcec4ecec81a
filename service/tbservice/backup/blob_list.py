"""The list of a backup's blobs: a line for each, in the order of their SHA-256s, compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from tbservice.backup.manifest import BackupDamaged
from tbservice.backup.tables.backup_snapshot import BlobPlace
from tbservice.types.identifiers import WorkspaceId

_GZIP: Final = 31
"""zlib's window bits for the format of gzip."""

_CHUNK_BYTES: Final = 256 * 1024


def encode(places: Iterable[BlobPlace]) -> Iterator[bytes]:
    """Yield the list as gzip: SHA-256, bytes, workspace and suffix, separated by tabs."""
    compressor = zlib.compressobj(wbits=_GZIP)
    buffer: list[bytes] = []
    size = 0
    for place in places:
        values = (place.sha256.hex(), place.size, place.workspace_id, place.object_suffix)
        line = "\t".join(map(str, values)).encode() + b"\n"
        buffer.append(line)
        size += len(line)
        if size >= _CHUNK_BYTES:
            yield compressor.compress(b"".join(buffer))
            buffer, size = [], 0
    yield compressor.compress(b"".join(buffer)) + compressor.flush()


def decode(chunks: Iterable[bytes]) -> Iterator[BlobPlace]:
    """Yield the blobs of a list. Raises BackupDamaged."""
    decompressor = zlib.decompressobj(wbits=_GZIP)
    rest = b""
    try:
        for chunk in chunks:
            *lines, rest = (rest + decompressor.decompress(chunk)).split(b"\n")
            for line in lines:
                yield _parse(line)
    except (zlib.error, ValueError) as error:
        raise BackupDamaged("the backup's list of blobs is damaged") from error
    if rest or not decompressor.eof:
        raise BackupDamaged("the backup's list of blobs is cut off")


def group_by_digest(places: Iterable[BlobPlace]) -> Iterator[list[BlobPlace]]:
    """Yield the blobs with the same bytes together: one of each workspace that has them."""
    for _, group in groupby(places, key=lambda place: place.sha256):
        yield list(group)


def _parse(line: bytes) -> BlobPlace:
    digest, size, workspace_id, suffix = line.decode().split("\t")
    return BlobPlace(bytes.fromhex(digest), int(size), WorkspaceId(int(workspace_id)), suffix)
