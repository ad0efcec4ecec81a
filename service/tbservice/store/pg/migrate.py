"""The database schema's migrations: where they are, which of them a database lacks, and running those."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, NullPool, exc, text

from tbservice import limits
from tbservice.errors import StartupError
from tbservice.store.pg.engine import make_engine

ADVISORY_LOCK_ID = 8_317_446_903
"""Number of the lock that lets one process migrate a database at a time; any number nobody else uses."""


_LOCK_NOT_AVAILABLE: Final = "55P03"
"""PostgreSQL's code for a lock that was not to be had within lock_timeout."""


class UnknownMigration(StartupError):
    """The database was migrated by a newer program."""


def upgrade(database_url: str) -> list[str]:
    """Bring a database to the newest schema and return the names of the migrations that ran, oldest first.

    All of them in one transaction: either all take effect or none. Of several processes at once one works and the
    others wait, then find nothing to do. A table's lock is waited for `MIGRATE_LOCK_SECONDS_MAX` at most, because
    every statement on that table queues behind the one that waits; then all is rolled back and, after a pause, tried
    again. `database_url` is a libpq URL of the role that owns the database.

    Raises:
        UnknownMigration: A newer program has migrated it.
        StartupError: The URL is malformed, or a table was in use at each of `MIGRATE_ATTEMPTS_MAX` attempts.
    """
    engine = make_engine(database_url, poolclass=NullPool)
    for attempt in range(1, limits.MIGRATE_ATTEMPTS_MAX + 1):
        try:
            return _upgrade(engine)
        except exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
        user = _describe_oldest_transaction(engine)
        if attempt < limits.MIGRATE_ATTEMPTS_MAX:
            _print_line(
                f"a table is in use{user}; trying again in {limits.MIGRATE_PAUSE_SECONDS:g} s"
            )
            time.sleep(limits.MIGRATE_PAUSE_SECONDS)
    raise StartupError(
        f"the database is as it was: a table was in use at each of {attempt} attempts{user}; wait until long reads "
        "(exports, dumps) have ended, or end them with pg_terminate_backend, and migrate again"
    )


def _upgrade(engine: Engine) -> list[str]:
    with engine.begin() as db:
        db.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": ADVISORY_LOCK_ID})
        milliseconds = round(limits.MIGRATE_LOCK_SECONDS_MAX * 1000)
        db.execute(
            text("SELECT set_config('lock_timeout', :timeout, true)"),
            {"timeout": str(milliseconds)},
        )
        missing = list_missing_migrations(db)
        if missing:
            _run(db)
        return missing


def _describe_oldest_transaction(engine: Engine) -> str:
    """Return words on the oldest other transaction that this role may see, which mostly is what is in the way."""
    statement = text("""
        SELECT pid, extract(epoch FROM now() - xact_start)::bigint AS seconds FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
        ORDER BY xact_start LIMIT 1
    """)
    with engine.connect() as db:
        row = db.execute(statement).one_or_none()
    return (
        ""
        if row is None
        else f" (the oldest transaction is of process {row.pid}, since {row.seconds} s)"
    )


def _print_line(line: str) -> None:
    print(f"tbservice: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress of a command


def list_missing_migrations(db: Connection) -> list[str]:
    """The names (`0001_first`) of the migrations that the database lacks, oldest first.

    Raises UnknownMigration when the database has one that this program does not know: it is older than the database.
    """
    names = sorted(file.stem for file in (find_migrations() / "versions").glob("[0-9]*.py"))
    applied = _get_applied_revision(db)
    if applied is not None and applied not in map(_parse_revision, names):
        raise UnknownMigration(
            f"the database has migration {applied}, which this tbhub does not know: install a newer one"
        )
    return [name for name in names if applied is None or _parse_revision(name) > applied]


def find_migrations() -> Path:
    """The migrations' directory: inside an installed package, or beside `service/` in a working tree."""
    package = Path(__file__).parents[2]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def _run(db: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - takes long, and most starts have nothing to migrate
    from alembic.config import Config  # noqa: PLC0415

    configuration = Config()
    configuration.set_main_option("script_location", str(find_migrations()).replace("%", "%%"))
    # Migrations are plain SQL: several statements in one string, and % with no meaning to the driver.
    configuration.attributes["connection"] = db.execution_options(no_parameters=True)
    command.upgrade(configuration, "head")


def _get_applied_revision(db: Connection) -> str | None:
    """The number of the newest migration that the database has; None for an empty database."""
    if db.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None
    applied: str | None = db.execute(text("SELECT max(version_num) FROM alembic_version")).scalar()
    return applied


def _parse_revision(name: str) -> str:
    """`0001` of `0001_first`: a file's number is Alembic's revision."""
    return name.split("_", 1)[0]
