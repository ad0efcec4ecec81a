"""State of the database for operators: versions, size, migrations, and which programs use it."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.schema_versions import list_missing_migrations, read_revisions


class DatabaseState(NamedTuple):
    """The database: its PostgreSQL, size (bytes), migrations, and connections by program."""

    server_version: str
    size: int
    migration: str
    missing_migrations: tuple[str, ...]
    connections: tuple[tuple[str, int], ...]


def read_state(db: Connection) -> DatabaseState:
    """Return the state of the database. Raises UnknownMigration for that of a newer program."""
    row = db.execute(
        text("""
            SELECT current_setting('server_version') AS version,
                pg_database_size(current_database()) AS size
        """)
    ).one()
    # Connections name program and version; PostgreSQL shows a role those of its own.
    connections = db.execute(
        text("""
            SELECT coalesce(nullif(application_name, ''), 'unknown'), count(*)
            FROM pg_stat_activity WHERE datname = current_database()
            GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 20
        """)
    )
    missing = tuple(migration.name for migration in list_missing_migrations(db))
    counted = tuple((name, count) for name, count in connections)
    return DatabaseState(row.version, row.size, read_revisions(db)[0] or "", missing, counted)
