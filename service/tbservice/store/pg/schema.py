"""The check that a database can be served from: every migration is there, and the role sees one tenant at a time."""

from __future__ import annotations

from sqlalchemy import text

from tbservice.errors import StartupError
from tbservice.store.pg.database import Database
from tbservice.store.pg.migrate import UnknownMigration, list_missing_migrations


class SchemaMismatch(StartupError):
    """The database lacks a migration, has one from a newer tbhub, or its role would see every tenant's rows."""


def check_schema(database: Database) -> None:
    """Raises SchemaMismatch, which names the missing migrations, unless the database can be served from."""
    with database.transaction() as db:
        try:
            missing = list_missing_migrations(db)
        except UnknownMigration as error:
            raise SchemaMismatch(str(error)) from error
        if missing:
            raise SchemaMismatch(
                f"the database lacks the migrations {', '.join(missing)}: run 'tbservice migrate'"
            )
        role = db.execute(
            text(
                "SELECT rolname, rolsuper OR rolbypassrls AS sees_all FROM pg_roles WHERE rolname = current_user"
            )
        ).one()
        if role.sees_all:
            raise SchemaMismatch(
                f"the database role {role.rolname!r} is a superuser or bypasses row-level security, so that nothing "
                "would keep tenants apart: connect as an ordinary role that owns the database"
            )
