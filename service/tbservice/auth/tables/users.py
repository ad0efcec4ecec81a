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


@dataclass(frozen=True, slots=True)
class UserState:
    """A user with what other tables say of them; `state` is one of `STATES` but "" and operator."""

    user: User
    state: str
    is_operator: bool


_LISTED: Final = """
    SELECT u.*, o.user_id IS NOT NULL AS is_operator, CASE
        WHEN s.erase_at IS NOT NULL THEN 'deleted' WHEN s.reason <> '' THEN 'suspended'
        WHEN u.is_disabled THEN 'disabled' ELSE 'active' END AS state
    FROM users AS u LEFT JOIN suspensions AS s ON s.subject = 'person/' || u.user_id
    LEFT JOIN operators AS o ON o.user_id = u.user_id AND o.revoked_at IS NULL
"""
_ORDERS: Final = {
    "newest": "created_at DESC",
    "oldest": "created_at",
    "address": "lower(email)",
    "name": "lower(name)",
    "sign_in": "last_sign_in_at DESC NULLS LAST",
}
_SIGN_INS: Final = """
    SELECT user_id, max(recorded_at) AS last_sign_in_at FROM audit_records
    WHERE workspace_id = 0 AND act = 'sign_in' GROUP BY user_id
"""
"""Only for a transaction that sees what is of no workspace."""

ORDERS: Final = tuple(_ORDERS)
STATES: Final = ("", "active", "suspended", "disabled", "deleted", "operator")


def list_page(
    db: Connection, order: str, state: str, written: str, limit: int, offset: int
) -> tuple[int, list[UserState]]:
    """Return how many users there are, and a page of them.

    Needs the migration 0027, without which nobody may see it.

    Args:
        db: A transaction that sees what is of no workspace.
        order: One of `ORDERS`.
        state: One of `STATES`.
        written: An id, or a part of the address or the name in any case; "" for all.
        limit: Users at most.
        offset: Users before the page.
    """
    rows = db.execute(
        text(f"""
            SELECT *, count(*) OVER () AS total FROM ({_LISTED}) AS listed
            {f"LEFT JOIN ({_SIGN_INS}) AS s USING (user_id)" if order == "sign_in" else ""}
            WHERE (:state = '' OR state = :state OR (:state = 'operator' AND is_operator))
                AND (:written = '' OR user_id = :written
                    OR position(lower(:written) IN lower(email)) > 0
                    OR position(lower(:written) IN lower(name)) > 0)
            ORDER BY {_ORDERS[order]}, user_id LIMIT :limit OFFSET :offset
        """),  # noqa: S608 - constants
        {"state": state, "written": written, "limit": limit, "offset": offset},
    ).all()
    return rows[0].total if rows else 0, [_listed(row) for row in rows]


def find_listed(db: Connection, user_id: UserId) -> UserState | None:
    """Return a user as `list_page` does, or None."""
    statement = text(f"{_LISTED} WHERE u.user_id = :user_id")
    row = db.execute(statement, {"user_id": user_id}).one_or_none()
    return None if row is None else _listed(row)


def count_secrets(db: Connection, user_id: UserId) -> tuple[int, int]:
    """Return how many browser sessions and tokens of a user are valid, in their transaction."""
    statement = text("""
        SELECT (SELECT count(*) FROM browser_sessions
                WHERE user_id = :user_id AND expires_at > now()),
            (SELECT count(*) FROM tokens WHERE user_id = :user_id AND NOT is_session
                AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
    """)
    sessions, tokens = db.execute(statement, {"user_id": user_id}).one()
    return sessions, tokens


def _listed(row: Row[Any]) -> UserState:
    return UserState(_user(row), row.state, row.is_operator)


def _find(db: Connection, condition: str, value: str) -> User | None:
    statement = text(f"SELECT {_COLUMNS} FROM users WHERE {condition}")  # noqa: S608 - a constant of ours
    row = db.execute(statement, {"value": value}).one_or_none()
    return None if row is None else _user(row)


def _user(row: Row[Any]) -> User:
    person = Person(UserId(row.user_id), row.name, row.email)
    return User(person, row.email_key, row.is_disabled, row.created_at)
