"""Targets of backups: a directory, or a part of a bucket. A file is visible when it is complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from tbservice import limits
from tbservice.errors import ObjectMissing, StartupError
from tbservice.objects.object_store import ObjectStore
from tbservice.settings import Settings

BACKUP_PART_BYTES: Final = 64 * limits.MIB
"""Bytes of each part of a dump in a bucket, of which S3 allows 10,000."""

_READ_BYTES: Final = 256 * 1024
_URL: Final = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?")
_DRAFT: Final = ".part"
"""End of the name of a file that is being written."""


class DirectoryTarget:
    """A directory. Files are for their owner alone, and are on the disk when `write` returns."""

    def __init__(self, root: Path) -> None:
        """The directory is created when the first file is written."""
        self._root = root

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file, and rename it once it is complete."""
        path = self._root / name
        draft = path.with_name(path.name + _DRAFT)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor
                stream.writelines(chunks)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise StartupError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):  # what kept it from being written is the error to tell
                draft.unlink(missing_ok=True)

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        path = self._root / name
        try:
            with path.open("rb") as stream:
                while chunk := stream.read(_READ_BYTES):
                    yield chunk
        except OSError as error:
            raise StartupError(f"{path} cannot be read: {error.strerror}") from error

    def find_size(self, name: str) -> int | None:
        """Return the bytes of a file."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self._root / name).stat().st_size
        return None

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each file below a folder, without those that are being written."""
        sizes = {}
        for parent, _, names in os.walk(self._root / folder):
            for name in names:
                path = Path(parent, name)
                if not name.endswith(_DRAFT):
                    sizes[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return sizes

    def close(self) -> None:
        """Do nothing."""


class BucketTarget:
    """The keys of a bucket that begin with a prefix."""

    def __init__(self, objects: ObjectStore, prefix: str) -> None:
        """`prefix` is empty or ends with `/`."""
        self._objects = objects
        self._prefix = prefix

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object; a large one as a multipart upload, which is aborted on any error."""
        key, parts = self._prefix + name, iter(_group(chunks, BACKUP_PART_BYTES))
        first, second = next(parts, b""), next(parts, None)
        if second is None:
            self._objects.put(key, first)
            return
        upload_id = self._objects.create_multipart(key)
        try:
            self._write_parts(key, upload_id, chain((first, second), parts))
        except BaseException:
            with suppress(Exception):
                self._objects.abort_multipart(key, upload_id)
            raise

    def _write_parts(self, key: str, upload_id: str, parts: Iterable[bytes]) -> None:
        count = 0
        for part in parts:
            count += 1
            self._objects.put_part(key, upload_id, count, part)
        listed = self._objects.list_parts(key, upload_id) or []
        if len(listed) != count:
            raise StartupError(f"the object store has lost parts of {key}: try again")
        self._objects.complete_multipart(key, upload_id, listed)

    def read(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an object."""
        size = self.find_size(name)
        if size is None:
            raise StartupError(f"the backup has no {name}")
        try:
            yield from self._objects.read(self._prefix + name, 0, size)
        except ObjectMissing:
            raise StartupError(f"the backup has no {name} any more") from None

    def find_size(self, name: str) -> int | None:
        """Return the bytes of an object."""
        return self._objects.find_size(self._prefix + name)

    def list_sizes(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object below a folder."""
        prefix = f"{self._prefix}{folder}/"
        return {
            listed.key.removeprefix(self._prefix): listed.size
            for listed in self._objects.list_objects(prefix, prefix)
        }

    def close(self) -> None:
        """Close the connections."""
        self._objects.close()


Target = DirectoryTarget | BucketTarget
"""A place for files, each written once. Names are relative, with `/` between folders."""


def is_bucket(place: str) -> bool:
    """Return whether a target is in a bucket, which takes settings to be opened."""
    return place.startswith("s3:")


def open_target(place: str, settings: Settings | None) -> Target:
    """Return the target of a directory or of a URL `s3://bucket/prefix`. Raises StartupError."""
    if settings is None or not is_bucket(place):
        return DirectoryTarget(Path(place).expanduser().absolute())
    url = _URL.fullmatch(place)
    if url is None:
        raise StartupError(f"{place!r} is no s3://BUCKET/PREFIX")
    prefix = (url[2] or "").strip("/")
    if url[1] == settings.s3_bucket and settings.backup_s3_endpoint is None:
        raise StartupError("the backup needs another bucket than the service's objects")
    values = {
        "s3_bucket": url[1],
        "s3_endpoint": settings.backup_s3_endpoint or settings.s3_endpoint,
        "s3_region": settings.backup_s3_region or settings.s3_region,
        "s3_access_key": settings.backup_s3_access_key or settings.s3_access_key,
        "s3_secret_key": settings.backup_s3_secret_key or settings.s3_secret_key,
    }
    objects = ObjectStore(settings.model_copy(update=values))
    objects.ensure_bucket()
    return BucketTarget(objects, f"{prefix}/" if prefix else "")


def _group(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the bytes in pieces of `size`; the last one is smaller."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
