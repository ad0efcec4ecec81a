"""Operators: people who may see and do, on pages, what administrators do by commands.

Only a command makes one. The look-up of a browser session finds the right (`find_session`), so that
a token never has it, and it ends with the next request; each act checks it once more.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people, sessions
from tbservice.auth.tables import operators
from tbservice.errors import Conflict, NotFound, StartupError
from tbservice.types.identifiers import UserId
from tbservice.types.people import Person


def make_operator(db: Connection, user_id: UserId) -> None:
    """Make a person an operator. For administrators.

    Raises Conflict for who is one, Forbidden for who is disabled or suspended.
    """
    _require_table(db)
    people.require_enabled(db, user_id)
    if not operators.put(db, user_id, also_revoked=True):
        raise Conflict("this person is an operator already")
    record(db, Act.OPERATOR_ADD, None, user_id)


def make_first_operator(db: Connection, user_id: UserId) -> None:
    """Make a person an operator who never was one: whose right was revoked stays without it."""
    if operators.exist(db) and operators.put(db, user_id, also_revoked=False):
        record(db, Act.OPERATOR_ADD, None, user_id)


def revoke_operator(db: Connection, user_id: UserId) -> None:
    """Take the right away, from the next request on. Raises Conflict for who has none."""
    _require_table(db)
    if not operators.revoke(db, user_id):
        raise Conflict("this person is no operator")
    record(db, Act.OPERATOR_REMOVE, None, user_id)


def list_operators(db: Connection) -> list[tuple[Person, datetime]]:
    """Return the operators and since when they are, the first first. For administrators."""
    rows = operators.list_all(db) if operators.exist(db) else []
    found = people.find_people(db, (user_id for user_id, _ in rows))
    return [(found[user_id], made_at) for user_id, made_at in rows]


def check_act(db: Connection, user_id: UserId, session_id: str) -> None:
    """Check that a person may act as an operator, until the transaction ends.

    Raises NotFound for who is none, Forbidden for who signed in too long ago.
    """
    if not operators.lock(db, user_id):
        raise NotFound("there is no such page")
    sessions.check_recent(db, user_id, session_id, "try again")


def _require_table(db: Connection) -> None:
    if not operators.exist(db):
        raise StartupError("the database has no operators yet: run 'tbservice migrate'")
