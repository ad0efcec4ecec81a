"""Statements sent past SQLAlchemy: binary results, and pipelines of several statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import Connection

from tbservice.db.arrays import encode_array
from tbservice.db.cluster.citus import PROPAGATE_SETTINGS, Forms
from tbservice.db.connection import is_pooled


class PendingResult:
    """The result of statements that were sent and may still be running: see `pipeline`."""

    def __init__(self, *cursors: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursors = cursors

    def __add__(self, other: PendingResult) -> PendingResult:
        """Return the rows of both."""
        return PendingResult(*self._cursors, *other._cursors)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows. They can be fetched once."""
        return [row for cursor in self._cursors for row in cursor.fetchall()]


def get_driver_connection(db: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    """Return psycopg's connection of a SQLAlchemy connection."""
    driver = db.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the dialect is always psycopg's
    return driver


def execute_binary(db: Connection, statement: str, parameters: Mapping[str, Any]) -> PendingResult:
    """Execute a statement with %(name)s parameters in `db`'s transaction, for binary results."""
    # https://www.psycopg.org/psycopg3/docs/basic/params.html#binary-parameters-and-results
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


def set_locals(db: Connection, settings: Mapping[str, str]) -> None:
    """Set parameters of PostgreSQL, such as tbhub.workspace_id, until the transaction ends.

    On all nodes of a cluster that the transaction uses, for which each must be a statement and
    cannot have placeholders.
    """
    _SET_LOCALS.of(db)(db, settings)


def _set_by_query(db: Connection, settings: Mapping[str, str]) -> None:
    # `set_config` and not SET, which takes no parameters:
    # https://www.postgresql.org/docs/18/functions-admin.html#FUNCTIONS-ADMIN-SET
    names = {f"setting{number}": name for number, name in enumerate(settings)}
    calls = ", ".join(f"set_config('{name}', %({key})s, true)" for key, name in names.items())
    execute_binary(db, f"SELECT {calls}", {key: settings[name] for key, name in names.items()})


def _set_by_statements(db: Connection, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        get_driver_connection(db).execute(
            sql.SQL("SET LOCAL {} = {}").format(
                sql.Identifier(*name.split(".")), sql.Literal(value)
            )
        )


_SET_LOCALS: Final = Forms(_set_by_query, _set_by_statements)


def query_with_rls(
    db: Connection, rls_settings: Mapping[str, str], statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Set `tbhub.<name>` for each of `rls_settings` and fetch a query's rows, in one round trip.

    The row policies read these settings. Outside a transaction, all of it is a transaction of its
    own; inside one, the settings remain until its end.
    """
    with pipeline_with_rls(db, rls_settings):
        result = execute_binary(db, statement, parameters)
    return result.rows()


@contextmanager
def pipeline_with_rls(db: Connection, rls_settings: Mapping[str, str]) -> Iterator[None]:
    """Send the block's statements in one round trip, as `query_with_rls` does one.

    Rows are fetched after the block.
    """
    with pipeline(db), _TRANSACTION.of(db)(db):
        set_locals(db, {f"tbhub.{name}": value for name, value in rls_settings.items()})
        yield


@contextmanager
def transaction_of_driver(db: Connection) -> Iterator[None]:
    """Begin a transaction, or a savepoint in an open one: commit at the end, roll back on error.

    On a connection of `Database.without_transaction`, or any other.
    """
    with get_driver_connection(db).transaction():
        _propagate_settings(db)
        yield


def _propagate_settings(db: Connection) -> None:
    if is_pooled(db):  # else the connection does; plain PostgreSQL keeps such a name, unused
        get_driver_connection(db).execute(PROPAGATE_SETTINGS)


@contextmanager
def _begin_if_alone(db: Connection) -> Iterator[None]:
    driver = get_driver_connection(db)
    is_alone = driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if is_alone:
        driver.execute("BEGIN")
        _propagate_settings(db)
    yield
    if is_alone:
        driver.execute("COMMIT")


_TRANSACTION: Final = Forms[Callable[[Connection], AbstractContextManager[object]]](
    nullcontext, _begin_if_alone
)
"""Plain PostgreSQL takes the statements of a pipeline for a transaction."""

EXPERIMENTS: Final = "{experiments}"
"""In a query for `fetch_of_experiments`: a table of one column, the ids of experiments."""

_TABLE_OF_IDS: Final = Forms[tuple[str, Callable[[Sequence[str]], Sequence[Any]]]](
    plain=("unnest(%(ids)s::text[])", lambda ids: [encode_array("text", ids)]),
    cluster=("(SELECT %(ids)s::text)", lambda ids: ids),
)
"""The table for EXPERIMENTS, and its parameter in each of the queries that are needed."""


def fetch_of_experiments(
    db: Connection, statement: str, experiment_ids: Sequence[str], parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Fetch a query's rows of several experiments, whose rows it does not combine.

    In a cluster each may be on another node: one query for each, in one round trip.
    """
    table, divide = _TABLE_OF_IDS.of(db)
    query = statement.replace(EXPERIMENTS, table)
    result = PendingResult()
    with pipeline(db):
        for ids in divide(experiment_ids):
            result += execute_binary(db, query, {**parameters, "ids": ids})
    return result.rows()
