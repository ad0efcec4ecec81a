"""The database of a command, and functions of `migrate`, `audit` and `expire-audit`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager

from sqlalchemy import Connection, exc

from tbservice.audit.acts import Act
from tbservice.audit.log import expire, read_after
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.auth.tables import workspaces as workspace_rows
from tbservice.db import migrate
from tbservice.db.database import Database
from tbservice.db.schema import check_schema
from tbservice.db.schema_versions import list_migrations
from tbservice.errors import StartupError
from tbservice.settings import Settings
from tbservice.types.audit import AuditRecord
from tbservice.types.identifiers import WorkspaceId


def upgrade_database(
    settings: Settings, *, compress_blocks: bool = False, sweep_objects: bool = False
) -> list[str]:
    """Migrate the database and return the names of the migrations that ran.

    With `compress_blocks` or `sweep_objects`, servers of the release before cannot start on it any
    more.

    Raises StartupError if the database refuses; the migration that failed has changed nothing.
    """
    with _one_line_errors("migrated"):
        names = migrate.upgrade(
            _database_url(settings), compress_blocks=compress_blocks, sweep_objects=sweep_objects
        )
    if names:
        with _open_as_owner(settings) as database, database.transaction() as db:
            record(db, Act.DATABASE_MIGRATE, None, names[-1], migrations=len(names))
    return names


def check_migrations(settings: Settings) -> tuple[list[str], bool]:
    """Return what a migration would do, in lines, and whether the schema is current.

    Changes nothing. Raises StartupError if this program does not work with the schema.
    """
    with _one_line_errors("checked"):
        found = migrate.check(_database_url(settings))
    lines = [migration.describe() for migration in found.missing]
    if found.undistributed:
        lines.append(
            f"not distributed over the cluster yet: {', '.join(found.undistributed)}; "
            "locks each until all are"
        )
    lines += [
        f"{node}: the role that serves lacks rights to the views of share links; locks nothing"
        for node in found.unadmitted
    ]
    if lines:
        return lines, False
    newest = list_migrations()[-1].name
    newer = (
        ""
        if found.applied == newest
        else f", newer than this tbhub ({newest}), which works with it"
    )
    lines = [f"up to date: {found.applied}{newer}"]
    if not found.compresses_blocks:
        lines.append(
            "blocks of scalars are not compressed: once no server of an older release runs, "
            "'tbservice migrate --compress-blocks' halves them"
        )
    if not found.sweeps_objects:
        lines.append(
            "objects of deleted data are kept: once no server of an older release runs, "
            "'tbservice migrate --sweep-objects' lets servers delete them"
        )
    return lines, True


def read_audit(
    settings: Settings, workspace_id: int | None, last: int
) -> Iterator[list[tuple[int, AuditRecord]]]:
    """Yield records in the order of their times: the last ones of each workspace, then new ones.

    Each step yields what is new since the one before. None for all workspaces, also those that are
    created meanwhile; 0 for acts of none.
    """
    numbers: defaultdict[WorkspaceId, int] = defaultdict(lambda: -last)
    with open_database(settings) as database:
        while True:
            with database.transaction() as db:
                found = [
                    (each, entry)
                    for each in _list_chains(db, workspace_id)
                    for entry in read_after(db, each, numbers[each])
                ]
            yield sorted(found, key=lambda item: item[1].recorded_at)
            numbers.default_factory = int
            numbers.update({each: entry.number for each, entry in found})


def expire_audit(settings: Settings) -> int:
    """Delete records that are older than the setting; return how many. Raises StartupError."""
    with _open_as_owner(settings) as database:
        with database.transaction() as db:
            chains = _list_chains(db, None)
        return sum(expire(database, each, settings.audit_days) for each in chains)


def _list_chains(db: Connection, workspace_id: int | None) -> list[WorkspaceId]:
    if workspace_id is not None:
        return [WorkspaceId(workspace_id)]
    return [NO_WORKSPACE, *dict(workspace_rows.list_all(db))]  # also of erased ones


def _database_url(settings: Settings) -> str:
    return settings.database_url.get_secret_value()


@contextmanager
def _one_line_errors(done: str) -> Iterator[None]:
    """Raise PostgreSQL's errors as StartupError: in one line, without a traceback."""
    try:
        yield
    except exc.DBAPIError as error:
        raise StartupError(f"the database could not be {done}: {error.orig}") from error


@contextmanager
def _open_as_owner(settings: Settings) -> Iterator[Database]:
    """Open the database as the owner of the tables, whom a cluster does not let serve."""
    with closing(Database(_database_url(settings), 1)) as database:
        yield database


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """Open the database of the settings. Raises SchemaMismatch if its schema is another."""
    with closing(Database(_database_url(settings), 1)) as database:
        check_schema(database)
        yield database
