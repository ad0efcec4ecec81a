"""Queries of a backup: one state of the database, exported to pg_dump, and the blobs in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, NullPool, exc, text

from tbservice.db.cluster.citus import has_extension
from tbservice.db.engine import make_engine
from tbservice.db.pipeline import get_driver_connection, set_locals
from tbservice.errors import StartupError
from tbservice.objects.tables import object_references
from tbservice.objects.tables.blobs import object_key
from tbservice.types.identifiers import WorkspaceId

_BLOBS_PER_FETCH: Final = 5_000

_COUNTS: Final = {
    "workspaces": "SELECT count(*) FROM workspaces",
    "experiments": "SELECT count(*) FROM experiments",
    "series": "SELECT count(*) FROM time_series",
    "points": "SELECT coalesce(sum(count), 0)::bigint FROM time_series",
    "blobs": "SELECT count(*) FROM blobs",
}
"""Statements that count rows in the dumped state, and again after a restore."""

KEPT: Final = "kept"
"""Names of an erased experiment whose frozen copies were kept when it was deleted."""


class Erasure(NamedTuple):
    """Something that was erased, or a run or series of an experiment that was deleted.

    `kind` is experiment, workspace, person, run or series; or allow, of a run that may be uploaded
    again. `created_at` is that of a workspace, since a restored database gives its number to
    another one; else "". `names` is a JSON list of the run and the tag, as the audit log has them;
    `KEPT` for an experiment whose frozen copies were kept; else "". Times are in ISO 8601, UTC.
    `workspace_id` is 0 for a person.
    """

    erased_at: str
    kind: str
    workspace_id: int
    object_id: str
    created_at: str
    names: str = ""


def to_text(moment: datetime | None) -> str:
    """Return a time as the list has it; "" for none."""
    return "" if moment is None else moment.astimezone(UTC).isoformat()


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """A blob in one workspace; `size` in bytes."""

    sha256: bytes
    size: int
    workspace_id: WorkspaceId
    object_suffix: str

    @property
    def object_key(self) -> str:
        """Return the key of its object."""
        return object_key(self.workspace_id, self.sha256, self.object_suffix)


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Facts of the state that a backup has."""

    snapshot_id: str
    migration: str
    server_version: int
    counts: dict[str, int]


class BackupSession:
    """A connection with a snapshot at first, and one that keeps objects from being deleted."""

    def __init__(self, db: Connection, lock: Connection) -> None:
        """Use `open_session`."""
        self._db = db
        self._lock = lock

    def begin(self) -> SnapshotFacts:
        """Begin the snapshot. Raises StartupError if the role does not see everything."""
        self._check_role()
        # Before the snapshot: no object that it names may be deleted until `release`. An open
        # transaction without a statement keeps no snapshot, and so nothing from vacuum.
        self._lock.execute(text("BEGIN"))
        object_references.lock_out_deletion(self._lock)
        self._lock.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        self._db.execute(text("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
        snapshot_id = self._db.execute(text("SELECT pg_export_snapshot()")).scalar_one()
        migration = self._db.execute(text("SELECT max(version_num) FROM alembic_version"))
        counts = {name: int(self._scalar(statement)) for name, statement in _COUNTS.items()}
        version = int(self._scalar("SELECT current_setting('server_version_num')")) // 10_000
        return SnapshotFacts(snapshot_id, migration.scalar_one(), version, counts)

    def iter_blobs(self) -> Iterator[BlobPlace]:
        """Yield the blobs of the snapshot by SHA-256."""
        driver = get_driver_connection(self._db)
        with driver.cursor("blobs", binary=True) as cursor:
            cursor.itersize = _BLOBS_PER_FETCH
            cursor.execute(
                "SELECT sha256, size, workspace_id, object_suffix FROM blobs"
                " ORDER BY sha256, workspace_id"
            )
            for row in cursor:
                yield BlobPlace(*row)

    def list_erasures(self) -> list[Erasure]:
        """Return what the audit log of the snapshot says was erased."""
        if self._scalar("SELECT to_regclass('public.audit_records')") is None:
            return []
        statement = text("""
            SELECT r.recorded_at,
                CASE r.act WHEN 'run.allow' THEN 'allow' ELSE split_part(r.act, '.', 1) END AS kind,
                r.workspace_id, r.object_id,
                CASE WHEN r.act = 'workspace.erase' THEN w.created_at END, r.details
            FROM audit_records AS r LEFT JOIN workspaces AS w ON w.workspace_id = r.workspace_id
            WHERE r.act IN ('experiment.erase', 'person.erase', 'run.delete', 'run.allow',
                    'series.delete')
                OR (r.act = 'workspace.erase' AND r.workspace_id <> 0)
        """)
        return [
            Erasure(to_text(at), kind, number, object_id, to_text(created_at), _list_names(details))
            for at, kind, number, object_id, created_at, details in self._db.execute(statement)
        ]

    def end(self) -> None:
        """End the snapshot, so that PostgreSQL may clean up; keep the session."""
        self._db.execute(text("COMMIT"))

    def release(self) -> None:
        """Let objects be deleted again. Raises OperationalError if they might have been before."""
        self._lock.execute(text("COMMIT"))

    def find_key(self, place: BlobPlace) -> str | None:
        """Return the key that a blob's object has by now; None if the blob is gone."""
        statement = text("""
            SELECT object_suffix FROM blobs WHERE workspace_id = :workspace_id AND sha256 = :sha256
        """)
        parameters = {"workspace_id": place.workspace_id, "sha256": place.sha256}
        suffix = self._db.execute(statement, parameters).scalar_one_or_none()
        return None if suffix is None else object_key(place.workspace_id, place.sha256, suffix)

    def _scalar(self, statement: str) -> Any:
        return self._db.execute(text(statement)).scalar_one()

    def _check_role(self) -> None:
        role = self._db.execute(
            text("""
                SELECT rolname, rolsuper OR rolbypassrls AS sees_all,
                    pg_is_in_recovery() AS is_standby
                FROM pg_roles WHERE rolname = current_user
            """)
        ).one()
        if not role.sees_all:
            raise StartupError(
                f"the database role {role.rolname!r} sees the rows of no tenant, so that its "
                "backup would be empty: set TBHUB_BACKUP_DATABASE_URL to a role that is made by "
                "CREATE ROLE tbhub_backup LOGIN BYPASSRLS PASSWORD '…'; "
                "GRANT pg_read_all_data TO tbhub_backup"
            )
        if role.is_standby:
            raise StartupError(
                "this PostgreSQL is a standby, where a backup cannot keep objects from being "
                "deleted: connect to the primary"
            )
        if has_extension(self._db):
            raise StartupError(
                "this PostgreSQL is a cluster (Citus), of which no dump has one state: archive the "
                "write-ahead log of each node, and copy the bucket (docs/backup.md)"
            )


def _list_names(details: str) -> str:
    """Return the `names` of an erasure, from its record's details."""
    recorded = json.loads(details)
    if recorded.get("frozen_copies_kept"):
        return KEPT
    names = [each for key, each in recorded.items() if key in ("run", "tag")]
    return json.dumps(names) if names else ""


@contextmanager
def open_session(url: str) -> Iterator[BackupSession]:
    """Connect as the role of backups. Raises StartupError."""
    engine = make_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as db, engine.connect() as lock:
            yield BackupSession(db, lock)
    except exc.OperationalError as error:
        raise StartupError(f"the database cannot be used for a backup: {error.orig}") from error
    except exc.ProgrammingError as error:  # no table, or no right to read it
        raise StartupError(f"the database cannot be backed up: {error.orig}") from error
    finally:
        engine.dispose()


def describe_contents(db: Connection) -> str:
    """Return the name of a table or another relation that the database has; "" if it is empty."""
    statement = text("""
        SELECT c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
            AND n.nspname NOT LIKE 'pg\\_%'
        ORDER BY c.relname LIMIT 1
    """)
    name: str | None = db.execute(statement).scalar_one_or_none()
    return name or ""


def sees_all(db: Connection) -> bool:
    """Return whether the role sees the rows of all tenants."""
    statement = text("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
    return bool(db.execute(statement).scalar_one())


def count_workspace(db: Connection) -> dict[str, int]:
    """Return the counts of what the transaction's workspace has, for comparison with a backup's."""
    set_locals(db, {"tbhub.shows_deleted": "on"})
    return {
        name: int(db.execute(text(statement)).scalar_one())
        for name, statement in _COUNTS.items()
        if name != "workspaces"
    }


def analyze(db: Connection) -> None:
    """Collect the statistics of the planner, which a restored database lacks."""
    db.execute(text("ANALYZE"))
