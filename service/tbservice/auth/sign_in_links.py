"""One-time links that sign a person in, for services without an OpenID provider."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people, secrets
from tbservice.auth.secrets import SecretKind
from tbservice.auth.tables import sign_in_links, users
from tbservice.db.clock import read_now
from tbservice.errors import Forbidden, NotFound
from tbservice.types.identifiers import UserId
from tbservice.types.people import Person

SIGN_IN_LINK_SECONDS: Final = 24 * 3600
"""Seconds for which a one-time sign-in link of an administrator is valid."""


def create_link(db: Connection, user_id: UserId, seconds: float = SIGN_IN_LINK_SECONDS) -> str:
    """Return the secret of a new link, valid for `seconds` and once. Deletes a few expired ones.

    For administrators: who has it becomes this person. Raises Forbidden if the person is disabled
    or suspended, NotFound if there is no such person.
    """
    people.require_enabled(db, user_id)
    sign_in_links.delete_expired(db, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    secret = secrets.generate_secret(SecretKind.SIGN_IN_LINK)
    expires_at = read_now(db) + timedelta(seconds=seconds)
    sign_in_links.create(db, secrets.secret_digest(secret), user_id, expires_at)
    record(db, Act.SIGN_IN_LINK_CREATE, None, user_id, expires_at=expires_at.isoformat())
    return secret


def create_own_link(db: Connection, user_id: UserId, *, has_providers: bool) -> str:
    """Return the secret of a short-lived link with which a person signs in on another browser.

    It replaces those that were not used: a person has one link of their own. Raises Forbidden where
    people sign in at an OpenID provider, which decides each time whether they still may, and if the
    person is disabled.
    """
    if has_providers:
        raise Forbidden("here, people sign in at a provider: do so in the other browser")
    sign_in_links.delete_of_user(db, user_id)
    return create_link(db, user_id, limits.SIGN_IN_LINK_LOCAL_SECONDS)


def find_link(db: Connection, secret: str) -> Person:
    """Return whom a link would sign in, and leave it unused: scanners of e-mail open links.

    Raises NotFound if it is unknown, used or expired, or its person is disabled: all look the same.
    """
    digest = secrets.parse_digest(secret, SecretKind.SIGN_IN_LINK)
    return _require_person(db, None if digest is None else sign_in_links.find(db, digest))


def use_link(db: Connection, secret: str) -> Person:
    """Use up a link and return whom it signs in; of several requests at once, one succeeds.

    Raises NotFound as `find_link` does.
    """
    digest = secrets.parse_digest(secret, SecretKind.SIGN_IN_LINK)
    return _require_person(db, None if digest is None else sign_in_links.use(db, digest))


def _require_person(db: Connection, user_id: UserId | None) -> Person:
    user = None if user_id is None else users.find(db, user_id)
    if user is None or user.is_disabled:
        raise NotFound("this sign-in link is unknown, was used already, or has expired")
    return user.person
