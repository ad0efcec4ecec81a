"""Queries on `users`, who belong to no workspace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.auth.tables import secret_use
from tbservice.db.arrays import encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import query_with_rls
from tbservice.db.schema_parts import has_column
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Person

_COLUMNS: Final = "user_id, name, email, email_key, is_disabled, created_at"

SPONSORS_ITEMS_MAX: Final = 8
"""Sponsors (items) of a user: the one who invited them, the one who invited that one, and so on."""


@dataclass(frozen=True, slots=True)
class User:
    """A row. `email_key` is None while nobody has confirmed that the address is theirs."""

    person: Person
    email_key: str | None
    is_disabled: bool
    created_at: datetime


def create(
    db: Connection, user_id: UserId, name: str, email: str, email_key: str | None
) -> User | None:
    """Insert a user; return None if another one has this confirmed address."""
    row = db.execute(
        text(f"""
            INSERT INTO users (user_id, name, email, email_key)
            VALUES (:user_id, :name, :email, :email_key)
            ON CONFLICT (email_key) DO NOTHING RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {"user_id": user_id, "name": name, "email": email, "email_key": email_key},
    ).one_or_none()
    return None if row is None else _user(row)


def find(db: Connection, user_id: UserId) -> User | None:
    """Return a user, or None."""
    return _find(db, "user_id = :value", user_id)


def find_by_email_key(db: Connection, email_key: str) -> User | None:
    """Return the user with this confirmed address, or None."""
    return _find(db, "email_key = :value", email_key)


def list_by_address(db: Connection, email_key: str) -> list[User]:
    """Return the users who show this address, confirmed or not, the oldest first.

    Reads all users: for what happens once to a person.
    """
    # Accepted addresses are ASCII, which every collation lowers as `email_key` does.
    statement = text(f"""
        SELECT {_COLUMNS} FROM users WHERE lower(email) = :value ORDER BY created_at, user_id
    """)  # noqa: S608 - a constant above
    return [_user(row) for row in db.execute(statement, {"value": email_key})]


def list_by_ids(db: Connection, user_ids: Iterable[str]) -> list[User]:
    """Return the users with these ids, in no order."""
    statement = text(f"SELECT {_COLUMNS} FROM users WHERE user_id = ANY (CAST(:ids AS text[]))")  # noqa: S608 - a constant above
    rows = db.execute(statement, {"ids": encode_array("text", list(set(user_ids)))})
    return [_user(row) for row in rows]


def list_sponsors(db: Connection, user_id: UserId) -> list[UserId]:
    """Return who invited a user, and who invited that one, the first one first; then the user.

    There are at most `SPONSORS_ITEMS_MAX` before the user.
    """
    # By way of JSON, which also works before the migration 0012.
    statement = text("""
        WITH RECURSIVE sponsors AS (
            SELECT user_id, to_jsonb(users) ->> 'sponsor' AS sponsor, 1 AS level
            FROM users WHERE user_id = :user_id
            UNION ALL
            SELECT u.user_id, to_jsonb(u) ->> 'sponsor', level + 1
            FROM sponsors AS s JOIN users AS u ON u.user_id = s.sponsor WHERE level < :items_max)
        SELECT user_id FROM sponsors ORDER BY level DESC
    """)
    values = {"user_id": user_id, "items_max": SPONSORS_ITEMS_MAX + 1}
    return [UserId(sponsor) for sponsor in db.execute(statement, values).scalars()]


def set_sponsor(db: Connection, user_id: UserId, sponsor: UserId | None) -> None:
    """Record in whose share of the server a user has one; None for a share of their own.

    Does nothing before the migration 0012, which servers must not wait for.
    """
    if has_column(db, "users", "sponsor"):
        statement = text("UPDATE users SET sponsor = :sponsor WHERE user_id = :user_id")
        db.execute(statement, {"user_id": user_id, "sponsor": sponsor})


def set_last_workspace(db: Connection, user_id: UserId, workspace_id: WorkspaceId) -> None:
    """Record which workspace a user used last, unless another transaction has locked the row.

    Does nothing before the migration 0026, which servers must not wait for.
    """
    if has_column(db, "users", "last_workspace_id"):
        secret_use.attempt(
            db,
            query_with_rls,
            {},
            """
                UPDATE users SET last_workspace_id = %(workspace_id)s WHERE user_id =
                    (SELECT user_id FROM users WHERE user_id = %(user_id)s FOR UPDATE SKIP LOCKED)
                RETURNING user_id
            """,
            {"user_id": user_id, "workspace_id": workspace_id},
        )


def confirm_address(db: Connection, user_id: UserId, email_key: str) -> None:
    """Record that a user's address is theirs; it must not be confirmed as another's.

    An administrator or a provider knows the user, who has a share of their own from now on.
    """
    statement = text("UPDATE users SET email_key = :email_key WHERE user_id = :user_id")
    db.execute(statement, {"user_id": user_id, "email_key": email_key})
    set_sponsor(db, user_id, None)


def lock(db: Connection, user_id: UserId) -> User | None:
    """Return a user and keep it enabled, or disabled, until the transaction ends; or None."""
    # Locks the row on all nodes of a cluster: see `members.lock_workspace`.
    statement = text(f"UPDATE users SET name = name WHERE user_id = :value RETURNING {_COLUMNS}")  # noqa: S608 - a constant above
    row = db.execute(statement, {"value": user_id}).one_or_none()
    return None if row is None else _user(row)


def lock_for_count(db: Connection, user_id: UserId) -> None:
    """Let concurrent transactions that count what a user has wait for each other."""
    citus.lock_name(db, f"count {user_id}")


def set_disabled(db: Connection, user_id: UserId, is_disabled: bool) -> None:
    """Disable or enable a user. Idempotent."""
    statement = text("UPDATE users SET is_disabled = :is_disabled WHERE user_id = :user_id")
    db.execute(statement, {"user_id": user_id, "is_disabled": is_disabled})


def set_name(db: Connection, user_id: UserId, name: str) -> None:
    """Set the name that people see."""
    statement = text("UPDATE users SET name = :name WHERE user_id = :user_id")
    db.execute(statement, {"user_id": user_id, "name": name})


def list_all(db: Connection) -> list[User]:
    """Return every user, the oldest first. For administrators of the service."""
    rows = db.execute(text(f"SELECT {_COLUMNS} FROM users ORDER BY created_at, user_id"))  # noqa: S608 - a constant above
    return [_user(row) for row in rows]


def _find(db: Connection, condition: str, value: str) -> User | None:
    statement = text(f"SELECT {_COLUMNS} FROM users WHERE {condition}")  # noqa: S608 - a constant of ours
    row = db.execute(statement, {"value": value}).one_or_none()
    return None if row is None else _user(row)


def _user(row: Row[Any]) -> User:
    person = Person(UserId(row.user_id), row.name, row.email)
    return User(person, row.email_key, row.is_disabled, row.created_at)
