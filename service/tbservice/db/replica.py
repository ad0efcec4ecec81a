"""Reads from a streaming replica that has replayed what was committed when they began.

Decision 32 has the rule and its reasons.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal

import psycopg
from sqlalchemy import Connection, exc

from tbservice import metrics
from tbservice.db.pipeline import get_driver_connection
from tbservice.db.pool import Pool, begin_on
from tbservice.db.reachability import Reachability
from tbservice.errors import StartupError

REPLICA_WAIT_SECONDS_MAX: Final = 0.2
"""Seconds that a read waits for the replica to replay what was committed, before the primary."""

REPLICA_BEHIND_SECONDS: Final = 1.0
"""Seconds for which a replica is not read after it was further behind than that."""

REPLICA_REST_SECONDS: Final = 5.0
"""Seconds after which one read tries a replica again that could not be reached."""

REPLICA_CONNECT_SECONDS_MAX: Final = 3
"""Seconds that a replica may take to connect, and to acknowledge what was sent to it."""

_POSITION: Final = """
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_flush_lsn() END
"""
"""Position of the log (WAL) behind everything that was committed and acknowledged until now."""

_HAS_REPLAYED: Final = """
    SELECT pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= %(position)s::pg_lsn, false)
"""
_FIRST_PAUSE_SECONDS: Final = 0.001

_State = Literal["level", "behind", "promoted"]


@dataclass(slots=True)
class ReadAttempt:
    """One attempt at answering a request: whether a replica made it fail, or may not be used."""

    has_replica_failed: bool = False
    is_primary_only: bool = False


_attempt: Final[ContextVar[ReadAttempt | None]] = ContextVar("tbhub_read_attempt", default=None)


def begin_attempt() -> ReadAttempt:
    """Return the attempt of the running task, and of the tasks and threads that this starts."""
    attempt = ReadAttempt()
    _attempt.set(attempt)
    return attempt


class Replica:
    """A hot standby of the primary, which may be late, away, or cancel a long read."""

    def __init__(self, url: str, size: int, primary: Pool) -> None:
        """Create its pool. Raises StartupError if the URL is malformed."""
        self.pool = Pool(url, size, connect_seconds_max=REPLICA_CONNECT_SECONDS_MAX)
        self._primary = primary
        self._reachability = Reachability()

    def enter_transaction(self, stack: ExitStack, begin: str) -> Connection | None:
        """Begin a transaction that sees all that is committed by now; return its connection.

        Returns None if the primary is to be read: the replica has not replayed that within
        `REPLICA_WAIT_SECONDS_MAX`, or is away, or has failed in this attempt. An error in the
        transaction is noted in the attempt.

        Args:
            stack: Ends the transaction when it is closed.
            begin: The statement to begin with.
        """
        attempt = _attempt.get()
        if (attempt is not None and attempt.is_primary_only) or not self._reachability.may_try():
            return None
        # Before the connection to the replica: what is committed from now on need not be seen.
        position = self._read_position()
        own = ExitStack()
        try:
            connection = own.enter_context(self.pool.connect())
            state = self._wait(get_driver_connection(connection), position)
            if state == "level":
                own.enter_context(self._noting_failure(connection, attempt))
                db = own.enter_context(begin_on(connection, begin))
                # Handed over: the caller's stack ends the transaction.
                stack.push(own)
                self._reachability.note_success()
                metrics.observe_replica_read("answered")
                return db
        except (psycopg.OperationalError, exc.OperationalError, exc.InterfaceError) as error:
            own.__exit__(type(error), error, error.__traceback__)
            self._reachability.note_failure(REPLICA_REST_SECONDS)
            metrics.observe_replica_read("away")
            return None
        except BaseException as error:
            own.__exit__(type(error), error, error.__traceback__)
            raise
        own.close()
        self._reachability.note_failure(REPLICA_BEHIND_SECONDS)
        metrics.observe_replica_read(state)
        return None

    def check(self) -> None:
        """Check at startup that this is a replica of the primary; one that is away is no error.

        Raises StartupError. Raises Unavailable if the primary does not respond.
        """
        # Equal for a primary and its physical standbys, and for nothing else:
        # https://www.postgresql.org/docs/18/functions-info.html#FUNCTIONS-INFO-CONTROLDATA
        query = "SELECT system_identifier, current_database() FROM pg_control_system()"
        with self._primary.connect() as db:
            wanted = get_driver_connection(db).execute(query).fetchone()
        try:
            with self.pool.connect() as db:
                seen = get_driver_connection(db).execute(query).fetchone()
        except (psycopg.OperationalError, exc.OperationalError):
            return
        if seen != wanted:
            raise StartupError(
                "TBHUB_READ_DATABASE_URL names another database than a streaming replica of "
                "TBHUB_DATABASE_URL's"
            )

    def _read_position(self) -> str:
        with self._primary.connect() as db:
            row = get_driver_connection(db).execute(_POSITION).fetchone()
        assert row is not None  # noqa: S101 - one row
        return str(row[0])

    def _wait(self, driver: psycopg.Connection[Any], position: str) -> _State:
        """Wait until the position is replayed, at most `REPLICA_WAIT_SECONDS_MAX`."""
        deadline = time.monotonic() + REPLICA_WAIT_SECONDS_MAX
        pause = _FIRST_PAUSE_SECONDS
        while True:
            row = driver.execute(_HAS_REPLAYED, {"position": position}).fetchone()
            is_standby, is_level = row or (False, False)
            if not is_standby:
                return "promoted"  # its log may have parted from that of the primary
            if is_level:
                return "level"
            if time.monotonic() + pause > deadline:
                return "behind"
            # Polled: PostgreSQL 18 has no statement that waits for a position of the log.
            time.sleep(pause)
            pause *= 2

    @contextmanager
    def _noting_failure(
        self, connection: Connection, attempt: ReadAttempt | None
    ) -> Iterator[None]:
        """Note if the replica ends a read: for a change that it has to replay, or as it is lost."""
        driver = get_driver_connection(connection)
        try:
            yield
        except (psycopg.Error, exc.DBAPIError) as error:
            # https://www.postgresql.org/docs/18/hot-standby.html#HOT-STANDBY-CONFLICT
            is_conflict = isinstance(
                getattr(error, "orig", error), psycopg.errors.SerializationFailure
            )
            if is_conflict or driver.closed:
                if attempt is not None:
                    attempt.has_replica_failed = True
                if driver.closed:
                    self._reachability.note_failure(REPLICA_REST_SECONDS)
                metrics.observe_replica_read("conflict" if is_conflict else "lost")
            raise
