"""People for tests: persons, their roles and their browser sessions."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import text

from support.waiting import wait_until
from tbservice.auth import people, sessions, tokens
from tbservice.auth.tables import members
from tbservice.db.cluster.citus import has_extension
from tbservice.errors import ServiceError
from tbservice.types.grants import OwnerGrant
from tbservice.types.people import Role

_numbers = itertools.count(1)

BLOCKED_SECONDS = 0.2
"""Time for a transaction on a cluster to reach the lock that another one holds."""

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


def new_personal_token(database, workspace_id, person, *scopes, expires_at=None):
    """Create a token that acts for a member; return its secret."""
    with database.transaction(workspace_id) as db:
        made = tokens.create_personal_token(
            db, person.user_id, workspace_id, scopes, expires_at=expires_at
        )
    return made[1]


def new_machine_token(database, workspace_id, *scopes):
    """Create a token of the workspace that acts for nobody; return its secret."""
    owner = new_member(database, workspace_id)
    with database.transaction(workspace_id) as db:
        return tokens.create_workspace_token(db, owner_of(workspace_id, owner), scopes)[1]


def owner_of(workspace_id, person=None):
    """Return the right of an owner, or of a machine, to manage the workspace."""
    return OwnerGrant(workspace_id, user_id=None if person is None else person.user_id)


def race(database, workspace_id, first, second):
    """Run `second(db)` in a transaction that begins before that of `first(db)` is committed, which
    is when it waits for the first one or has ended.

    Returns the result of `second`, or the error that it raised.
    """

    def run():
        try:
            with database.transaction(workspace_id) as db:
                return second(db)
        except ServiceError as error:
            return error

    with ThreadPoolExecutor(1) as threads:
        with database.transaction(workspace_id) as db:
            first(db)
            running = threads.submit(run)
            if has_extension(db):  # it waits for a session of another node
                time.sleep(BLOCKED_SECONDS)
            else:
                wait_until(lambda: running.done() or _is_waited_for(db))
        return running.result()


def _is_waited_for(db):
    """Return whether another session waits for a lock that this one's transaction has."""
    waiting = "NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return db.execute(text(f"SELECT EXISTS (SELECT FROM pg_locks WHERE {waiting})")).scalar_one()  # noqa: S608 - the line above
