"""The database schema's migrations: where they are, which of them a database lacks, and running those."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine, text

from tbservice.startup_errors import CannotRun

ADVISORY_LOCK = 8_317_446_903
"""Number of the lock that lets one process migrate a database at a time; any number nobody else uses."""


class UnknownMigration(CannotRun):
    """The database was migrated by a newer program."""


def upgrade(database_url: str) -> list[str]:
    """Brings a database to the newest schema and returns the names of the migrations that ran, oldest first.

    All of them in one transaction: either all take effect or none. Of several processes at once one works and the
    others wait, then find nothing to do. `database_url` is a libpq URL of the role that owns the database. Raises
    UnknownMigration.
    """
    engine = create_engine(driver_url(database_url), poolclass=NullPool)
    with engine.begin() as db:
        db.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": ADVISORY_LOCK})
        missing = missing_migrations(db)
        if missing:
            _run(db)
        return missing


def missing_migrations(db: Connection) -> list[str]:
    """The names (`0001_first`) of the migrations that the database lacks, oldest first.

    Raises UnknownMigration when the database has one that this program does not know: it is older than the database.
    """
    names = sorted(file.stem for file in (find_migrations() / "versions").glob("[0-9]*.py"))
    applied = _applied(db)
    if applied is not None and applied not in map(_number, names):
        raise UnknownMigration(
            f"the database has migration {applied}, which this tbhub does not know: install a newer one"
        )
    return [name for name in names if applied is None or _number(name) > applied]


def find_migrations() -> Path:
    """The migrations' directory: inside an installed package, or beside `service/` in a working tree."""
    packaged = Path(__file__).with_name("_migrations")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def driver_url(database_url: str) -> str:
    """SQLAlchemy's form of a libpq URL."""
    return "postgresql+psycopg://" + database_url.split("://", 1)[1]


def _run(db: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - takes long, and most starts have nothing to migrate
    from alembic.config import Config  # noqa: PLC0415

    configuration = Config()
    configuration.set_main_option("script_location", str(find_migrations()).replace("%", "%%"))
    # Migrations are plain SQL: several statements in one string, and % with no meaning to the driver.
    configuration.attributes["connection"] = db.execution_options(no_parameters=True)
    command.upgrade(configuration, "head")


def _applied(db: Connection) -> str | None:
    """The number of the newest migration that the database has; None for an empty database."""
    if db.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None
    applied: str | None = db.execute(text("SELECT max(version_num) FROM alembic_version")).scalar()
    return applied


def _number(name: str) -> str:
    """`0001` of `0001_first`: a file's number is Alembic's revision."""
    return name.split("_", 1)[0]
