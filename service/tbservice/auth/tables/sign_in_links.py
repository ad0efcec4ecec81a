"""Queries on `sign_in_links`, which are stored as SHA-256 of the link's secret."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text

from tbservice.db.database import set_local
from tbservice.types.identifiers import UserId


def create(db: Connection, digest: bytes, user_id: UserId, expires_at: datetime) -> None:
    """Insert a link."""
    set_local(db, "user_id", user_id)
    db.execute(
        text("""
            INSERT INTO sign_in_links (digest, user_id, expires_at)
            VALUES (:digest, :user_id, :expires_at)
        """),
        {"digest": digest, "user_id": user_id, "expires_at": expires_at},
    )


def find(db: Connection, digest: bytes) -> UserId | None:
    """Return the user of a link that can be used; None for any other."""
    set_local(db, "secret_digest", digest.hex())
    statement = text("""
        SELECT user_id FROM sign_in_links
        WHERE digest = :digest AND used_at IS NULL AND expires_at > now()
    """)
    return db.execute(statement, {"digest": digest}).scalar_one_or_none()


def use(db: Connection, digest: bytes) -> UserId | None:
    """Use up a link and return its user; None if it cannot be used.

    The row's lock lets only one of several transactions use it: the others then read `used_at`.
    """
    set_local(db, "secret_digest", digest.hex())
    statement = text("""
        UPDATE sign_in_links SET used_at = now()
        WHERE digest = :digest AND used_at IS NULL AND expires_at > now()
        RETURNING user_id
    """)
    return db.execute(statement, {"digest": digest}).scalar_one_or_none()


def delete_of_user(db: Connection, user_id: UserId) -> None:
    """Delete all links of a user. Idempotent."""
    set_local(db, "user_id", user_id)
    db.execute(text("DELETE FROM sign_in_links WHERE user_id = :user_id"), {"user_id": user_id})


def delete_expired(db: Connection, limit: int) -> None:
    """Delete at most `limit` expired links of anyone, oldest first."""
    # An array is evaluated once: see `tokens.delete_ended_sessions`.
    statement = text("""
        DELETE FROM sign_in_links WHERE digest = ANY (ARRAY(
            SELECT digest FROM sign_in_links WHERE expires_at < now()
            ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(statement, {"limit": limit})
