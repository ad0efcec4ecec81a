"""Check at startup that a database can be served: schema up to date, role under row policies."""

from __future__ import annotations

from sqlalchemy import text

from tbservice.db.database import Database
from tbservice.db.schema_versions import OLDEST_SCHEMA, UnknownMigration, list_missing_migrations
from tbservice.errors import StartupError


class SchemaMismatch(StartupError):
    """This program does not work with the schema, or the role would see all tenants' rows."""


def check_schema(database: Database) -> list[str]:
    """Check that this program works with the schema, and that row-level security applies to it.

    Returns the names of missing migrations that it can do without for now, oldest first.

    Raises:
        SchemaMismatch: A migration is missing that this program needs, the schema is one of a newer
            program that this one does not work with, or the role bypasses row-level security. The
            message says which, and what to do.
    """
    with database.transaction() as db:
        try:
            missing = [migration.name for migration in list_missing_migrations(db)]
        except UnknownMigration as error:
            raise SchemaMismatch(str(error)) from error
        if missing and missing[0] <= OLDEST_SCHEMA:
            raise SchemaMismatch(
                f"the database lacks the migrations {', '.join(missing)}: run 'tbservice migrate'"
            )

        role = db.execute(
            text("""
                SELECT rolname, rolsuper OR rolbypassrls AS sees_all, EXISTS (
                    SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace
                        AND relrowsecurity AND NOT relforcerowsecurity
                        AND pg_has_role(relowner, 'USAGE')) AS owns_all
                FROM pg_roles WHERE rolname = current_user
            """)
        ).one()
        if role.sees_all:
            raise SchemaMismatch(
                f"the database role {role.rolname!r} is a superuser or bypasses row-level security,"
                " so that it would see every tenant's rows: connect as an ordinary role that owns"
                " the database"
            )
        if role.owns_all:
            raise SchemaMismatch(
                f"the database role {role.rolname!r} owns tables whose owner row-level security"
                " does not bind, so that it would see every tenant's rows: connect as the role"
                f" '{role.rolname}_app' (docs/citus.md)"
            )
    return missing
