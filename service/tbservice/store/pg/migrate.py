"""Migrations of the database schema: where they are, which of them a database lacks, running them.

Terms: a migration's name is its file's name without `.py` (`0001_schema`), and also its revision in
Alembic. Names start with a number of four digits, so that their order is the order to run them in.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, NullPool, exc, text

from tbservice import limits
from tbservice.errors import StartupError
from tbservice.store.pg import distribution
from tbservice.store.pg.engine import make_engine

ADVISORY_LOCK_ID = 8_317_446_903
"""Number of the advisory lock that lets one process migrate a database at a time: arbitrary."""

_LOCK_NOT_AVAILABLE: Final = "55P03"
"""SQLSTATE of a lock that could not be acquired within lock_timeout (PostgreSQL, appendix A)."""

_DEVELOPMENT_REVISION: Final = re.compile(r"00(0[1-9]|10)")
"""Revisions of versions before 0.1.0: "0001" to "0010", numbers alone."""


class UnknownMigration(StartupError):
    """The database has a migration that this program lacks: of a newer one, or of before 0.1.0."""


def upgrade(database_url: str) -> list[str]:
    """Run the missing migrations and return their names, oldest first.

    All run in one transaction: either all take effect or none. Of several processes at once, one
    migrates; the others wait and then find nothing to do.

    A lock on a table is awaited for `MIGRATE_LOCK_SECONDS_MAX`, because every later statement on
    that table queues behind the waiting one. Then the transaction is rolled back and, after
    `MIGRATE_PAUSE_SECONDS`, tried again.

    Args:
        database_url: A libpq URL of the role that owns the database.

    Raises:
        UnknownMigration: A newer program, or one of before 0.1.0, has migrated the database.
        StartupError: The URL is malformed, or a table was in use at each of
            `MIGRATE_ATTEMPTS_MAX` attempts.
    """
    engine = make_engine(database_url, poolclass=NullPool)

    for attempt in range(1, limits.MIGRATE_ATTEMPTS_MAX + 1):
        try:
            names = _upgrade(engine)
            distribution.arrange(engine)
        except exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
        else:
            return names

        blocker = _describe_oldest_transaction(engine)
        if attempt < limits.MIGRATE_ATTEMPTS_MAX:
            _print_line(
                f"a table is in use{blocker}; trying again in {limits.MIGRATE_PAUSE_SECONDS:g} s"
            )
            time.sleep(limits.MIGRATE_PAUSE_SECONDS)

    raise StartupError(
        f"the database is unchanged: a table was in use at each of {attempt} attempts{blocker}; "
        "wait until long reads (exports, dumps) have ended, or end them with pg_terminate_backend, "
        "and migrate again"
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
    """Describe the oldest other transaction that this role can see, the most likely blocker."""
    statement = text("""
        SELECT pid, extract(epoch FROM now() - xact_start)::bigint AS seconds
        FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
        ORDER BY xact_start LIMIT 1
    """)
    with engine.connect() as db:
        row = db.execute(statement).one_or_none()
    if row is None:
        return ""
    return f" (the oldest transaction is of process {row.pid}, since {row.seconds} s)"


def _print_line(line: str) -> None:
    print(f"tbservice: {line}", file=sys.stderr, flush=True)  # noqa: T201 - progress of a command


def list_missing_migrations(db: Connection) -> list[str]:
    """Return the names of the migrations that the database lacks, oldest first.

    Raises:
        UnknownMigration: The database has one that this program lacks. The message says what to do.
    """
    names = sorted(file.stem for file in (find_migrations() / "versions").glob("[0-9]*.py"))
    applied = _get_applied_revision(db)
    if applied is None:
        return names
    if _DEVELOPMENT_REVISION.fullmatch(applied):
        raise UnknownMigration(
            f"this database was made by a development version before 0.1.0 (migration {applied}), "
            "which cannot be upgraded: export what you need with that version (tbupload export), "
            "then start with an empty database ('tbservice up': with another --data-dir)"
        )
    if applied not in names:
        raise UnknownMigration(
            f"the database has migration {applied}, which this tbhub does not know: "
            "install a newer version"
        )
    return [name for name in names if name > applied]


def is_known_migration(name: str) -> bool:
    """Return whether this program has the migration, and so all before it."""
    return (find_migrations() / "versions" / f"{name}.py").is_file()


def find_migrations() -> Path:
    """Return the migrations' directory: in the installed package, or beside `service/`."""
    package = Path(__file__).parents[2]
    packaged = package / "_migrations"
    return packaged if packaged.is_dir() else package.parents[1] / "migrations"


def _run(db: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - slow, and most starts have nothing to migrate
    from alembic.config import Config  # noqa: PLC0415

    configuration = Config()
    # Alembic reads the option with configparser, where % begins an interpolation.
    configuration.set_main_option("script_location", str(find_migrations()).replace("%", "%%"))
    # Migrations are plain SQL: several statements per string, and % without a meaning.
    configuration.attributes["connection"] = db.execution_options(no_parameters=True)
    command.upgrade(configuration, "head")


def _get_applied_revision(db: Connection) -> str | None:
    """Return the latest migration that the database has; None for an empty database."""
    if db.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None
    applied: str | None = db.execute(text("SELECT max(version_num) FROM alembic_version")).scalar()
    return applied
