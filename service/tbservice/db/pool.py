"""The connections to one server, and transactions on them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, event, exc
from sqlalchemy.pool import ConnectionPoolEntry

from tbservice import limits, metrics
from tbservice.db.cluster import citus
from tbservice.db.connection import (
    STATEMENT_SECONDS_MAX,
    check_idle,
    configure,
    has_pooler,
    is_pooled,
    record_idle_since,
)
from tbservice.db.engine import make_engine
from tbservice.db.errors import is_node_lost, is_read_only
from tbservice.db.pipeline import get_driver_connection
from tbservice.errors import Unavailable

CANCEL_SECONDS_MAX = 1.0
"""Seconds that a request to cancel a statement may take."""

POOL_SECONDS_MAX: Final = 30.0
"""Seconds to wait for a connection that others use."""

_STOPPING: Final = "the service is stopping; nothing was lost, try again"

_NO_SEAT: Final = contextlib.nullcontext()
_BEGIN_OPTION: Final = "tbhub_begin"
"""The execution option that contains the statement to begin a transaction with."""

_SET_TIMEOUT: Final = f"; SET LOCAL statement_timeout = '{STATEMENT_SECONDS_MAX}s'"
"""Statement that a transaction behind a pooler adds to BEGIN."""


class Pool:
    """Connections to one server, or to the first that answers of those that the URL names."""

    def __init__(
        self,
        url: str,
        size: int,
        *,
        idle_max: int | None = None,
        seats: threading.Semaphore | None = None,
        connect_seconds_max: int | None = None,
        wait_seconds_max: float = POOL_SECONDS_MAX,
    ) -> None:
        """Create the pool; connections are opened when first needed.

        Args:
            url: A libpq URL (postgresql://…) of an ordinary role.
            size: Connections at most. Further requests wait.
            idle_max: Connections that stay open without use; None for all.
            seats: Acquired for each connection in use, by several pools: it bounds their sum.
            connect_seconds_max: Seconds to connect; None for those of `make_engine`.
            wait_seconds_max: Seconds to wait for a connection that others use.

        Raises:
            StartupError: The URL is malformed.
        """
        kept = size if idle_max is None else min(size, idle_max)
        self.engine = make_engine(
            url,
            connect_seconds_max=connect_seconds_max,
            pool_size=kept,
            max_overflow=size - kept,
            pool_timeout=wait_seconds_max,
            # https://docs.sqlalchemy.org/en/20/core/engines.html#sqlalchemy.create_engine.params.hide_parameters
            hide_parameters=True,  # errors are logged, and parameters are tenants' data
        )
        self.seats = seats
        self._make_numbering = partial(
            Pool,
            url,
            1,
            connect_seconds_max=limits.NODE_CONNECT_SECONDS_MAX,
            wait_seconds_max=limits.NUMBERING_LOCK_SECONDS_MAX,
        )
        self._numbering: Pool | None = None
        self._lock = threading.Lock()
        self._in_use: set[psycopg.Connection[Any]] = set()
        self._is_stopping = False

        event.listen(self.engine, "connect", configure)
        event.listen(self.engine, "connect", self._note_numbering)
        event.listen(self.engine, "begin", _send_begin)
        event.listen(self.engine, "checkin", record_idle_since)
        event.listen(self.engine, "checkout", check_idle)

    def _note_numbering(self, _: object, record: ConnectionPoolEntry) -> None:
        if not has_pooler(record.info):
            citus.note_numbering(record.info, self._open_numbering)

    @contextmanager
    def _open_numbering(self, begin: str) -> Iterator[Connection]:
        """Begin a short transaction on a connection that is for such alone.

        If it were of this pool, those who use all of them could wait for one more.
        """
        with self._lock:
            if self._is_stopping:
                raise Unavailable(_STOPPING)
            if self._numbering is None:
                self._numbering = self._make_numbering()
            numbering = self._numbering
        with numbering.transaction(begin) as db:
            yield db

    @contextmanager
    def transaction(self, begin: str) -> Iterator[Connection]:
        """Begin a transaction with this statement; commit at the end, roll back on error."""
        with self.connect() as connection, begin_on(connection, begin) as db:
            yield db

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Wait for a connection of the pool; drop it afterwards if it is unusable."""
        begin = time.perf_counter()
        with self._seat(), self.engine.connect() as connection, metrics.track_connection():
            metrics.observe_connection_wait(begin)
            driver = get_driver_connection(connection)
            try:
                with self._cancel_on_stop(driver):
                    yield connection
            except (psycopg.Error, exc.DBAPIError) as error:
                # Read-only: a primary that became a standby. A new connection may find the promoted
                # one.
                if driver.closed or is_read_only(error):
                    connection.invalidate()
                elif is_node_lost(error):
                    # The session may have lost its connections to other nodes too, and sessions
                    # that are idle theirs: each would fail once for each of them.
                    connection.invalidate()
                    self.engine.dispose()
                raise

    def _seat(self) -> contextlib.AbstractContextManager[object]:
        return _NO_SEAT if self.seats is None else _seat_of(self.seats)

    @contextmanager
    def _cancel_on_stop(self, driver: psycopg.Connection[Any]) -> Iterator[None]:
        """Have `stop` cancel what the connection executes during the block."""
        with self._lock:
            if self._is_stopping:
                raise Unavailable(_STOPPING)
            self._in_use.add(driver)
        try:
            yield
        finally:
            with self._lock:
                self._in_use.discard(driver)

    def stop(self) -> None:
        """Cancel all running statements; later requests for a connection raise Unavailable."""
        with self._lock:
            self._is_stopping = True
            for driver in self._in_use:
                cancel(driver)
            numbering = self._numbering
        if numbering is not None:
            numbering.stop()

    def close(self) -> None:
        """Close all idle connections."""
        if self._numbering is not None:
            self._numbering.close()
        self.engine.dispose()


@contextmanager
def begin_on(connection: Connection, begin: str) -> Iterator[Connection]:
    """Begin a transaction on a connection; commit at the end of the block, roll back on error."""
    db = connection.execution_options(**{_BEGIN_OPTION: begin})
    with db.begin():
        try:
            yield db
        except psycopg.Error as error:
            # Of a statement sent past SQLAlchemy, which would have seen that the connection is
            # lost; else it tries to roll back, and the error of that hides this one.
            if get_driver_connection(db).closed:
                db.invalidate(error)
            raise


def cancel(driver: psycopg.Connection[Any]) -> None:
    """Cancel the statement that a connection executes, if any; for at most `CANCEL_SECONDS_MAX`."""
    with contextlib.suppress(psycopg.Error):  # an unreachable server runs no statement of ours
        driver.cancel_safe(timeout=CANCEL_SECONDS_MAX)


@contextmanager
def _seat_of(seats: threading.Semaphore) -> Iterator[None]:
    if not seats.acquire(timeout=POOL_SECONDS_MAX):
        raise exc.TimeoutError("all connections are in use")
    try:
        yield
    finally:
        seats.release()


def _send_begin(db: Connection) -> None:
    """Begin a transaction ourselves: psycopg, which is in autocommit mode, sends a bare BEGIN."""
    driver = get_driver_connection(db)
    statements = db.get_execution_options().get(_BEGIN_OPTION, "BEGIN")
    if is_pooled(db):
        statements += _SET_TIMEOUT
    _SEND.of(db)(driver, statements, is_pooled(db))


def _send_together(driver: psycopg.Connection[Any], statements: str, _is_pooled: bool) -> None:
    driver.execute(statements.encode())


def _send_singly(driver: psycopg.Connection[Any], statements: str, is_pooled: bool) -> None:
    """Send a message for each: Citus passes on all of the one that a SET LOCAL is in, BEGIN too."""
    begin, *settings = statements.split("; ")
    if is_pooled:
        settings.insert(0, citus.PROPAGATE_SETTINGS)
    with driver.pipeline():
        for statement in (begin, *settings):
            driver.execute(statement.encode())


_SEND: Final = citus.Forms(_send_together, _send_singly)
