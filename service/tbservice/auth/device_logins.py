"""Log a command in that a person approves in a browser: the device flow of RFC 8628.

The command gets a secret device code, with which it asks for its token, and shows a short user
code. The person, signed in in a browser, types that code, and chooses the workspace, the scopes and
the expiry of the token. The address has no code in it: a link that someone sends approves nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import people, tokens, workspaces
from tbservice.auth.tables import device_logins
from tbservice.auth.tables.device_logins import Approval, DeviceLogin
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.types.grants import Scope
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Person, Token

DEVICE_LOGINS_WAITING_PER_NETWORK_ITEMS_MAX: Final = 50
"""Logins of commands (items) begun from one IPv4 address or IPv6 /64 that wait for approval."""

DEVICE_LOGINS_WAITING_ITEMS_MAX: Final = 10_000
"""Logins of commands (items) that wait for approval, in all."""

_CODE_LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"
"""Letters of user codes: no vowels, so that no words come out (RFC 8628, section 6.1)."""

_CODE_CHARS: Final = 8
_DEVICE_CODE_BYTES: Final = 32
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class NewDeviceLogin:
    """A login that has begun; `user_code` is as people read it, `BCDF-GHJK`."""

    device_code: str
    user_code: str


@dataclass(frozen=True, slots=True)
class RedeemedLogin:
    """Token that the command gets. `secret` cannot be read again."""

    secret: str
    token: Token
    person: Person
    workspace_id: WorkspaceId
    workspace_name: str


def begin(db: Connection, client: str, network: str) -> NewDeviceLogin:
    """Begin a login of a command, which nobody has to sign in for.

    Args:
        db: A transaction of no workspace.
        client: The command's description of itself, for the person who approves it.
        network: The IPv4 address or IPv6 network that asks.

    Raises:
        Invalid: The description is too long.
        Conflict: Too many logins wait for approval.
    """
    if len(client) > limits.DEVICE_CLIENT_CHARS_MAX or "\0" in client:
        raise Invalid(
            f"client has at most {limits.DEVICE_CLIENT_CHARS_MAX} characters, none of them NUL"
        )
    device_logins.delete_expired(db, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    _check_room(db, network)
    # RFC 8628, section 5.2: long, as it can be tried without a person.
    device_code = secrets.token_urlsafe(_DEVICE_CODE_BYTES)
    lifetime = timedelta(seconds=limits.DEVICE_LOGIN_SECONDS_MAX)
    # 20^8 codes: a collision with one that waits is rare, and another code costs little.
    for _ in range(_ATTEMPTS):
        user_code = "".join(secrets.choice(_CODE_LETTERS) for _ in range(_CODE_CHARS))
        if device_logins.create(db, _digest(device_code), user_code, client, network, lifetime):
            return NewDeviceLogin(device_code, show_code(user_code))
    raise Conflict("too many logins wait for approval: try again in a minute")


def find(db: Connection, typed_code: str) -> DeviceLogin:
    """Return the login that waits under this code. Raises NotFound."""
    login = device_logins.find_by_code(db, parse_code(typed_code))
    if login is None:
        raise _unknown_code()
    return login


def approve(
    db: Connection,
    person: Person,
    typed_code: str,
    workspace_id: WorkspaceId,
    scopes: Sequence[Scope],
    expires_at: datetime | None,
) -> None:
    """Let the command that shows this code have a token of the person's.

    Args:
        db: A transaction of the workspace.
        person: Session of the person who approves.
        typed_code: The user code.
        workspace_id: Where the token is valid.
        scopes: Scopes of the token.
        expires_at: None for never.

    Raises:
        NotFound: No login waits under this code, or the person is no member of the workspace.
        Forbidden: The scopes are more than the person's role.
        Invalid: No scope, or an expiry in the past.
    """
    login = find(db, typed_code)
    label = login.client.strip() or "tbupload login"
    tokens.check_personal_token(db, person.user_id, workspace_id, scopes, label, expires_at)
    approval = Approval(workspace_id, tuple(scopes), label, expires_at)
    if not device_logins.answer(db, parse_code(typed_code), person.user_id, approval):
        raise _unknown_code()
    record(
        db,
        Act.DEVICE_LOGIN_APPROVE,
        workspace_id,
        person.user_id,
        label=label,
        scopes=" ".join(scopes),
        begun_from=login.network,
    )


def deny(db: Connection, person: Person, typed_code: str) -> None:
    """Refuse the command that shows this code. Raises NotFound."""
    if not device_logins.answer(db, parse_code(typed_code), person.user_id, None):
        raise _unknown_code()
    record(db, Act.DEVICE_LOGIN_DENY, None, person.user_id)


def redeem(database: Database, device_code: str) -> RedeemedLogin | None:
    """Return the token of an approved login, once; None while nobody has answered.

    Raises:
        Forbidden: The person denied, or may no longer have what was approved.
        NotFound: The login is unknown, has expired, or was redeemed.
    """
    digest = _digest(device_code)
    with database.transaction() as db:
        login = device_logins.find(db, digest)
    if login is None:
        raise _ended_login()
    if login.user_id is None:
        return None
    if login.approval is None:
        raise Forbidden("the login was denied in the browser", code="access_denied")

    approval = login.approval
    with database.transaction(approval.workspace_id) as db:
        if not device_logins.redeem(db, digest):
            raise _ended_login()
        person = people.require_enabled(db, login.user_id)
        token, secret = tokens.create_personal_token(
            db,
            person.user_id,
            approval.workspace_id,
            approval.scopes,
            approval.label,
            approval.expires_at,
        )
        name = workspaces.get_name(db, approval.workspace_id)
    return RedeemedLogin(secret, token, person, approval.workspace_id, name)


def show_code(user_code: str) -> str:
    """Return a user code as people read it."""
    middle = len(user_code) // 2
    return f"{user_code[:middle]}-{user_code[middle:]}"


def parse_code(typed: str) -> str:
    """Return the user code that was typed, in any case and with any separators; "" for no code."""
    letters = "".join(char for char in typed.upper() if char in _CODE_LETTERS)
    return letters if len(letters) == _CODE_CHARS else ""


def _check_room(db: Connection, network: str) -> None:
    minutes = limits.DEVICE_LOGIN_SECONDS_MAX // 60
    of_network, total = device_logins.count_waiting(db, network)
    if of_network >= DEVICE_LOGINS_WAITING_PER_NETWORK_ITEMS_MAX:
        raise Conflict(
            f"{of_network} logins from your network ({network}) wait for approval, each for "
            f"{minutes} minutes at most: try again, log in with a token (--with-token), or let "
            "those who began them approve or deny them on the server's page /device"
        )
    if total >= DEVICE_LOGINS_WAITING_ITEMS_MAX:
        raise Conflict(
            f"too many logins wait for approval on this server; they end after {minutes} minutes: "
            "try again later, or log in with a token (--with-token)"
        )


def _unknown_code() -> NotFound:
    return NotFound(
        "no command waits under this code: compare it with the one on your terminal; a code is "
        f"valid for {limits.DEVICE_LOGIN_SECONDS_MAX // 60} minutes, and once"
    )


def _ended_login() -> NotFound:
    return NotFound("this login has expired, or was used already", code="expired_token")


def _digest(device_code: str) -> bytes:
    return hashlib.sha256(device_code.encode("utf-8", "surrogatepass")).digest()
