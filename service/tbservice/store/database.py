"""The connections to PostgreSQL: transactions that name their tenant, and driver errors turned into ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import Connection, create_engine, event, exc, text

from tbservice import metrics
from tbservice.errors import Invalid, NotFound, Unavailable
from tbservice.store import arrays
from tbservice.types import WorkspaceId

STATEMENT_SECONDS_MAX = 60
"""Seconds a statement may run."""

_UNAVAILABLE = "the database cannot be reached or is out of capacity; nothing was lost, try again"


class Database:
    """A pool of connections. Every transaction sees one workspace's rows, or none of any tenant's."""

    def __init__(self, url: str, pool_size: int) -> None:
        """`url` is a libpq URL (postgresql://…) of an ordinary role; connections are made when first needed."""
        self.engine = create_engine(
            url.replace("postgresql://", "postgresql+psycopg://", 1).replace("postgres://", "postgresql+psycopg://", 1),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            pool_pre_ping=True,
            hide_parameters=True,  # errors are logged, and what a tenant sent is none of the log's business
            connect_args={"connect_timeout": 10, "options": f"-c statement_timeout={STATEMENT_SECONDS_MAX}s"},
        )
        event.listen(self.engine, "connect", _prepare)

    @contextmanager
    def transaction(self, workspace_id: WorkspaceId | None = None) -> Iterator[Connection]:
        """A READ COMMITTED transaction that commits at the end, and rolls back when an error leaves it.

        Raises Unavailable when PostgreSQL cannot be reached, stops in the middle, or has no room: try again.
        """
        with _driver_errors_as_ours(), self._connect() as db, db.begin():
            _set_tenant(db, workspace_id)
            yield db

    @contextmanager
    def snapshot(self, workspace_id: WorkspaceId | None = None) -> Iterator[Connection]:
        """A read-only REPEATABLE READ transaction: all its statements see one state. Raises as `transaction` does."""
        with _driver_errors_as_ours(), self._connect() as connection:
            db = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with db.begin():
                _set_tenant(db, workspace_id)
                yield db

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """A connection of the pool's, for which it waits; counted while it is in use."""
        begin = time.perf_counter()
        with self.engine.connect() as connection, metrics.connection_in_use():
            metrics.note_connection_wait(begin)
            yield connection

    def check(self) -> None:
        """Asks PostgreSQL for an answer. Raises Unavailable when there is none."""
        with self.transaction() as db:
            db.execute(text("SELECT 1"))

    def close(self) -> None:
        """Closes every idle connection."""
        self.engine.dispose()


def set_local(db: Connection, name: str, value: str) -> None:
    """Sets `tbhub.<name>` until the transaction ends; the row policies read it."""
    db.execute(text("SELECT set_config('tbhub.' || :name, :value, true)"), {"name": name, "value": value})


def binary_rows(db: Connection, statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Runs a query with %(name)s parameters in `db`'s transaction and fetches in binary: for columns of many bytes."""
    driver = db.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the dialect is always psycopg's
    with driver.cursor(binary=True) as cursor:
        return cursor.execute(statement.encode(), parameters).fetchall()


def _prepare(connection: psycopg.Connection[Any], _record: object) -> None:
    """Makes a new connection ours: times in UTC, and arrays sent in binary.

    As text, which is psycopg's choice for lists, a packed block would travel as hexadecimal digits: written, quoted,
    sent and parsed at twice its size. One integer type keeps a statement's types, and so its prepared plan, the same.
    """
    connection.adapters.register_dumper(list, ListBinaryDumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register(connection.adapters)
    connection.execute("SET TIME ZONE 'UTC'")
    connection.commit()


def _set_tenant(db: Connection, workspace_id: WorkspaceId | None) -> None:
    if workspace_id is not None:
        set_local(db, "workspace_id", str(workspace_id))


@contextmanager
def _driver_errors_as_ours() -> Iterator[None]:
    """Turns what the driver raises into ours: Unavailable when PostgreSQL is away, stopping, full or deadlocked."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
        raise Unavailable(_UNAVAILABLE) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:  # from `binary_rows`, past SQLAlchemy
        raise Unavailable(_UNAVAILABLE) from error
    except psycopg.DataError as error:  # the same
        raise _as_invalid(error) or error from error
    except exc.DBAPIError as error:
        raise _as_ours(error) from error


def _as_ours(error: exc.DBAPIError) -> Exception:
    if error.connection_invalidated:
        return Unavailable(_UNAVAILABLE)
    cause = error.orig
    if isinstance(cause, psycopg.errors.ForeignKeyViolation) and _names_experiment(cause):
        return NotFound("the experiment has been deleted")
    if isinstance(cause, psycopg.DataError):
        return _as_invalid(cause) or error
    return error


def _as_invalid(error: psycopg.DataError) -> Invalid | None:
    """The driver's own error, for a NUL in a text; PostgreSQL's have a state, and are faults of ours."""
    return Invalid("a text holds a NUL, which PostgreSQL cannot keep") if error.sqlstate is None else None


def _names_experiment(violation: psycopg.Error) -> bool:
    return (violation.diag.constraint_name or "").endswith("_experiment_id_fkey")
