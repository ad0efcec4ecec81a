"""Queries on `invitations`, which are stored as SHA-256 of the link's secret."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.db.database import set_local
from tbservice.db.suspensions import select_suspension
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Invitation, Person, Role

_INVITATIONS: Final = """
    SELECT i.invitation_id, i.workspace_id, w.name, i.role, i.email, i.created_at, i.expires_at,
        i.accepted_at, i.revoked_at, u.user_id, u.name, u.email
    FROM invitations AS i JOIN workspaces AS w ON w.workspace_id = i.workspace_id
    LEFT JOIN users AS u ON u.user_id = i.created_by
"""
_IS_OPEN: Final = "accepted_at IS NULL AND revoked_at IS NULL AND expires_at > now()"


def create(
    db: Connection,
    workspace_id: WorkspaceId,
    invitation_id: str,
    role: Role,
    email: str,
    digest: bytes,
    created_by: UserId | None,
    expires_at: datetime,
) -> None:
    """Insert an invitation."""
    db.execute(
        text("""
            INSERT INTO invitations (invitation_id, workspace_id, role, email, digest, created_by,
                expires_at)
            VALUES (:invitation_id, :workspace_id, :role, :email, :digest, :created_by,
                :expires_at)
        """),
        {
            "invitation_id": invitation_id,
            "workspace_id": workspace_id,
            "role": role.value,
            "email": email,
            "digest": digest,
            "created_by": created_by,
            "expires_at": expires_at,
        },
    )


def find(db: Connection, workspace_id: WorkspaceId, invitation_id: str) -> Invitation | None:
    """Return an invitation of the workspace, or None."""
    return _find(
        db,
        "i.workspace_id = :workspace_id AND i.invitation_id = :invitation_id",
        {"workspace_id": workspace_id, "invitation_id": invitation_id},
    )


def find_open(db: Connection, digest: bytes) -> Invitation | None:
    """Return the open invitation with this secret; None for any other.

    While its workspace or who invited is suspended, it is not open.
    """
    suspension = select_suspension(
        db, "'workspace/' || i.workspace_id", "'person/' || i.created_by"
    )
    set_local(db, "secret_digest", digest.hex())
    condition = f"i.digest = :digest AND {_IS_OPEN} AND {suspension} IS NULL"
    return _find(db, condition, {"digest": digest})


def accept(db: Connection, invitation_id: str, user_id: UserId) -> bool:
    """Use up an invitation; return False if it is not open.

    The row's lock lets only one of several transactions use it.
    """
    statement = text(f"""
        UPDATE invitations SET accepted_at = now(), accepted_by = :user_id
        WHERE invitation_id = :invitation_id AND {_IS_OPEN}
    """)  # noqa: S608 - a constant above
    values = {"invitation_id": invitation_id, "user_id": user_id}
    return db.execute(statement, values).rowcount == 1


def count_open(db: Connection, workspace_id: WorkspaceId) -> int:
    """Return the number of open invitations of a workspace."""
    statement = f"SELECT count(*) FROM invitations WHERE workspace_id = :id AND {_IS_OPEN}"  # noqa: S608 - a constant above
    return int(db.execute(text(statement), {"id": workspace_id}).scalar_one())


def list_open(db: Connection, workspace_id: WorkspaceId) -> list[Invitation]:
    """Return the open invitations of a workspace, the newest first."""
    statement = text(f"""
        {_INVITATIONS} WHERE i.workspace_id = :workspace_id AND {_IS_OPEN}
        ORDER BY i.created_at DESC, i.invitation_id
    """)
    return [_invitation(row) for row in db.execute(statement, {"workspace_id": workspace_id})]


def revoke(db: Connection, workspace_id: WorkspaceId, invitation_id: str) -> bool:
    """Revoke an invitation; return False if the workspace has no such one that is not accepted."""
    statement = text("""
        UPDATE invitations SET revoked_at = least(revoked_at, now())
        WHERE workspace_id = :workspace_id AND invitation_id = :id AND accepted_at IS NULL
    """)
    values = {"workspace_id": workspace_id, "id": invitation_id}
    return db.execute(statement, values).rowcount == 1


def revoke_created_by(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> None:
    """Revoke the open invitations that a user created in a workspace. Idempotent."""
    statement = text(f"""
        UPDATE invitations SET revoked_at = now()
        WHERE workspace_id = :workspace_id AND created_by = :user_id AND {_IS_OPEN}
    """)  # noqa: S608 - a constant above
    db.execute(statement, {"workspace_id": workspace_id, "user_id": user_id})


def delete_ended(db: Connection, workspace_id: WorkspaceId, before: datetime, limit: int) -> None:
    """Delete at most `limit` invitations of a workspace that expired before a time. Idempotent."""
    # An array is evaluated once: see `tokens.delete_ended_sessions`.
    statement = text("""
        DELETE FROM invitations WHERE invitation_id = ANY (ARRAY(
            SELECT invitation_id FROM invitations
            WHERE workspace_id = :workspace_id AND expires_at < :before
            LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(statement, {"workspace_id": workspace_id, "before": before, "limit": limit})


def _find(db: Connection, condition: str, values: dict[str, object]) -> Invitation | None:
    row = db.execute(text(f"{_INVITATIONS} WHERE {condition}"), values).one_or_none()
    return None if row is None else _invitation(row)


def _invitation(row: Sequence[Any]) -> Invitation:
    role, inviter = Role(row[3]), Person.of(*row[-3:])
    fields = [*row[:3], role, row[4], inviter, *row[5:-3]]
    return Invitation(*fields)
