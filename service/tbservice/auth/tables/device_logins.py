"""Queries on `device_logins`: logins of a command that a person approves in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.auth.tables import network_counts
from tbservice.db.pipeline import query_with_rls
from tbservice.types.grants import Scope
from tbservice.types.identifiers import UserId, WorkspaceId

# The network by way of JSON, which also works before the migration 0011.
_COLUMNS: Final = """
    client, coalesce(to_jsonb(device_logins) ->> 'network', ''), created_at, expires_at,
    user_id, workspace_id, scopes, label, token_expires_at
"""


@dataclass(frozen=True, slots=True)
class Approval:
    """Grant of the person: a token of this workspace, with these scopes."""

    workspace_id: WorkspaceId
    scopes: tuple[Scope, ...]
    label: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """A login that has neither expired nor been redeemed.

    `user_id` is None while nobody has answered; `approval` is None then, and if it was denied.
    `network` is the IPv4 address or IPv6 network that it was begun from; "" if it is not known.
    """

    client: str
    network: str
    created_at: datetime
    expires_at: datetime
    user_id: UserId | None
    approval: Approval | None


def count_waiting(db: Connection, network: str) -> tuple[int, int]:
    """Return how many logins wait for an answer: begun from this network, and in all."""
    return network_counts.count_waiting(db, "device_logins", network, "user_id IS NULL")


def create(
    db: Connection, digest: bytes, user_code: str, client: str, network: str, lifetime: timedelta
) -> bool:
    """Insert a login; return False if another one has this user code.

    Args:
        db: A transaction of no workspace.
        digest: SHA-256 of the device code.
        user_code: Code that the person types.
        client: The command's description of itself.
        network: From which network it was begun.
        lifetime: How long it can be approved and redeemed.
    """
    column, value = network_counts.find_column(db, "device_logins")
    rows = query_with_rls(
        db,
        {"secret_digest": digest.hex()},
        f"""
            INSERT INTO device_logins (digest, user_code, client, expires_at{column})
            VALUES (%(digest)s, %(user_code)s, %(client)s, now() + %(lifetime)s{value})
            ON CONFLICT (user_code) DO NOTHING RETURNING digest
        """,  # noqa: S608 - constants above
        {
            "digest": digest,
            "user_code": user_code,
            "client": client,
            "network": network,
            "lifetime": lifetime,
        },
    )
    return bool(rows)


def find_by_code(db: Connection, user_code: str) -> DeviceLogin | None:
    """Return the login that waits for an answer under this code; None if there is none."""
    rows = query_with_rls(
        db,
        {"user_code": user_code},
        f"""
            SELECT {_COLUMNS} FROM device_logins
            WHERE user_code = %(user_code)s AND user_id IS NULL AND expires_at > now()
        """,  # noqa: S608 - a constant above
        {"user_code": user_code},
    )
    return _device_login(rows[0]) if rows else None


def answer(db: Connection, user_code: str, user_id: UserId, approval: Approval | None) -> bool:
    """Record a person's answer, None for a denial; return False if no login waits for one."""
    rows = query_with_rls(
        db,
        {"user_code": user_code},
        """
            UPDATE device_logins SET user_id = %(user_id)s, workspace_id = %(workspace_id)s,
                scopes = %(scopes)s::text[], label = %(label)s,
                token_expires_at = %(token_expires_at)s
            WHERE user_code = %(user_code)s AND user_id IS NULL AND expires_at > now()
            RETURNING user_code
        """,
        {
            "user_code": user_code,
            "user_id": user_id,
            "workspace_id": approval and approval.workspace_id,
            "scopes": [scope.value for scope in approval.scopes] if approval else None,
            "label": approval and approval.label,
            "token_expires_at": approval and approval.expires_at,
        },
    )
    return bool(rows)


def find(db: Connection, digest: bytes) -> DeviceLogin | None:
    """Return the login with this device code, answered or not; None if there is none."""
    rows = query_with_rls(
        db,
        {"secret_digest": digest.hex()},
        f"""
            SELECT {_COLUMNS} FROM device_logins
            WHERE digest = %(digest)s AND redeemed_at IS NULL AND expires_at > now()
        """,  # noqa: S608 - a constant above
        {"digest": digest},
    )
    return _device_login(rows[0]) if rows else None


def redeem(db: Connection, digest: bytes) -> bool:
    """Record that the command gets its token; return False if it did already, or too late."""
    rows = query_with_rls(
        db,
        {"secret_digest": digest.hex()},
        """
            UPDATE device_logins SET redeemed_at = now()
            WHERE digest = %(digest)s AND redeemed_at IS NULL AND expires_at > now()
            RETURNING digest
        """,
        {"digest": digest},
    )
    return bool(rows)


def delete_expired(db: Connection, limit: int) -> None:
    """Delete at most `limit` expired logins, oldest first."""
    statement = text("""
        DELETE FROM device_logins WHERE digest = ANY (ARRAY(
            SELECT digest FROM device_logins WHERE expires_at < now()
            ORDER BY expires_at LIMIT :limit))
    """)
    db.execute(statement, {"limit": limit})


def _device_login(row: tuple[Any, ...]) -> DeviceLogin:
    client, network, created_at, expires_at, user_id, *approved = row
    workspace_id, scopes, label, token_expires_at = approved
    approval = None
    if workspace_id is not None:
        approval = Approval(workspace_id, tuple(map(Scope, scopes)), label, token_expires_at)
    return DeviceLogin(client, network, created_at, expires_at, user_id, approval)
