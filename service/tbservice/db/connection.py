"""New connections, directly to PostgreSQL or through a pooler, and tests of those that were idle.

A pooler in transaction mode (PgBouncer) gives each transaction any of its connections. Behind it, a
transaction sets what else is set once for a connection, and statements are only prepared if the
pooler keeps track of that.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.pq import ExecStatus
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import Connection, PoolProxiedConnection, exc
from sqlalchemy.pool import ConnectionPoolEntry

from tbservice.db import arrays
from tbservice.db.cluster import citus
from tbservice.db.schema_versions import REQUIRED_REVISION

IDLE_SECONDS_MAX = 60.0
"""Seconds after which an idle connection is tested before use: firewalls drop idle ones."""

STATEMENT_SECONDS_MAX: Final = 60
"""Seconds a statement may run."""

PREPARE_THRESHOLD: Final = 5
"""Times that a connection executes a statement before it prepares it."""

_IS_POOLED: Final = "tbhub_is_pooled"
"""The key of a connection's flag, in the dictionary that SQLAlchemy keeps for it."""

_REQUIRED_REVISION: Final = "tbhub_required_revision"
"""The key of the migration that programs must know, in the same dictionary."""

_IDLE_SINCE: Final = "tbhub_idle_since"
_PROBE: Final = b"tbhub_probe"


def configure(connection: psycopg.Connection[Any], record: ConnectionPoolEntry) -> None:
    """Configure a new connection: autocommit, time zone UTC, and arrays sent in binary.

    psycopg sends lists as text by default: a packed block would be formatted, quoted, sent and
    parsed as hexadecimal digits of twice its size. One integer type for all Python integers keeps
    a statement's parameter types, and so its prepared plan, the same.
    """
    connection.adapters.register_dumper(list, ListBinaryDumper)
    connection.adapters.register_dumper(int, Int8BinaryDumper)
    arrays.register_dumpers(connection.adapters)
    connection.autocommit = True  # the service sends BEGIN itself: see `Database`

    # PostgreSQL tells a client the number of its process. A pooler tells it a number of its own. It
    # also follows changes of the time zone, and gives each client its own again.
    row = connection.execute(
        """
            SELECT set_config('TimeZone', 'UTC', false), CASE WHEN pg_backend_pid() = %(pid)s
                THEN set_config('statement_timeout', %(timeout)s, false) END IS NULL
        """,
        {"pid": connection.info.backend_pid, "timeout": f"{STATEMENT_SECONDS_MAX}s"},
    ).fetchone()
    is_pooled = record.info[_IS_POOLED] = row is not None and row[1]
    if not is_pooled or _keeps_prepared(connection):
        connection.prepare_threshold = PREPARE_THRESHOLD
    citus.configure_connection(connection, record.info, is_pooled=is_pooled)
    record.info[_REQUIRED_REVISION] = _read_required_revision(connection)


def is_pooled(db: Connection) -> bool:
    """Return whether a pooler is between the connection and PostgreSQL."""
    return has_pooler(db.info)


def get_required_revision(db: Connection) -> str | None:
    """Return the migration that every program must know that starts on this database, if any.

    As it was when the connection was opened: it only ever becomes a later one.
    """
    revision: str | None = db.info.get(_REQUIRED_REVISION)
    return revision


def has_pooler(info: Mapping[Any, Any]) -> bool:
    """Return `is_pooled` of the connection with this dictionary of SQLAlchemy's."""
    return bool(info.get(_IS_POOLED, False))


def _read_required_revision(connection: psycopg.Connection[Any]) -> str | None:
    row = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
    if not (row or (False,))[0]:  # an empty database
        return None
    row = connection.execute(REQUIRED_REVISION).fetchone()
    return row[0] if row else None


def _keeps_prepared(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a pooler prepares a client's statements on each connection that it gives it.

    PgBouncer does from 1.21 on, with max_prepared_statements; then PostgreSQL knows them by other
    names. Others pass them on to the connection of the moment, where nobody finds them again.
    """
    driver = connection.pgconn
    driver.exec_(b"BEGIN")
    try:
        driver.prepare(_PROBE, b"SELECT 1")
        found = driver.exec_(b"SELECT FROM pg_prepared_statements WHERE name = '" + _PROBE + b"'")
        if found.status != ExecStatus.TUPLES_OK:
            return False
        if found.ntuples:
            driver.exec_(b"DEALLOCATE " + _PROBE)
        return not found.ntuples
    finally:
        driver.exec_(b"COMMIT")


def record_idle_since(_connection: object, record: ConnectionPoolEntry) -> None:
    """Note that a connection is returned to its pool."""
    record.info[_IDLE_SINCE] = time.monotonic()


def check_idle(
    connection: psycopg.Connection[Any], record: ConnectionPoolEntry, _proxy: PoolProxiedConnection
) -> None:
    """Test a connection that was idle for long, or that has a pending message.

    SQLAlchemy's `pool_pre_ping` would cost a round trip at every checkout.
    """
    idle_since = record.info.get(_IDLE_SINCE)
    if idle_since is None or (
        time.monotonic() - idle_since < IDLE_SECONDS_MAX and not _has_pending_notice(connection)
    ):
        return
    try:
        connection.execute("SELECT 1")
    except psycopg.Error as error:
        raise exc.InvalidatePoolError from error  # the pool replaces its other connections, too


def _has_pending_notice(connection: psycopg.Connection[Any]) -> bool:
    """Return whether PostgreSQL sent an unsolicited message: mostly that it closes the connection.

    True for a closed connection.
    """
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
