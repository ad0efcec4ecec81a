"""Functions of the maintenance commands: `check`, `backup` and `restore`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

from tbservice import limits
from tbservice.audit.acting import begin_command
from tbservice.audit.acts import Act
from tbservice.audit.backups import RecordedBackup
from tbservice.audit.backups import list_backups as list_recorded
from tbservice.audit.recording import record
from tbservice.backup import restore
from tbservice.backup.create import Backup
from tbservice.backup.manifest import Manifest
from tbservice.backup.restore import BackupReader
from tbservice.backup.targets import is_bucket, open_target
from tbservice.db.database import Database
from tbservice.db.schema import check_schema
from tbservice.errors import CommandFailed, StartupError, Unavailable
from tbservice.integrity.check import Check, CheckOptions
from tbservice.integrity.findings import Damage, Findings
from tbservice.integrity.sweep import Swept
from tbservice.integrity.sweeper import sweep_now
from tbservice.objects.object_store import ObjectStore
from tbservice.server.administration import open_database
from tbservice.server.command_settings import open_settings
from tbservice.server.erasing_again import erase_again
from tbservice.settings import Settings
from tbservice.throttle import Progress, Throttle

MAINTENANCE_BYTES_PER_SECOND: Final = 100 * limits.MIB
"""Bytes a second that `check`, `backup` and `restore` read at most, unless told otherwise."""

MAINTENANCE_REPORT_SECONDS: Final = 5
"""Seconds between two lines of progress of a command of maintenance."""

_NO_NEW_BACKUP: Final = (
    "there is no new backup; the same command continues with the objects that are missing"
)
_RESTORE_AGAIN: Final = (
    "nothing is restored; add --keep-objects to the same command to continue with the objects that "
    "are missing, or delete a --data-dir and run it again"
)
_ERASE_AGAIN: Final = (
    "everything is restored, also what was erased since the backup: run the same command with "
    "--erasures-only before the service starts"
)


@contextmanager
def open_target_settings(place: str, data_dir: Path | None) -> Iterator[Settings | None]:
    """Yield what reading a backup takes: settings for one in a bucket, None for a directory."""
    if is_bucket(place):
        with open_settings(data_dir) as settings:
            yield settings
    else:
        yield None


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def make_throttle(mebibytes: float | None) -> Throttle:
    """Return a throttle for MiB a second; None: the default, 0: no limit."""
    if mebibytes is None:
        return Throttle(MAINTENANCE_BYTES_PER_SECOND)
    return Throttle(mebibytes * limits.MIB if mebibytes else None)


def make_progress(*, is_quiet: bool) -> Progress:
    """Return a progress that writes to stderr, or nothing."""
    return Progress(None if is_quiet else MAINTENANCE_REPORT_SECONDS)


@contextmanager
def _open_stores(settings: Settings, connections: int) -> Iterator[tuple[Database, ObjectStore]]:
    url = settings.database_url.get_secret_value()
    with closing(Database(url, connections)) as database, closing(ObjectStore(settings)) as objects:
        yield database, objects


def check_service(
    settings: Settings,
    options: CheckOptions,
    throttle: Throttle,
    progress: Progress,
    show: Callable[[Damage], None],
) -> tuple[Findings, bool]:
    """Check a service; return what was found, and whether the check came to its end.

    Raises StartupError or Unavailable if it cannot run.
    """
    with _open_stores(settings, 2) as (database, objects):
        check_schema(database)
        check = Check(database, objects, options, throttle, progress, show)
        try:
            with interruptible():
                return check.run(), True
        except KeyboardInterrupt:
            return check.findings, False


def sweep_objects(settings: Settings, days: float, progress: Progress, *, deletes: bool) -> Swept:
    """Delete objects older than `days` that nothing refers to, or count them.

    Raises StartupError and Unavailable as `sweep_now` does.
    """
    with _open_stores(settings, 1) as (database, objects):
        check_schema(database)
        return sweep_now(database, objects, days, progress, deletes=deletes)


def back_up(settings: Settings, place: str, throttle: Throttle, progress: Progress) -> Manifest:
    """Back up a service to a directory or s3://BUCKET/PREFIX, and return the backup's manifest.

    Raises StartupError or Unavailable if it cannot begin, and CommandFailed if it fails then: the
    target has no new backup, and the next one uses what was copied.
    """
    url = settings.backup_database_url or settings.database_url
    with closing(ObjectStore(settings)) as objects, closing(open_target(place, settings)) as target:
        backup = Backup(objects, target, _list_programs(), throttle, progress)
        try:
            with interruptible():
                return backup.run(url.get_secret_value())
        except KeyboardInterrupt:
            raise CommandFailed(f"interrupted: {_NO_NEW_BACKUP}") from None
        except (StartupError, Unavailable) as error:
            if not backup.has_begun:
                raise
            raise CommandFailed(f"{error}: {_NO_NEW_BACKUP}") from error


def record_backup(settings: Settings, place: str, manifest: Manifest) -> None:
    """Record a complete backup in the audit log of the service. Raises Unavailable."""
    begin_command("tbservice backup")
    keep_days = settings.backup_keep_days
    with open_database(settings) as database, database.transaction() as db:
        record(
            db,
            Act.DATABASE_BACKUP,
            None,
            manifest.name,
            target=place,
            began_at=manifest.started_at,
            bytes=manifest.database.bytes + manifest.object_bytes,
            objects=manifest.objects,
            lost=len(manifest.lost),
            keep_days=None if keep_days is None else str(keep_days),
        )


def find_last_backup(settings: Settings) -> RecordedBackup | None:
    """Return the last backup that the audit log has."""
    with open_database(settings) as database, database.snapshot() as db:
        return next(iter(list_recorded(db, limit=1)), None)


def format_metrics(finished_at: float, lost_objects: int) -> str:
    """Return the metrics of a backup in Prometheus' text format; the time is in Unix seconds."""
    values = {
        "tbhub_last_backup_timestamp_seconds": ("When the last backup was complete", finished_at),
        "tbhub_last_backup_lost_objects": (
            "Objects that were missing or damaged when the last backup was made",
            lost_objects,
        ),
    }
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {value:.0f}\n"
        for name, (text, value) in values.items()
    )


def write_metrics(file: Path, manifest: Manifest) -> None:
    """Write a backup's metrics to a file, in one step. Raises CommandFailed."""
    finished_at = datetime.fromisoformat(manifest.finished_at).timestamp()
    draft = file.with_name(file.name + ".new")
    try:
        draft.write_text(format_metrics(finished_at, len(manifest.lost)))
        draft.replace(file)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}") from error


def list_backups(settings: Settings | None, place: str) -> list[str]:
    """Return the names of the complete backups of a target, the oldest first."""
    with closing(open_target(place, settings)) as target:
        return restore.list_backups(target)


def verify_backup(
    settings: Settings | None,
    place: str,
    name: str | None,
    throttle: Throttle,
    progress: Progress,
    *,
    reads_content: bool,
) -> tuple[Manifest, list[str]]:
    """Verify a backup, the newest by default; return its manifest and what is wrong with it.

    Raises StartupError if there is none.
    """
    try:
        with _open_backup(settings, place, name, throttle, progress) as reader:
            return reader.manifest, reader.verify(reads_content=reads_content)
    except KeyboardInterrupt:
        raise StartupError("interrupted: run the same command again") from None


def restore_backup(
    settings: Settings,
    place: str,
    name: str | None,
    throttle: Throttle,
    progress: Progress,
    *,
    keeps_objects: bool,
    erases_only: bool = False,
) -> tuple[Manifest, dict[str, int]]:
    """Restore a backup, the newest by default, into the database and the bucket of the settings.

    What was erased since it was made is deleted again. With `erases_only`, nothing else is done: to
    a database that was restored before. Returns the manifest, and how many were deleted, by kind.

    Raises StartupError or Unavailable if it cannot begin, and CommandFailed if it fails then: the
    database is unchanged, and the bucket has some of the objects, unless the error says that
    everything is restored.
    """
    objects, is_restored = ObjectStore(settings), False
    try:
        with _open_backup(settings, place, name, throttle, progress) as reader:
            erased = reader.list_erasures()  # before anything is written: it may be damaged
            if not erases_only:
                _run_restore(reader, settings, objects, keeps_objects=keeps_objects)
            is_restored = True
            return reader.manifest, erase_again(settings, reader.manifest.name, erased)
    except KeyboardInterrupt:
        advice = _ERASE_AGAIN if is_restored else _RESTORE_AGAIN
        raise CommandFailed(f"interrupted: {advice}") from None
    finally:
        objects.close()


def _run_restore(
    reader: BackupReader, settings: Settings, objects: ObjectStore, *, keeps_objects: bool
) -> None:
    try:
        reader.restore(
            settings.database_url.get_secret_value(), objects, keeps_objects=keeps_objects
        )
    except CommandFailed:
        raise
    except (StartupError, Unavailable) as error:
        if not reader.has_begun:
            raise
        raise CommandFailed(f"{error}: {_RESTORE_AGAIN}") from error


@contextmanager
def _open_backup(
    settings: Settings | None, place: str, name: str | None, throttle: Throttle, progress: Progress
) -> Iterator[BackupReader]:
    with closing(open_target(place, settings)) as target:
        manifest = restore.read_manifest(target, name)
        with interruptible():
            yield BackupReader(target, manifest, _list_programs(), throttle, progress)


def _list_programs() -> list[Path]:
    """Return the directory of the embedded PostgreSQL's programs, if it is installed."""
    from tbservice.local.embedded.postgres import find_programs  # noqa: PLC0415 - needs its extra

    try:
        return [find_programs()]
    except StartupError:
        return []
