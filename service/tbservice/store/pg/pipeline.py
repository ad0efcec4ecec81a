"""Statements sent past SQLAlchemy: binary results, and pipelines of several statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Connection


class PendingResult:
    """The result of a statement that was sent and may still be running: see `pipeline`."""

    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursor = cursor

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows. They can be fetched once."""
        return self._cursor.fetchall()


def get_driver_connection(db: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    """Return psycopg's connection of a SQLAlchemy connection."""
    driver = db.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the dialect is always psycopg's
    return driver


def execute_binary(db: Connection, statement: str, parameters: Mapping[str, Any]) -> PendingResult:
    """Execute a statement with %(name)s parameters in `db`'s transaction, for binary results."""
    cursor = get_driver_connection(db).cursor(binary=True)
    cursor.execute(statement.encode(), parameters)
    return PendingResult(cursor)


def fetch_binary(
    db: Connection, statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Execute a query with %(name)s parameters in `db`'s transaction and fetch all rows in binary.

    For large values and many rows: as text, a bytea has twice its size in hexadecimal digits.
    """
    return execute_binary(db, statement, parameters).rows()


@contextmanager
def pipeline(db: Connection) -> Iterator[None]:
    """Send the block's statements (`execute_binary`) without waiting for each result.

    PostgreSQL is woken once for all of them, which saves much of the cost of small statements. An
    error is raised at the end of the block at the latest. Fetch rows after the block. Do not
    execute statements with SQLAlchemy in it: it would take a missing result for one without rows.
    """
    with get_driver_connection(db).pipeline():
        yield


def query_with_rls(
    db: Connection, rls_settings: Mapping[str, str], statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Set `tbhub.<name>` for each of `rls_settings` and fetch a query's rows, in one round trip.

    The row policies read these settings. Outside a transaction, both statements are a transaction
    of their own; inside one, the settings remain until its end.
    """
    settings = ", ".join(f"set_config('tbhub.{name}', %({name})s, true)" for name in rls_settings)
    with pipeline(db):
        execute_binary(db, f"SELECT {settings}", rls_settings)
        result = execute_binary(db, statement, parameters)
    return result.rows()
