"""Queries on `user_identities`: the accounts at OpenID providers that people sign in with."""

from __future__ import annotations

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.database import set_local
from tbservice.types.identifiers import UserId


def lock(db: Connection, issuer: str, subject: str) -> None:
    """Let concurrent first sign-ins with one account wait for each other, by an advisory lock."""
    citus.lock_name(db, f"{issuer} {subject}")


def find(db: Connection, issuer: str, subject: str) -> UserId | None:
    """Return the user of an account. The row policy shows it to who names the exact pair."""
    set_local(db, "issuer", issuer)
    set_local(db, "subject", subject)
    statement = text(
        "SELECT user_id FROM user_identities WHERE issuer = :issuer AND subject = :subject"
    )
    return db.execute(statement, {"issuer": issuer, "subject": subject}).scalar_one_or_none()


def has_account_of(db: Connection, user_id: UserId, issuer: str) -> bool:
    """Return whether a user signs in with an account of this provider."""
    set_local(db, "user_id", user_id)
    statement = text(
        "SELECT EXISTS (SELECT FROM user_identities WHERE user_id = :user_id AND issuer = :issuer)"
    )
    return bool(db.execute(statement, {"user_id": user_id, "issuer": issuer}).scalar_one())


def create(db: Connection, issuer: str, subject: str, user_id: UserId) -> None:
    """Insert the account of a user."""
    set_local(db, "user_id", user_id)
    db.execute(
        text(
            "INSERT INTO user_identities (issuer, subject, user_id) "
            "VALUES (:issuer, :subject, :user_id)"
        ),
        {"issuer": issuer, "subject": subject, "user_id": user_id},
    )
