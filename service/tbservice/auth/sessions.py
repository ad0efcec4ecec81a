"""Open, find and end browser sessions: a browser that a person is signed in with.

Nothing of them is cached, so that one that is revoked opens nothing from then on.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit import acting
from tbservice.audit.acting import Means
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people, secrets
from tbservice.auth.secrets import SecretKind
from tbservice.auth.tables import browser_sessions, secret_use, sign_in_links
from tbservice.db.clock import read_now
from tbservice.errors import Forbidden, NotFound
from tbservice.types.identifiers import UserId
from tbservice.types.people import BrowserSession

PERSON_SESSIONS_ITEMS_MAX: Final = 50
"""Browser sessions (items) of a person.

A sign-in beyond them ends the one that was used least recently.
"""

USER_AGENT_CHARS_MAX: Final = 300
"""Characters kept of what a browser says of itself."""

RECENT_SIGN_IN_SECONDS: Final = 900
"""Seconds since a sign-in in which a person may do what nobody else may do in their browser."""

ADDRESS_CHARS_MAX: Final = 64
"""Characters kept of a client's network address."""


def open_session(
    db: Connection, user_id: UserId, user_agent: str, address: str, by: str = ""
) -> str:
    """Return the secret of a new session. Deletes a few expired ones of anyone.

    A sign-in always opens a new session, whatever the browser had before: a secret that somebody
    planted there stays worthless. Close the old one.

    Args:
        db: A transaction.
        user_id: Person who has signed in.
        user_agent: User-Agent of the browser; cut.
        address: Address of the client; cut.
        by: How they signed in, for the audit log.

    Raises:
        Forbidden: The person is disabled.
        NotFound: There is no such person.
    """
    people.require_enabled(db, user_id)
    browser_sessions.delete_expired(db, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    browser_sessions.delete_of_user(db, user_id, None, kept=PERSON_SESSIONS_ITEMS_MAX - 1)
    secret = secrets.generate_secret(SecretKind.SESSION)
    session_id = secrets.generate_public_id()
    acting.identify(Means.SESSION, session_id, user_id)
    record(db, Act.SIGN_IN, None, user_id, by=by, user_agent=user_agent)
    browser_sessions.create(
        db,
        session_id,
        user_id,
        secrets.secret_digest(secret),
        user_agent.replace("\0", "")[:USER_AGENT_CHARS_MAX],
        address.replace("\0", "")[:ADDRESS_CHARS_MAX],
        read_now(db) + timedelta(seconds=limits.PERSON_SESSION_SECONDS_MAX),
    )
    return secret


def find_session(db: Connection, secret: str | None) -> BrowserSession | None:
    """Return a valid session, and record that it was used, at most once a minute.

    None if it is unknown, expired, unused for too long or revoked, or if its person is disabled.
    `db` is a transaction that may write. Raises Forbidden if the person is suspended.
    """
    digest = secrets.parse_digest(secret, SecretKind.SESSION) if secret else None
    if digest is None:
        return None
    found = browser_sessions.find(db, digest, limits.PERSON_SESSION_IDLE_SECONDS_MAX)
    if found is None:
        return None
    session, was_just_used = found
    acting.identify(Means.SESSION, session.session_id, session.person.user_id)
    if not was_just_used:
        secret_use.record_session_use(db, session.session_id, session.person.user_id)
    return session


def close_session(db: Connection, secret: str | None) -> None:
    """End the session of this secret: sign out. Idempotent."""
    digest = secrets.parse_digest(secret, SecretKind.SESSION) if secret else None
    if digest is not None and (ended := browser_sessions.delete(db, digest)):
        session_id, user_id = ended
        record(db, Act.SIGN_OUT, None, user_id, session_id=session_id)


def list_sessions(db: Connection, user_id: UserId) -> list[BrowserSession]:
    """Return the valid sessions of a person, the most recently used first."""
    return browser_sessions.list_of_user(db, user_id, limits.PERSON_SESSION_IDLE_SECONDS_MAX)


def check_recent(db: Connection, user_id: UserId, session_id: str, then: str) -> None:
    """Raise Forbidden unless a person opened this session a short time ago.

    `then` says what they can do after they have signed in again.
    """
    latest = read_now(db) - timedelta(seconds=RECENT_SIGN_IN_SECONDS)
    opened = {each.session_id: each.created_at for each in list_sessions(db, user_id)}
    if session_id not in opened or opened[session_id] <= latest:
        raise Forbidden(
            f"you signed in more than {RECENT_SIGN_IN_SECONDS // 60} minutes ago: sign out, sign "
            f"in again, and then {then}"
        )


def revoke_session(db: Connection, user_id: UserId, session_id: str) -> None:
    """End a session of this person. Raises NotFound if they have no such session."""
    if not browser_sessions.delete_of_user(db, user_id, session_id):
        raise NotFound("you have no such session")
    record(db, Act.SESSION_END, None, user_id, session_id=session_id)


def revoke_other_sessions(db: Connection, user_id: UserId, session_id: str) -> int:
    """End all sessions of a person but this one, and sign-in links; return how many. Idempotent."""
    sign_in_links.delete_of_user(db, user_id)
    ended = browser_sessions.delete_others(db, user_id, session_id)
    if ended:
        record(db, Act.SESSION_END, None, user_id, ended=ended)
    return ended
