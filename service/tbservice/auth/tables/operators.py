"""Queries on `operators`: the people who have the operator's rights, or had them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import UserId

_TABLE: Final = "operators"


def exist(db: Connection) -> bool:
    """Return whether the schema has the table, which a migration may add meanwhile."""
    return has_table(db, _TABLE)


def select_is_operator(db: Connection, user_id: str) -> str:
    """Return the SQL of whether somebody is an operator; `user_id` is an expression."""
    if not exist(db):
        return "false"
    return f"""EXISTS (
        SELECT FROM operators AS o WHERE o.user_id = {user_id} AND o.revoked_at IS NULL)
    """


def lock(db: Connection, user_id: UserId) -> bool:
    """Return whether somebody is an operator, which they stay until the transaction ends."""
    # An UPDATE locks the row on all nodes of a cluster: see `members.lock_workspace`.
    statement = text("""
        UPDATE operators SET user_id = user_id WHERE user_id = :user_id AND revoked_at IS NULL
    """)
    return exist(db) and db.execute(statement, {"user_id": user_id}).rowcount == 1


def put(db: Connection, user_id: UserId, *, also_revoked: bool) -> bool:
    """Make somebody an operator; return False if nothing changed.

    Without `also_revoked`, not who was one before.
    """
    # A time of `excluded`, since a cluster takes no now() there.
    update = """
        UPDATE SET made_at = excluded.made_at, revoked_at = NULL WHERE o.revoked_at IS NOT NULL
    """
    statement = text(f"""
        INSERT INTO operators AS o (user_id, made_at) VALUES (:user_id, now())
        ON CONFLICT (user_id) DO {update if also_revoked else "NOTHING"}
    """)  # noqa: S608 - constants
    return db.execute(statement, {"user_id": user_id}).rowcount == 1


def revoke(db: Connection, user_id: UserId) -> bool:
    """Take the right away; return False if they have none."""
    statement = text("""
        UPDATE operators SET revoked_at = now() WHERE user_id = :user_id AND revoked_at IS NULL
    """)
    return db.execute(statement, {"user_id": user_id}).rowcount == 1


def list_all(db: Connection) -> list[tuple[UserId, datetime]]:
    """Return the ids of the operators and since when they are, the first first."""
    statement = text("""
        SELECT user_id, made_at FROM operators WHERE revoked_at IS NULL ORDER BY made_at, user_id
    """)
    return [(UserId(row[0]), row[1]) for row in db.execute(statement)]
