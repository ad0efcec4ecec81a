"""The pool of connections to PostgreSQL, and transactions that name their workspace."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, event, exc, text

from tbservice import metrics, traces
from tbservice.errors import Unavailable
from tbservice.store import link_views
from tbservice.store.pg import citus
from tbservice.store.pg.connection import (
    STATEMENT_SECONDS_MAX,
    check_idle,
    configure,
    is_pooled,
    record_idle_since,
)
from tbservice.store.pg.engine import make_engine
from tbservice.store.pg.errors import READ_ONLY, is_read_only, translate_driver_errors
from tbservice.store.pg.pipeline import get_driver_connection, set_locals
from tbservice.types import Grant, ReadGrant, WorkspaceId

Visible = Grant | WorkspaceId | None
"""Whose rows a transaction sees: what the grant permits, all of a workspace's, or no tenant's."""

CANCEL_SECONDS_MAX = 1.0
"""Seconds that a request to cancel a statement may take."""

_BEGIN_OPTION: Final = "tbhub_begin"
"""The execution option that contains the statement to begin a transaction with."""

_SET_TIMEOUT: Final = f"; SET LOCAL statement_timeout = '{STATEMENT_SECONDS_MAX}s'"
"""What a transaction behind a pooler adds to BEGIN."""

_TIMELINE_DIGITS: Final = 8
"""Hexadecimal digits at the start of the name of a segment of the write-ahead log."""


class Database:
    """A pool of connections. A transaction sees one workspace's rows, or no tenant's rows.

    One that is opened with the grant of a share link sees only what the link shows. Reads must be
    given their grant: with the workspace alone they would see all of it.
    """

    def __init__(self, url: str, pool_size: int) -> None:
        """Create the pool; connections are opened when first needed.

        Args:
            url: A libpq URL (postgresql://…) of an ordinary role.
            pool_size: Connections at most. Further requests wait up to 30 s for one.

        Raises:
            StartupError: The URL is malformed.
        """
        self.engine = make_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            hide_parameters=True,  # errors are logged, and parameters are tenants' data
        )
        self._lock = threading.Lock()
        self._in_use: set[psycopg.Connection[Any]] = set()
        self._is_stopping = False

        event.listen(self.engine, "connect", configure)
        event.listen(self.engine, "begin", _send_begin)
        event.listen(self.engine, "checkin", record_idle_since)
        event.listen(self.engine, "checkout", check_idle)

    @contextmanager
    def transaction(self, visible: Visible = None) -> Iterator[Connection]:
        """Open a READ COMMITTED transaction: commit at the end of the block, roll back on error.

        Raises:
            Unauthenticated: The grant is of a link that has expired or was revoked.
            Unavailable: PostgreSQL is unreachable, stopping, read-only or full: try again.
            NotFound: The experiment was deleted meanwhile (a foreign key says so).
            Invalid: A text contains a NUL character.
        """
        with self._transaction("BEGIN", visible) as db:
            yield db

    @contextmanager
    def snapshot(self, visible: Visible = None) -> Iterator[Connection]:
        """Open a read-only REPEATABLE READ transaction: all statements see the same state.

        Raises Unauthenticated and Unavailable as `transaction` does.
        """
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._transaction(begin, visible) as db:
            yield db

    @contextmanager
    def copying(self, visible: Visible) -> Iterator[Connection]:
        """Open a REPEATABLE READ transaction that writes: it copies one state of what it reads.

        It must not update rows that others write: PostgreSQL would abort it. Raises Unavailable as
        `transaction` does.
        """
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ", visible) as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str, visible: Visible) -> Iterator[Connection]:
        workspace_id = visible.workspace_id if isinstance(visible, Grant) else visible
        if workspace_id is not None:  # in one message with BEGIN: it saves a round trip
            begin += f"; SET LOCAL tbhub.workspace_id = '{int(workspace_id)}'"
        with (
            traces.span("database transaction"),
            translate_driver_errors(),
            self._connect() as connection,
        ):
            db = connection.execution_options(**{_BEGIN_OPTION: begin})
            with db.begin():
                if isinstance(visible, ReadGrant) and visible.link is not None:
                    link_views.enter(db, visible.experiment_id, visible.link)
                yield db

    @contextmanager
    def without_transaction(self) -> Iterator[Connection]:
        """Check out a connection for `query_with_rls` alone, each call of which is a transaction.

        Raises as `transaction` does.
        """
        with translate_driver_errors(), self._connect() as connection:
            yield connection

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Wait for a connection of the pool; drop it afterwards if it is unusable."""
        begin = time.perf_counter()
        with self.engine.connect() as connection, metrics.track_connection():
            metrics.observe_connection_wait(begin)
            driver = get_driver_connection(connection)
            try:
                with self._cancel_on_stop(driver):
                    yield connection
            except (psycopg.Error, exc.DBAPIError) as error:
                if driver.closed or is_read_only(error):
                    connection.invalidate()
                raise

    @contextmanager
    def _cancel_on_stop(self, driver: psycopg.Connection[Any]) -> Iterator[None]:
        """Have `stop` cancel what the connection executes during the block."""
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
        """Execute a trivial query. Raises Unavailable when PostgreSQL does not respond."""
        with self.transaction() as db:
            db.execute(text("SELECT 1"))

    def check_writable(self) -> int:
        """Check that PostgreSQL can write: to its log (WAL), and to its disk; return its timeline.

        The timeline is a number that grows when a standby is promoted (PostgreSQL manual, 25.3.6
        "Timelines").

        Writes a temporary file of 1 MiB beside the tables, which is deleted at once: on a full disk
        a row still fits an existing page, and a WAL record an existing segment. Does not wait for
        synchronous standbys.

        Raises:
            Unavailable: PostgreSQL cannot write. The message says why.
        """
        settings = (
            ("work_mem", "64kB"),  # the least: so that the query below needs a file
            ("temp_tablespaces", ""),
            ("synchronous_commit", "local"),
        )
        with self.transaction() as db:
            for name, value in settings:
                db.execute(
                    text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value}
                )

            read_only = text("SELECT current_setting('transaction_read_only')::boolean")
            if db.execute(read_only).scalar_one():
                db.invalidate()  # another host of the URL may be the primary by now
                raise Unavailable(READ_ONLY)

            db.execute(
                text("SELECT count(*) FROM unnest(array_fill(repeat('x', 8192), ARRAY[128]))")
            )
            segment: str = db.execute(
                text("""
                    SELECT pg_walfile_name(pg_current_wal_insert_lsn())
                    FROM pg_logical_emit_message(true, 'tbhub', 'ready')
                """)
            ).scalar_one()
        return int(segment[:_TIMELINE_DIGITS], 16)

    def cancel(self, db: Connection) -> None:
        """Cancel the statement that a connection executes, if any; it raises Unavailable there.

        May be called from any thread.
        """
        _cancel(get_driver_connection(db))

    def stop(self) -> None:
        """Cancel all running statements; later requests for a connection raise Unavailable."""
        with self._lock:
            self._is_stopping = True
            for driver in self._in_use:
                _cancel(driver)

    def close(self) -> None:
        """Close all idle connections."""
        self.engine.dispose()


def set_local(db: Connection, name: str, value: str) -> None:
    """Set `tbhub.<name>`, which row policies read, until the transaction ends."""
    set_locals(db, {f"tbhub.{name}": value})


def _cancel(driver: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.Error):  # an unreachable server runs no statement of ours
        driver.cancel_safe(timeout=CANCEL_SECONDS_MAX)


def _send_begin(db: Connection) -> None:
    """Begin a transaction ourselves: psycopg, which is in autocommit mode, sends a bare BEGIN."""
    driver = get_driver_connection(db)
    statements = db.get_execution_options().get(_BEGIN_OPTION, "BEGIN")
    if is_pooled(db):
        statements += _SET_TIMEOUT
    if not citus.is_cluster(db):
        driver.execute(statements)
        return
    with driver.pipeline():  # Citus passes on the whole message that a SET LOCAL is in, BEGIN too
        for statement in statements.split("; "):
            driver.execute(statement)
