"""Restore a backup into an empty database and an empty bucket, or verify it without restoring."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path

from tbservice.auth.tables import workspaces
from tbservice.backup import blob_list, dump, erasures
from tbservice.backup.client_programs import find_program
from tbservice.backup.copying import iter_file, map_threads, spooled
from tbservice.backup.manifest import (
    BACKUPS,
    OBJECTS,
    BackupDamaged,
    Manifest,
    StoredFile,
    manifest_of,
    object_name,
)
from tbservice.backup.tables import backup_snapshot
from tbservice.backup.tables.backup_snapshot import BlobPlace, Erasure
from tbservice.backup.targets import Target
from tbservice.db.database import Database
from tbservice.db.schema_versions import is_known_migration
from tbservice.errors import CommandFailed, StartupError, Unavailable
from tbservice.objects.object_store import ObjectStore
from tbservice.throttle import Progress, Throttle


def list_backups(target: Target) -> list[str]:
    """Return the names of the complete backups, the oldest first."""
    names = (name.split("/") for name in target.list_sizes(BACKUPS))
    return sorted(parts[1] for parts in names if parts[2:] == ["manifest.json"])


def read_manifest(target: Target, name: str | None) -> Manifest:
    """Return the manifest of a backup, or of the newest one. Raises StartupError."""
    complete = list_backups(target)
    if not complete:
        raise StartupError("there is no complete backup")
    if name is not None and name not in complete:
        raise StartupError(f"there is no complete backup {name!r}: the newest is {complete[-1]}")
    return Manifest.from_bytes(b"".join(target.read(manifest_of(name or complete[-1]))))


def list_later_erasures(target: Target, started_at: str) -> list[Erasure]:
    """Return what was erased after a time, or within a day before it: clocks may differ."""
    since = datetime.fromisoformat(started_at) - timedelta(days=1)
    listed = erasures.read(target)
    return [each for each in listed if datetime.fromisoformat(each.erased_at) > since]


class BackupReader:
    """Reads one backup, to verify it or to restore it."""

    def __init__(
        self,
        target: Target,
        manifest: Manifest,
        programs: Sequence[Path],
        throttle: Throttle,
        progress: Progress,
    ) -> None:
        """`programs` are directories with pg_restore, beside the usual ones."""
        self.manifest = manifest
        self._target = target
        self._programs = programs
        self._throttle = throttle
        self._progress = progress
        self._objects = 0
        self.has_begun = False
        """Whether something may have been written to the bucket."""

    def verify(self, *, reads_content: bool) -> list[str]:
        """Return what is damaged or missing, a line for each.

        The dump is hashed, and read by pg_restore. Every object is looked up with its size, and
        with `reads_content` hashed. Raises StartupError if there is no pg_restore that fits.
        """
        faults = []
        dumped, program = self.manifest.database, self._find_program()
        try:
            dump.list_contents(program, dumped, self._read(dumped))
        except StartupError as error:
            faults.append(str(error))
        try:
            for folder, stored in self._iter_folders():
                sized = self._find_faults(folder, stored, faults)
                for fault in map_threads(self._hash, sized if reads_content else ()):
                    faults += [fault] if fault else []
                if not reads_content:
                    for _ in sized:
                        pass
        except StartupError as error:
            faults.append(str(error))
        return faults

    def restore(self, url: str, objects: ObjectStore, *, keeps_objects: bool) -> None:
        """Restore the objects, then the database, and compare what it has with the manifest.

        Args:
            url: The empty database, with the role of the service, which will own everything.
            objects: The bucket.
            keeps_objects: Whether the bucket may have objects: those with the right size are kept.

        Raises:
            BackupDamaged: The backup is, or what was restored is not what was backed up.
            CommandFailed: The restore failed.
            StartupError: It cannot begin: the database or the bucket is not empty, for example.
            Unavailable: PostgreSQL or S3 is.
        """
        if not is_known_migration(self.manifest.migration):
            raise StartupError(
                f"the backup was made by tbhub {self.manifest.tbhub_version} and has the migration "
                f"{self.manifest.migration}, which this tbhub does not know: install that version"
            )
        program = self._find_program()
        database = Database(url, 1)
        try:
            self._check_empty(database, objects, keeps_objects=keeps_objects)
            self.has_begun = True
            # Objects first: rows that name missing objects would be a damaged service, the reverse
            # is waste.
            self._restore_objects(objects)
            self._progress.write("objects are restored; restoring the database")
            dumped = self.manifest.database
            dump.restore(url, program, dumped, self._read(dumped))
            try:
                self._compare_counts(database)
            except (KeyboardInterrupt, Unavailable) as error:
                raise CommandFailed(
                    "everything is restored, but was not compared with the backup: "
                    "run `tbservice check`, and the same command with --erasures-only"
                ) from error
        finally:
            database.close()

    def list_erasures(self) -> list[Erasure]:
        """Return what was erased since the backup was made. Raises BackupDamaged."""
        return list_later_erasures(self._target, self.manifest.started_at)

    def _find_program(self) -> Path:
        return find_program("pg_restore", self.manifest.server_version, self._programs)

    def _check_empty(
        self, database: Database, objects: ObjectStore, *, keeps_objects: bool
    ) -> None:
        with database.transaction() as db:
            if name := backup_snapshot.describe_contents(db):
                raise StartupError(
                    f"the database is not empty, it has {name!r}: a backup is restored into a new "
                    "database alone"
                )
            # A superuser passes row-level security:
            # https://www.postgresql.org/docs/18/ddl-rowsecurity.html
            if backup_snapshot.sees_all(db):
                raise StartupError(
                    "TBHUB_DATABASE_URL names a role that sees all tenants' rows, which the "
                    "service refuses to be: restore as the ordinary role that owns the database"
                )
        objects.ensure_bucket()
        # Other keys, such as that of a health check, are no objects of a workspace.
        is_used = (listed.key.partition("/")[0].isdecimal() for listed in objects.list_objects())
        if not keeps_objects and any(is_used):
            raise StartupError(
                "the bucket is not empty: name an empty one, or say --keep-objects to add to it "
                "what is missing, as after an interrupted restore"
            )

    def _restore_objects(self, objects: ObjectStore) -> None:
        def put(place: BlobPlace) -> None:
            if objects.find_size(place.object_key) == place.size:
                return
            with spooled(self._target.read(object_name(place.sha256)), self._throttle.spend) as (
                file,
                digest,
            ):
                if digest != place.sha256.hex():
                    raise BackupDamaged(f"{object_name(place.sha256)} of the backup is damaged")
                objects.put(place.object_key, file)

        lost = set(self.manifest.lost)
        places = (place for place in self._iter_blobs() if place.object_key not in lost)
        for _ in map_threads(put, places):
            self._report()

    def _compare_counts(self, database: Database) -> None:
        """Compare the counts of the restored rows with those of the state that was dumped."""
        with database.transaction() as db:
            ids = [workspace_id for workspace_id, _ in workspaces.list_all(db)]
        counts = dict.fromkeys(self.manifest.counts, 0) | {"workspaces": len(ids)}
        for workspace_id in ids:
            with database.snapshot(workspace_id) as db:
                for name, count in backup_snapshot.count_workspace(db).items():
                    counts[name] += count
        if counts != self.manifest.counts:
            raise BackupDamaged(
                f"the restored database has {counts}, and the backup {self.manifest.counts}"
            )
        with database.transaction() as db:
            backup_snapshot.analyze(db)

    def _iter_folders(self) -> Iterator[tuple[Iterator[list[BlobPlace]], dict[str, int]]]:
        """Yield the blobs by the first byte of their digests, with the files of that folder."""
        groups = blob_list.group_by_digest(self._iter_blobs())
        for first_byte, folder in groupby(groups, key=lambda places: places[0].sha256[:1]):
            yield folder, self._target.list_sizes(f"{OBJECTS}/{first_byte.hex()}")

    def _find_faults(
        self, groups: Iterable[list[BlobPlace]], stored: dict[str, int], faults: list[str]
    ) -> Iterator[BlobPlace]:
        """Yield the blobs whose file has the right size; add the others to the faults."""
        lost = set(self.manifest.lost)
        for places in groups:
            place = places[0]
            name = object_name(place.sha256)
            self._report()
            if place.object_key in lost:
                continue
            if stored.get(name) == place.size:
                yield place
            elif name not in stored:
                faults.append(f"{name} is missing")
            else:
                faults.append(f"{name} has {stored[name]} bytes, and must have {place.size}")

    def _hash(self, place: BlobPlace) -> str | None:
        digest = hashlib.sha256()
        name = object_name(place.sha256)
        for chunk in self._target.read(name):
            self._throttle.spend(len(chunk))
            digest.update(chunk)
        return None if digest.digest() == place.sha256 else f"{name} is damaged"

    def _iter_blobs(self) -> Iterator[BlobPlace]:
        """Yield the blobs of the backup, after the digest of their list was checked."""
        file = self.manifest.blobs
        with spooled(self._target.read(file.name), lambda _count: None) as (content, digest):
            if digest != file.sha256:
                raise BackupDamaged(f"{file.name} is damaged: it is not what the manifest says")
            yield from blob_list.decode(iter_file(content))

    def _read(self, file: StoredFile) -> Iterator[bytes]:
        for chunk in self._target.read(file.name):
            self._throttle.spend(len(chunk))
            yield chunk

    def _report(self) -> None:
        self._objects += 1
        self._progress.report(lambda: f"objects: {self._objects:,} of {self.manifest.objects:,}")
