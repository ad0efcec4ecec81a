"""Run the migrations that a database lacks, while servers use it.

Each migration is a transaction of its own, so that its locks are released before the next begins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, NullPool, exc, text

from tbservice import limits
from tbservice.db import schema_versions
from tbservice.db.blockers import describe_blockers
from tbservice.db.cluster import distribution, policies
from tbservice.db.engine import make_engine
from tbservice.db.schema_versions import (
    COMPRESSED_BLOCKS,
    SWEPT_OBJECTS,
    Migration,
    list_missing_migrations,
    read_revisions,
)
from tbservice.errors import StartupError

ADVISORY_LOCK_ID = 8_317_446_903
"""Number of the advisory lock that lets one process migrate a database at a time: arbitrary."""

MIGRATE_PAUSE_SECONDS: Final = 5.0
"""Seconds between two attempts of a migration to lock its tables."""

MIGRATE_STATEMENT_SECONDS_MAX: Final = 30.0
"""Seconds a statement of a migration may take while the transaction's locks keep others out."""

MIGRATE_CONCURRENT_SECONDS_MAX: Final = 24 * 3600.0
"""Seconds a statement of a migration may take that works beside reads and writes."""

MIGRATE_POLL_SECONDS: Final = 0.5
"""Seconds between two looks whether another process still migrates the database."""

MIGRATE_ATTEMPTS_MAX: Final = 100
"""Attempts of a migration to lock its tables: about 13 minutes of the seconds above."""

_LOCK_NOT_AVAILABLE: Final = "55P03"
"""SQLSTATE of a lock that could not be acquired within lock_timeout (PostgreSQL, appendix A)."""


def upgrade(
    database_url: str, *, compress_blocks: bool = False, sweep_objects: bool = False
) -> list[str]:
    """Run the missing migrations and return their names, oldest first.

    If several processes call it at once, one migrates; the others wait and then find nothing to do.
    A failed migration leaves the ones before it in place, and the next call begins with it.

    A lock on a table is awaited for `MIGRATE_LOCK_SECONDS_MAX`, because every later statement on
    that table queues behind the waiting one. Then the migration is rolled back and, after
    `MIGRATE_PAUSE_SECONDS`, tried again.

    Args:
        database_url: A libpq URL of the role that owns the database.
        compress_blocks: Whether programs must read compressed blocks from now on, so that those
            that do write them.
        sweep_objects: Whether programs must lock the blobs that they refer to from now on, so that
            objects may be deleted beside them. A database that was empty requires both from its
            beginning.

    Raises:
        UnknownMigration: This program does not work with the database.
        StartupError: The URL is malformed, a table was in use at each of `MIGRATE_ATTEMPTS_MAX`
            attempts, or a migration failed.
    """
    engine = make_engine(database_url, poolclass=NullPool)
    names = []
    with _exclude_others(engine):
        is_new = _is_empty(engine)
        sweep_objects |= is_new  # no older server has ever used it
        while missing := _list_missing(engine):
            if missing[0].concurrent and not is_new:  # a new one has no rows
                _print_line(missing[0].describe())
            _run(engine, missing[0])
            names.append(missing[0].name)
        _repeat_while_in_use(engine, "distribution", [], lambda: distribution.arrange(engine))
        if compress_blocks or sweep_objects:
            with engine.begin() as db:
                _require(db, SWEPT_OBJECTS if sweep_objects else COMPRESSED_BLOCKS)
    return names


class MigrationCheck(NamedTuple):
    """Plan of `upgrade`."""

    applied: str | None
    """The latest migration of the database."""

    compresses_blocks: bool
    """Whether servers that are connected from now on write compressed blocks."""

    sweeps_objects: bool
    """Whether servers delete objects that nothing refers to."""

    missing: list[Migration]
    undistributed: list[str]
    """Tables of a cluster that are not distributed yet."""

    unadmitted: list[str]
    """Nodes of a cluster where the role that serves lacks its rights: those that were added."""

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.missing or self.undistributed or self.unadmitted)


def check(database_url: str) -> MigrationCheck:
    """Return what the database lacks; change nothing.

    Raises UnknownMigration if this program does not work with the database.
    """
    with make_engine(database_url, poolclass=NullPool).connect() as db:
        applied, required = read_revisions(db)
        return MigrationCheck(
            applied,
            (required or "") >= COMPRESSED_BLOCKS,
            (required or "") >= SWEPT_OBJECTS,
            list_missing_migrations(db),
            *distribution.list_lacking(db),
        )


def apply(db: Connection, name: str) -> None:
    """Run the next migration, which has this name, in the transaction of the connection."""
    from alembic import command  # noqa: PLC0415 - slow, and most starts have nothing to migrate
    from alembic.config import Config  # noqa: PLC0415

    configuration = Config()
    # Alembic reads the option with configparser, where % begins an interpolation.
    directory = str(schema_versions.find_migrations()).replace("%", "%%")
    configuration.set_main_option("script_location", directory)
    # Migrations are plain SQL: several statements per string, and % without a meaning.
    configuration.attributes["connection"] = db.execution_options(no_parameters=True)
    with policies.adapting(db):
        command.upgrade(configuration, name)


@contextmanager
def _exclude_others(engine: Engine) -> Iterator[None]:
    """Wait until no other process migrates, and keep others out until the block ends.

    CREATE INDEX CONCURRENTLY waits for every transaction with a snapshot that is older than it. So
    neither the process that waits may stay in a transaction, nor this one keep a snapshot.
    """
    # Tried again and again: a blocking call would be a transaction with a snapshot.
    # https://www.postgresql.org/docs/18/sql-createindex.html#SQL-CREATEINDEX-CONCURRENTLY
    locked = text("SELECT pg_try_advisory_xact_lock(:number)")
    with engine.connect() as db:
        while not db.execute(locked, {"number": ADVISORY_LOCK_ID}).scalar():
            db.rollback()
            time.sleep(MIGRATE_POLL_SECONDS)
        # Also replaces the portal of the SELECT, which would keep its snapshot.
        db.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield


def _is_empty(engine: Engine) -> bool:
    with engine.connect() as db:
        return read_revisions(db)[0] is None


def _require(db: Connection, name: str) -> None:
    """Let no program start on the database any more that does not know this migration."""
    # A column beside the revision, so that programs read both at once.
    db.execute(text("ALTER TABLE alembic_version ADD COLUMN IF NOT EXISTS required_revision text"))
    # `greatest` leaves NULL out: https://www.postgresql.org/docs/18/functions-conditional.html
    db.execute(
        text("UPDATE alembic_version SET required_revision = greatest(required_revision, :name)"),
        {"name": name},
    )


def _list_missing(engine: Engine) -> list[Migration]:
    with engine.connect() as db:
        return list_missing_migrations(db)


def _run(engine: Engine, migration: Migration) -> None:
    try:
        if migration.concurrent:
            _run_concurrently(engine, migration)
        else:
            _repeat_while_in_use(
                engine, migration.name, [*migration.locks], lambda: _run_once(engine, migration)
            )
    except exc.DBAPIError as error:
        raise StartupError(
            f"the database could not be migrated: {migration.name} failed and can be repeated, "
            f"those before it took effect: {error.orig}"
        ) from error


def _repeat_while_in_use(
    engine: Engine, name: str, tables: list[str], run: Callable[[], object]
) -> None:
    """Run a transaction; run it again while it does not get its locks on these tables."""
    for attempt in range(1, MIGRATE_ATTEMPTS_MAX + 1):
        try:
            run()
        except exc.OperationalError as error:
            # https://www.postgresql.org/docs/18/errcodes-appendix.html
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
        else:
            return

        blockers = describe_blockers(engine, tables)
        if attempt < MIGRATE_ATTEMPTS_MAX:
            pause = f"trying again in {MIGRATE_PAUSE_SECONDS:g} s"
            _print_line(f"{name}: a table is in use {blockers}; {pause}")
            time.sleep(MIGRATE_PAUSE_SECONDS)

    raise StartupError(
        f"{name} has changed nothing: a table was in use at each of {attempt} attempts "
        f"{blockers}; wait until long reads (exports, dumps) have ended, or end them with "
        "pg_terminate_backend, and migrate again"
    )


def _run_once(engine: Engine, migration: Migration) -> None:
    with engine.begin() as db:
        distribution.set_timeouts(
            db,
            lock_seconds=limits.MIGRATE_LOCK_SECONDS_MAX,
            statement_seconds=MIGRATE_STATEMENT_SECONDS_MAX,
        )
        apply(db, migration.name)
        if migration.required_revision:
            _require(db, migration.required_revision)


def _run_concurrently(engine: Engine, migration: Migration) -> None:
    """Run a migration outside a transaction: it waits for others, and nobody waits for it."""
    milliseconds = round(MIGRATE_CONCURRENT_SECONDS_MAX * 1000)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        # The role or the pooler may have shorter ones, made for requests.
        db.exec_driver_sql(f"SET statement_timeout = {milliseconds}")
        # It waits for others, by design, and nobody waits for it.
        db.exec_driver_sql("SET lock_timeout = 0")
        try:
            apply(db, migration.name)
        finally:  # behind a pooler, the session is used by others afterwards
            db.exec_driver_sql("RESET statement_timeout")
            db.exec_driver_sql("RESET lock_timeout")


def _print_line(line: str) -> None:
    print(f"tbservice: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress of a command
