"""Make a backup: dump one state of the database, then copy every object that it names.

An object is written before the row that names it, and never changes: whatever the state names was
there when it was read. Objects that are deleted meanwhile are those that a repair has replaced
(their bytes are under another key): sweeps delete no row while a backup runs.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import IO

from tbservice.backup import blob_list, dump, erasures
from tbservice.backup.client_programs import find_program
from tbservice.backup.copying import iter_file, map_threads, spooled
from tbservice.backup.manifest import OBJECTS, Manifest, StoredFile, folder_of, manifest_of
from tbservice.backup.manifest import object_name as name_of
from tbservice.backup.tables.backup_snapshot import (
    BackupSession,
    BlobPlace,
    SnapshotFacts,
    open_session,
)
from tbservice.backup.targets import Target
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.objects.object_store import ObjectStore
from tbservice.throttle import Progress, Throttle


class Backup:
    """One backup of a service into a target."""

    def __init__(
        self,
        objects: ObjectStore,
        target: Target,
        programs: Sequence[Path],
        throttle: Throttle,
        progress: Progress,
    ) -> None:
        """`programs` are directories with pg_dump, beside the usual ones."""
        self._objects = objects
        self._target = target
        self._programs = programs
        self._throttle = throttle
        self._progress = progress
        self._session: BackupSession
        self._session_lock = threading.Lock()
        self._copied = self._copied_bytes = self._object_count = self._object_bytes = 0
        self._blob_count = 0
        self.has_begun = False
        """Whether something may have been written to the target."""
        self._failed: list[list[BlobPlace]] = []

    def run(self, url: str) -> Manifest:
        """Make the backup, and return its manifest, which is written last.

        Args:
            url: The database, with a role that sees all rows.

        Raises:
            StartupError: It cannot be made; the message says why. The next backup uses the objects
                that were copied (`has_begun`).
            Unavailable: The object store is.
        """
        started_at = datetime.now(UTC)
        name = f"{started_at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        with open_session(url) as session:
            self._session = session
            facts = session.begin()
            self._blob_count = facts.counts["blobs"]
            database = self._write_dump(name, url, facts)
            # To a file first: the snapshot is closed before the objects are copied, which may take
            # hours; an old snapshot keeps vacuum from its work.
            erased = session.list_erasures()
            with spooled(blob_list.encode(session.iter_blobs()), _ignore) as (file, _):
                session.end()
                blobs = self._write(f"{folder_of(name)}/blobs.tsv.gz", iter_file(file))
                file.seek(0)
                self._copy_objects(file)
                lost = self._copy_failed()
            session.release()
        manifest = Manifest(
            name,
            version("tbhub"),
            facts.migration,
            facts.server_version,
            started_at.isoformat(timespec="seconds"),
            datetime.now(UTC).isoformat(timespec="seconds"),
            database,
            blobs,
            self._object_count,
            self._object_bytes,
            self._copied,
            self._copied_bytes,
            facts.counts,
            lost,
        )
        erasures.add(self._target, erased)
        # Last: a backup without a manifest is none, so that one that was interrupted is never
        # restored.
        self._target.write(manifest_of(name), [manifest.to_bytes()])
        return manifest

    def _write_dump(self, name: str, url: str, facts: SnapshotFacts) -> StoredFile:
        program = find_program("pg_dump", facts.server_version, self._programs)
        chunks = dump.dump(url, program, facts.snapshot_id)
        sizes: list[int] = []

        def passed() -> Iterator[bytes]:
            for chunk in chunks:
                self.has_begun = True
                self._throttle.spend(len(chunk))
                sizes.append(len(chunk))
                self._progress.report(lambda: f"database: {sum(sizes) >> 20} MiB")
                yield chunk

        return self._write(f"{folder_of(name)}/database.dump", passed())

    def _write(self, name: str, chunks: Iterable[bytes]) -> StoredFile:
        """Write a file and return what was written."""
        digest = hashlib.sha256()
        size = 0

        def hashed() -> Iterator[bytes]:
            nonlocal size
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                yield chunk

        self._target.write(name, hashed())
        return StoredFile(name, size, digest.hexdigest())

    def _copy_objects(self, file: IO[bytes]) -> None:
        """Copy the objects that the target lacks, or has with another size."""
        groups = blob_list.group_by_digest(blob_list.decode(iter_file(file)))
        # 256 listings, whatever the number of objects, and never all names in memory.
        for first_byte, folder in groupby(groups, key=lambda places: places[0].sha256[:1]):
            stored = self._target.list_sizes(f"{OBJECTS}/{first_byte.hex()}")
            for _ in map_threads(self._copy, self._select_missing(folder, stored)):
                self._report()

    def _select_missing(
        self, groups: Iterable[list[BlobPlace]], stored: dict[str, int]
    ) -> Iterator[list[BlobPlace]]:
        for places in groups:
            size = places[0].size
            self._object_count += 1
            self._object_bytes += size
            self._report()
            if stored.get(name_of(places[0].sha256)) != size:
                yield places

    def _copy_failed(self) -> list[str]:
        """Try once more what failed: a connection may have broken. Return the keys that are lost.

        Raises Unavailable if the object store is away: what it cannot read then is not lost.
        """
        failed, self._failed = self._failed, []
        for places in failed:
            self._copy(places)
        return sorted(place.object_key for places in self._failed for place in places)

    def _copy(self, places: list[BlobPlace]) -> None:
        """Copy one object: from the first workspace that has it undamaged."""
        for place in places:
            with self._session_lock:
                current = self._session.find_key(place)
            # After a repair the bytes are under another key than in the state that was dumped.
            for key in dict.fromkeys((place.object_key, current or place.object_key)):
                if self._try_copy(key, place):
                    return
        # Raises if the store is away: an object that cannot be read then is not lost.
        self._objects.check()
        self._failed.append(places)

    def _try_copy(self, key: str, place: BlobPlace) -> bool:
        try:
            chunks = self._objects.read(key, 0, place.size)
            with spooled(chunks, self._throttle.spend) as (file, digest):
                # Damaged objects are not copied over a sound one of an earlier backup.
                if digest != place.sha256.hex():
                    return False
                self._target.write(name_of(place.sha256), iter_file(file))
        except (ObjectMissing, ObjectUnreadable):
            return False
        with self._session_lock:
            self._copied += 1
            self._copied_bytes += place.size
        return True

    def _report(self) -> None:
        self._progress.report(
            lambda: (
                f"objects: {self._object_count:,} of {self._blob_count:,} looked at, "
                f"{self._copied:,} copied ({self._copied_bytes >> 20} MiB)"
            )
        )


def _ignore(_count: int) -> None:
    """Count nothing: the list is small."""
