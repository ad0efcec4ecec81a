"""Tables and columns that a migration may add while servers run, which must not wait for it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.db.pipeline import fetch_binary

_TABLE: Final = "SELECT to_regclass(%(table)s) IS NOT NULL"
_COLUMN: Final = """
    SELECT EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = to_regclass(%(table)s) AND attname = %(column)s)
"""


def has_table(db: Connection, table: str) -> bool:
    """Return whether the schema has a table. Once it has, a connection asks no more."""
    return _look(db, table, _TABLE, {"table": f"public.{table}"})


def has_column(db: Connection, table: str, column: str) -> bool:
    """Return whether the schema has a column. Once it has, a connection asks no more."""
    values = {"table": f"public.{table}", "column": column}
    return _look(db, f"{table}.{column}", _COLUMN, values)


def _look(db: Connection, part: str, query: str, values: dict[str, str]) -> bool:
    flag = f"tbhub_has_{part}"  # in the dictionary that SQLAlchemy keeps for the connection
    if not db.info.get(flag):
        # Not by SQLAlchemy, which would begin a transaction.
        db.info[flag] = bool(fetch_binary(db, query, values)[0][0])
    return bool(db.info[flag])
