"""People for tests: persons, their roles and their browser sessions."""

from __future__ import annotations

import itertools

from tbservice.auth import people, sessions
from tbservice.store import members
from tbservice.types import Role

_numbers = itertools.count(1)

SESSION_COOKIE = "tbhub_session"
"""The name of the cookie where the public URL is plain http, as in tests."""


def new_person(database, email=None, name="Ann"):
    """Create a person; each has an address of their own unless one is given."""
    with database.transaction() as db:
        address = email or f"person{next(_numbers)}@example.org"
        return people.find_or_create_by_email(db, address, name)


def new_member(database, workspace_id, role=Role.OWNER):
    """Create a person who is a member of the workspace."""
    person = new_person(database)
    with database.transaction(workspace_id) as db:
        members.put(db, workspace_id, person.user_id, role)
    return person


def sign_in(database, person):
    """Open a browser session of a person; return its secret."""
    with database.transaction() as db:
        return sessions.open_session(db, person.user_id, "a test's browser", "192.0.2.7")


def new_session(database, workspace_id, role=Role.OWNER):
    """Return the secret of a browser session of a new member."""
    return sign_in(database, new_member(database, workspace_id, role))


def cookie_of(secret):
    """Return the header of a request of that browser."""
    return {"Cookie": f"{SESSION_COOKIE}={secret}"}
