"""Queries on `browser_sessions`, which are stored as SHA-256 of the cookie's secret."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.auth.tables import operators
from tbservice.db.database import set_local
from tbservice.db.suspensions import select_suspension
from tbservice.types.identifiers import UserId
from tbservice.types.people import BrowserSession, Person
from tbservice.types.suspensions import Suspension

# By way of JSON, which also works before the migration 0026.
_SESSIONS: Final = """
    SELECT s.session_id, u.user_id, u.name, u.email, s.user_agent, s.address, s.created_at,
        s.last_used_at, s.expires_at, CAST(to_jsonb(u) ->> 'last_workspace_id' AS bigint),
        {is_operator}, {suspension} AS suspension,
        s.last_used_at > now() - interval '1 minute' AS was_just_used
    FROM browser_sessions AS s JOIN users AS u ON u.user_id = s.user_id AND NOT u.is_disabled
    WHERE s.expires_at > now() AND s.last_used_at > now() - :idle_seconds * interval '1 second'
"""


def create(
    db: Connection,
    session_id: str,
    user_id: UserId,
    digest: bytes,
    user_agent: str,
    address: str,
    expires_at: datetime,
) -> None:
    """Insert a session."""
    set_local(db, "user_id", user_id)
    db.execute(
        text("""
            INSERT INTO browser_sessions
                (session_id, user_id, digest, user_agent, address, expires_at)
            VALUES (:session_id, :user_id, :digest, :user_agent, :address, :expires_at)
        """),
        {
            "session_id": session_id,
            "user_id": user_id,
            "digest": digest,
            "user_agent": user_agent,
            "address": address,
            "expires_at": expires_at,
        },
    )


def find(db: Connection, digest: bytes, idle_seconds: int) -> tuple[BrowserSession, bool] | None:
    """Return a session that is valid and whose person is not disabled; None for any other.

    With it, whether it was used within the last minute. Raises Forbidden if the person is
    suspended.
    """
    suspension = select_suspension(db, "'person/' || u.user_id")
    set_local(db, "secret_digest", digest.hex())
    is_operator = operators.select_is_operator(db, "u.user_id")
    sessions = _SESSIONS.format(suspension=suspension, is_operator=is_operator)
    statement = text(f"{sessions} AND s.digest = :digest")
    row = db.execute(statement, {"digest": digest, "idle_seconds": idle_seconds}).one_or_none()
    if row is not None and (found := Suspension.parse(row.suspension)):
        raise found.as_error()
    return None if row is None else (_session(row), bool(row.was_just_used))


def list_of_user(db: Connection, user_id: UserId, idle_seconds: int) -> list[BrowserSession]:
    """Return the valid sessions of a user, the most recently used first."""
    set_local(db, "user_id", user_id)
    sessions = _SESSIONS.format(suspension="NULL", is_operator="false")
    statement = text(f"{sessions} AND s.user_id = :user_id ORDER BY last_used_at DESC, session_id")
    rows = db.execute(statement, {"user_id": user_id, "idle_seconds": idle_seconds})
    return [_session(row) for row in rows]


def delete(db: Connection, digest: bytes) -> tuple[str, UserId] | None:
    """Delete the session with this secret; return it and its user, None if there is none."""
    set_local(db, "secret_digest", digest.hex())
    statement = text("""
        DELETE FROM browser_sessions WHERE digest = :digest RETURNING session_id, user_id
    """)
    row = db.execute(statement, {"digest": digest}).one_or_none()
    return None if row is None else (row.session_id, row.user_id)


def delete_of_user(db: Connection, user_id: UserId, session_id: str | None, kept: int = 0) -> int:
    """Delete sessions of a user and return how many were deleted.

    Args:
        db: A transaction.
        user_id: The user.
        session_id: The session to delete; None for all.
        kept: Keep so many of those used most recently.
    """
    set_local(db, "user_id", user_id)
    statement = text("""
        DELETE FROM browser_sessions WHERE session_id = ANY (ARRAY(
            SELECT session_id FROM browser_sessions WHERE user_id = :user_id
                AND (CAST(:session_id AS text) IS NULL OR session_id = :session_id)
            ORDER BY last_used_at DESC, session_id OFFSET :kept FOR UPDATE))
    """)
    values = {"user_id": user_id, "session_id": session_id, "kept": kept}
    return db.execute(statement, values).rowcount


def delete_others(db: Connection, user_id: UserId, session_id: str) -> int:
    """Delete all sessions of a user but one; return how many were deleted."""
    set_local(db, "user_id", user_id)
    statement = text("""
        DELETE FROM browser_sessions WHERE user_id = :user_id AND session_id <> :session_id
    """)
    return db.execute(statement, {"user_id": user_id, "session_id": session_id}).rowcount


def delete_expired(db: Connection, limit: int) -> None:
    """Delete at most `limit` expired sessions of anyone, oldest first."""
    # An array is evaluated once: see `tokens.delete_ended_sessions`.
    statement = text("""
        DELETE FROM browser_sessions WHERE session_id = ANY (ARRAY(
            SELECT session_id FROM browser_sessions WHERE expires_at < now()
            ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(statement, {"limit": limit})


def _session(row: Sequence[Any]) -> BrowserSession:
    session_id, user_id, name, email, *shown, _, _ = row
    return BrowserSession(session_id, Person(user_id, name, email), *shown)
