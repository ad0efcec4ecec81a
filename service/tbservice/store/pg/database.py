"""The connections to PostgreSQL: transactions that name their tenant, and driver errors turned into ours."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import Connection, PoolProxiedConnection, event, exc, text
from sqlalchemy.pool import ConnectionPoolEntry

from tbservice import metrics
from tbservice.errors import Invalid, NotFound, Unavailable
from tbservice.store.pg import arrays
from tbservice.store.pg.engine import make_engine
from tbservice.types import WorkspaceId

STATEMENT_SECONDS_MAX = 60
"""Seconds a statement may run."""

IDLE_SECONDS_MAX = 60.0
"""Seconds after which a connection that nobody used is asked whether it still works: a firewall drops idle ones."""

CANCEL_SECONDS_MAX = 1.0
"""Seconds that asking PostgreSQL to end a statement may take."""

_UNAVAILABLE = "the database cannot be reached or is out of capacity; nothing was lost, try again"

_DISK_FULL = "the database's disk is full; nothing was lost, try again when there is room"
_READ_ONLY = (
    "the database takes no writes: it is a standby, or read-only; nothing was lost, try again"
)

_BEGIN_OPTION: Final = "tbhub_begin"
"""The execution option that says how a transaction begins."""

_IDLE_SINCE: Final = "tbhub_idle_since"


class Database:
    """A pool of connections. Every transaction sees one workspace's rows, or none of any tenant's."""

    def __init__(self, url: str, pool_size: int) -> None:
        """`url` is a libpq URL (postgresql://…) of an ordinary role; connections are made when first needed.

        Raises StartupError when it is malformed.
        """
        self.engine = make_engine(
            url,
            statement_seconds_max=STATEMENT_SECONDS_MAX,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            hide_parameters=True,  # errors are logged, and what a tenant sent is none of the log's business
        )
        self._lock = threading.Lock()
        self._in_use: set[psycopg.Connection[Any]] = set()
        self._is_stopping = False
        event.listen(self.engine, "connect", _configure_connection)
        event.listen(self.engine, "begin", _send_begin)
        event.listen(self.engine, "checkin", _record_idle_since)
        event.listen(self.engine, "checkout", _check_idle)

    @contextmanager
    def transaction(self, workspace_id: WorkspaceId | None = None) -> Iterator[Connection]:
        """A READ COMMITTED transaction that commits at the end, and rolls back when an error leaves it.

        Raises Unavailable when PostgreSQL cannot be reached, stops in the middle, or has no room: try again.
        """
        with self._transaction("BEGIN", workspace_id) as db:
            yield db

    @contextmanager
    def snapshot(self, workspace_id: WorkspaceId | None = None) -> Iterator[Connection]:
        """A read-only REPEATABLE READ transaction: all its statements see one state. Raises as `transaction` does."""
        with self._transaction(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", workspace_id
        ) as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str, workspace_id: WorkspaceId | None) -> Iterator[Connection]:
        if (
            workspace_id is not None
        ):  # in one message: each is a change of processes, there and back
            begin += f"; SET LOCAL tbhub.workspace_id = '{int(workspace_id)}'"
        with _translate_driver_errors(), self._connect() as connection:
            db = connection.execution_options(**{_BEGIN_OPTION: begin})
            with db.begin():
                yield db

    @contextmanager
    def without_transaction(self) -> Iterator[Connection]:
        """A connection for `query_with_rls` alone, each call of which is a transaction. Raises as `transaction` does."""
        with _translate_driver_errors(), self._connect() as connection:
            yield connection

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """A connection of the pool's, for which it waits; counted while it is in use."""
        begin = time.perf_counter()
        with self.engine.connect() as connection, metrics.track_connection():
            metrics.observe_connection_wait(begin)
            driver = _get_driver_connection(connection)
            try:
                with self._cancel_on_stop(driver):
                    yield connection
            except (psycopg.Error, exc.DBAPIError) as error:
                if driver.closed or _is_read_only(error):
                    connection.invalidate()
                raise

    @contextmanager
    def _cancel_on_stop(self, driver: psycopg.Connection[Any]) -> Iterator[None]:
        """Have `stop` end what the connection runs while the block lasts."""
        with self._lock:
            if self._is_stopping:
                raise Unavailable("the service is stopping; nothing was lost, try again")
            self._in_use.add(driver)
        try:
            yield
        finally:
            with self._lock:
                self._in_use.discard(driver)

    def check(self) -> None:
        """Asks PostgreSQL for an answer. Raises Unavailable when there is none."""
        with self.transaction() as db:
            db.execute(text("SELECT 1"))

    def check_writable(self) -> None:
        """Raise Unavailable, which says why, unless PostgreSQL can write: log, commit, and room on its disk.

        Writes 1 MiB that goes again at once, as a temporary file beside the tables: a full disk still takes a row into
        a page, and a record into a segment of the log, that are there already. A standby that PostgreSQL waits for at
        each commit is not waited for here.
        """
        with self.transaction() as db:
            for name, value in (
                ("work_mem", "64kB"),
                ("temp_tablespaces", ""),
                ("synchronous_commit", "local"),
            ):
                db.execute(
                    text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value}
                )
            if db.execute(
                text("SELECT current_setting('transaction_read_only')::boolean")
            ).scalar_one():
                db.invalidate()  # of the URL's hosts another may take writes by now
                raise Unavailable(_READ_ONLY)
            db.execute(
                text("SELECT count(*) FROM unnest(array_fill(repeat('x', 8192), ARRAY[128]))")
            )
            db.execute(text("SELECT pg_logical_emit_message(true, 'tbhub', 'ready')"))

    def cancel(self, db: Connection) -> None:
        """End the statement that runs on a connection in use, if any, from any thread; it raises Unavailable there."""
        _cancel(_get_driver_connection(db))

    def stop(self) -> None:
        """End every statement under way; requests for a connection get Unavailable from now on."""
        with self._lock:
            self._is_stopping = True
            for driver in self._in_use:
                _cancel(driver)

    def close(self) -> None:
        """Closes every idle connection."""
        self.engine.dispose()


class PendingResult:
    """A statement that was sent, and may be under way: see `pipeline`."""

    def __init__(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> None:
        self._cursor = cursor

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows it gives; they can be asked for once."""
        return self._cursor.fetchall()


def execute_binary(db: Connection, statement: str, parameters: Mapping[str, Any]) -> PendingResult:
    """Runs a statement with %(name)s parameters in `db`'s transaction; its rows, if any, come in binary."""
    cursor = _get_driver_connection(db).cursor(binary=True)
    cursor.execute(statement.encode(), parameters)
    return PendingResult(cursor)


def fetch_binary(
    db: Connection, statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Runs a query with %(name)s parameters in `db`'s transaction and fetches in binary: for columns of many bytes."""
    return execute_binary(db, statement, parameters).rows()


@contextmanager
def pipeline(db: Connection) -> Iterator[None]:
    """What is sent (`send`) in the block goes out without waiting for answers; errors are raised at its end at last.

    PostgreSQL sleeps and wakes once for all of it, which is a good part of what a small statement costs. Ask for rows
    behind the block. Nothing else may use `db` in it: SQLAlchemy would take a statement without answer for one without
    rows.
    """
    with _get_driver_connection(db).pipeline():
        yield


def query_with_rls(
    db: Connection, rls_settings: Mapping[str, str], statement: str, parameters: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Sets `tbhub.<name>`, which the row policies read, for each of `rls_settings`, and fetches as `fetch_binary` does.

    Outside a transaction both are one, which is over then; inside one they stay set until its end.
    """
    settings = ", ".join(f"set_config('tbhub.{name}', %({name})s, true)" for name in rls_settings)
    with pipeline(db):
        execute_binary(db, f"SELECT {settings}", rls_settings)
        sent = execute_binary(db, statement, parameters)
    return sent.rows()


def set_local(db: Connection, name: str, value: str) -> None:
    """Sets `tbhub.<name>` until the transaction ends; the row policies read it."""
    db.execute(
        text("SELECT set_config('tbhub.' || :name, :value, true)"), {"name": name, "value": value}
    )


def _get_driver_connection(db: Connection) -> psycopg.Connection[tuple[Any, ...]]:
    driver = db.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the dialect is always psycopg's
    return driver


def _cancel(driver: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.Error):  # the server is away, and the statement with it
        driver.cancel_safe(timeout=CANCEL_SECONDS_MAX)


def _send_begin(db: Connection) -> None:
    """Begins a transaction in our words: the driver, which is in autocommit mode, would say no more than BEGIN."""
    _get_driver_connection(db).execute(db.get_execution_options().get(_BEGIN_OPTION, "BEGIN"))


def _record_idle_since(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_IDLE_SINCE] = time.monotonic()


def _check_idle(
    connection: psycopg.Connection[Any], record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Asks whether a connection still works when there is reason to doubt it: SQLAlchemy would ask every time."""
    idle_since = record.info.get(_IDLE_SINCE)
    if idle_since is None or (
        time.monotonic() - idle_since < IDLE_SECONDS_MAX and not _has_pending_notice(connection)
    ):
        return
    try:
        connection.execute("SELECT 1")
    except psycopg.Error as error:
        raise exc.InvalidatePoolError from error  # the others are asked, too, before they are used


def _has_pending_notice(connection: psycopg.Connection[Any]) -> bool:
    """Whether PostgreSQL has sent something that nobody asked for: mostly that it ends the connection."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _configure_connection(connection: psycopg.Connection[Any], _record: object) -> None:
    """Makes a new connection ours: times in UTC, and arrays sent in binary.

    As text, which is psycopg's choice for lists, a packed block would travel as hexadecimal digits: written, quoted,
    sent and parsed at twice its size. One integer type keeps a statement's types, and so its prepared plan, the same.
    """
    connection.adapters.register_dumper(list, ListBinaryDumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register_dumpers(connection.adapters)
    connection.autocommit = True  # see `_send_begin`
    connection.execute("SET TIME ZONE 'UTC'")


@contextmanager
def _translate_driver_errors() -> Iterator[None]:
    """Turns what the driver raises into ours: Unavailable when PostgreSQL is away, stopping, full or deadlocked."""
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise _make_unavailable(error.orig) from error
    except exc.TimeoutError as error:
        raise Unavailable(_UNAVAILABLE) from error
    except (
        psycopg.OperationalError,
        psycopg.InterfaceError,
    ) as error:  # from `send`, past SQLAlchemy
        raise _make_unavailable(error) from error
    except psycopg.Error as error:  # the same
        raise _translate_error(error) or error from error
    except exc.DBAPIError as error:
        if error.connection_invalidated:
            raise Unavailable(_UNAVAILABLE) from error
        raise _translate_error(error.orig) or error from error


def _make_unavailable(error: BaseException | None) -> Unavailable:
    return Unavailable(_DISK_FULL if isinstance(error, psycopg.errors.DiskFull) else _UNAVAILABLE)


def _translate_error(error: BaseException | None) -> Exception | None:
    if error is not None and _is_read_only(error):
        return Unavailable(_READ_ONLY)
    if isinstance(error, psycopg.errors.ForeignKeyViolation) and _is_experiment_key_violation(
        error
    ):
        return NotFound("the experiment has been deleted")
    return _translate_data_error(error) if isinstance(error, psycopg.DataError) else None


def _is_read_only(error: BaseException) -> bool:
    """Return whether a write met a server that takes none, as a primary that has become a standby."""
    return isinstance(getattr(error, "orig", error), psycopg.errors.ReadOnlySqlTransaction)


def _translate_data_error(error: psycopg.DataError) -> Invalid | None:
    """The driver's own error, for a NUL in a text; PostgreSQL's have a state, and are faults of ours."""
    return (
        Invalid("a text holds a NUL, which PostgreSQL cannot keep")
        if error.sqlstate is None
        else None
    )


def _is_experiment_key_violation(violation: psycopg.Error) -> bool:
    return (violation.diag.constraint_name or "").endswith("_experiment_id_fkey")
