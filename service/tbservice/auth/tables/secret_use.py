"""The times of last use of tokens and browser sessions: recorded at most once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import psycopg
from sqlalchemy import Connection

from tbservice.auth.tables.auth_lookup import TokenIdentity
from tbservice.db.cluster.citus import Forms
from tbservice.db.pipeline import get_driver_connection, query_with_rls
from tbservice.types.identifiers import UserId

_log = logging.getLogger(__name__)

RECORD_PAUSE_SECONDS: Final = 60.0
"""Seconds without records of use after one has failed, in a cluster."""

_paused_until: dict[str, float] = {}
"""End of the pause by name of the database: all of its nodes share it."""


def record_session_use(db: Connection, session_id: str, user_id: UserId) -> None:
    """Set a session's time of last use to now, unless another transaction has locked the row."""
    attempt(
        db,
        query_with_rls,
        {"user_id": user_id},
        """
            UPDATE browser_sessions SET last_used_at = now() WHERE session_id =
                (SELECT session_id FROM browser_sessions WHERE session_id = %(session_id)s
                    FOR UPDATE SKIP LOCKED)
            RETURNING session_id
        """,
        {"session_id": session_id},
    )


def attempt(db: Connection, write: Callable[..., object], *arguments: object) -> None:
    """Call `write` with the connection and arguments; a request does not depend on it in a cluster.

    Every node of one has these tables, so that it fails while one is down. Then the process does
    not try again for `RECORD_PAUSE_SECONDS`: a node that does not answer takes long to fail.
    """
    _ATTEMPT.of(db)(db, write, *arguments)


def _call(db: Connection, write: Callable[..., object], *arguments: object) -> None:
    write(db, *arguments)


def _call_in_cluster(db: Connection, write: Callable[..., object], *arguments: object) -> None:
    driver = get_driver_connection(db)
    if _paused_until.get(driver.info.dbname, 0.0) > time.monotonic():
        return
    is_alone = driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if not is_alone:
        driver.execute("SAVEPOINT record_use")
    try:
        write(db, *arguments)
    except psycopg.Error as error:
        if driver.closed:
            raise
        _log.warning("a node is down; uses of tokens are not recorded: %s", type(error).__name__)
        _paused_until[driver.info.dbname] = time.monotonic() + RECORD_PAUSE_SECONDS
        driver.execute("ROLLBACK" if is_alone else "ROLLBACK TO SAVEPOINT record_use")


_ATTEMPT: Final = Forms(_call, _call_in_cluster)
"""On plain PostgreSQL, a use that cannot be recorded is an error of its request."""


def record_token_use(db: Connection, identity: TokenIdentity) -> None:
    """Set a token's time of last use to now, unless another transaction holds the row's lock."""
    attempt(
        db,
        query_with_rls,
        {"workspace_id": str(identity.workspace_id)},
        """
            UPDATE tokens SET last_used_at = now() WHERE token_id =
                (SELECT token_id FROM tokens WHERE token_id = %(token_id)s FOR UPDATE SKIP LOCKED)
            RETURNING token_id
        """,
        {"token_id": identity.token_id},
    )
