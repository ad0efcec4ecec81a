"""The database schema's migrations: where they are, which of them a database lacks, and running those."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, NullPool, create_engine, text

ADVISORY_LOCK = 8_317_446_903
"""Number of the lock that lets one process migrate a database at a time; any number nobody else uses."""


def upgrade(database_url: str) -> list[str]:
    """Brings a database to the newest schema and returns the names of the migrations that ran, oldest first.

    All of them in one transaction: either all take effect or none. Of several processes at once one works and the
    others wait, then find nothing to do. `database_url` is a libpq URL of the role that owns the database.
    """
    engine = create_engine(driver_url(database_url), poolclass=NullPool)
    with engine.begin() as db:
        db.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": ADVISORY_LOCK})
        missing = missing_migrations(db)
        configuration = Config()
        configuration.set_main_option("script_location", str(find_migrations()).replace("%", "%%"))
        # Migrations are plain SQL: several statements in one string, and % with no meaning to the driver.
        configuration.attributes["connection"] = db.execution_options(no_parameters=True)
        command.upgrade(configuration, "head")
        return missing


def missing_migrations(db: Connection) -> list[str]:
    """The names (`0001_first`) of the migrations that the database lacks, oldest first.

    Raises UnknownMigration when the database has one that this program does not know: it is older than the database.
    """
    scripts = ScriptDirectory(find_migrations())
    applied = MigrationContext.configure(db).get_current_revision()
    revisions = list(scripts.walk_revisions())  # newest first
    if applied is not None and applied not in {revision.revision for revision in revisions}:
        raise UnknownMigration(
            f"the database has migration {applied}, which this tbhub does not know: install a newer one"
        )
    missing = []
    for revision in revisions:
        if revision.revision == applied:
            break
        missing.append(Path(revision.path).stem)
    return missing[::-1]


class UnknownMigration(Exception):
    """The database was migrated by a newer program."""


def find_migrations() -> Path:
    """The migrations' directory: inside an installed package, or beside `service/` in a working tree."""
    packaged = Path(__file__).with_name("_migrations")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def driver_url(database_url: str) -> str:
    """SQLAlchemy's form of a libpq URL."""
    return "postgresql+psycopg://" + database_url.split("://", 1)[1]
