"""Queries on `tokens`, which are stored as SHA-256 of the secret."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.store.pg.database import set_local
from tbservice.types import ExperimentId, Scope, Token, TokenId, UserId, WorkspaceId

_COLUMNS: Final = """
    token_id, experiment_id, scopes, label, prefix, created_at, expires_at, revoked_at, last_used_at
"""


@dataclass(frozen=True, slots=True)
class TokenProperties:
    """What a new token permits, and what is shown of it.

    `experiment_id` is the only experiment that it is valid for, None for all; `expires_at` None is
    never. `user_id` is the person whom it acts for, and with whose rights it ends. With
    `is_session`, it was created for a browser, and is deleted after it has expired.
    """

    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: tuple[Scope, ...]
    label: str
    expires_at: datetime | None
    user_id: UserId | None = None
    is_session: bool = False


def create(
    db: Connection, token_id: TokenId, prefix: str, digest: bytes, properties: TokenProperties
) -> Token:
    """Insert a token.

    Args:
        db: A transaction of the workspace.
        token_id: A new id.
        prefix: The secret's first characters, for listings.
        digest: SHA-256 of the secret.
        properties: The rest.
    """
    row = db.execute(
        text(f"""
            INSERT INTO tokens (token_id, workspace_id, experiment_id, scopes, label, prefix,
                digest, expires_at, user_id, is_session)
            VALUES (:token_id, :workspace_id, :experiment_id, CAST(:scopes AS text[]),
                :label, :prefix, :digest, :expires_at, :user_id, :is_session)
            RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {
            **asdict(properties),
            "token_id": token_id,
            "prefix": prefix,
            "digest": digest,
            "scopes": [scope.value for scope in properties.scopes],
        },
    ).one()
    return _token(row)


def list_page(
    db: Connection,
    experiment_id: ExperimentId,
    before: tuple[datetime, str] | None,
    limit: int,
    *,
    sessions: bool,
) -> list[Token]:
    """Return one page of an experiment's tokens, newest first.

    Args:
        db: A transaction of the workspace.
        experiment_id: The experiment.
        before: (created_at, id) of the previous page's last token; None for the first page.
        limit: Tokens at most.
        sessions: Return the valid tokens of browser sessions. Otherwise all other tokens, expired
            and revoked ones included, but for share links.
    """
    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM tokens
            WHERE experiment_id = :experiment_id AND is_session = :sessions AND NOT is_link
                AND (NOT is_session OR (expires_at > now() AND revoked_at IS NULL))
                AND (CAST(:created_at AS timestamptz) IS NULL OR created_at < :created_at
                    OR (created_at = :created_at AND token_id > :token_id))
            ORDER BY created_at DESC, token_id LIMIT :limit
        """),  # noqa: S608 - a constant above
        {
            "experiment_id": experiment_id,
            "sessions": sessions,
            "created_at": before[0] if before else None,
            "token_id": before[1] if before else "",
            "limit": limit,
        },
    )
    return [_token(row) for row in rows]


def delete_ended_sessions(db: Connection, workspace_id: WorkspaceId, limit: int) -> None:
    """Delete at most `limit` expired tokens of browser sessions, oldest first."""
    statement = text("""
        -- An array is evaluated once. `IN` may evaluate the sub-select again for each row, and SKIP
        -- LOCKED then returns other rows each time, more than the limit in total.
        DELETE FROM tokens WHERE token_id = ANY (ARRAY(
            SELECT token_id FROM tokens
            WHERE workspace_id = :workspace_id AND is_session AND expires_at < now()
            ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(statement, {"workspace_id": workspace_id, "limit": limit})


def delete_ended(
    db: Connection, experiment_id: ExperimentId, ended_before: datetime, limit: int
) -> None:
    """Delete at most `limit` of an experiment's tokens that ended before `ended_before`.

    A token ends when it expires or is revoked. Idempotent.
    """
    statement = text("""
        DELETE FROM tokens WHERE token_id = ANY (ARRAY(
            SELECT token_id FROM tokens
            WHERE experiment_id = :experiment_id AND least(revoked_at, expires_at) < :ended_before
            LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)
    db.execute(
        statement, {"experiment_id": experiment_id, "ended_before": ended_before, "limit": limit}
    )


def revoke(db: Connection, experiment_id: ExperimentId, token_id: TokenId) -> bool:
    """Revoke a token; return False if the experiment has no such token. Idempotent."""
    statement = text("""
        UPDATE tokens SET revoked_at = coalesce(revoked_at, now())
        WHERE token_id = :token_id AND experiment_id = :experiment_id
    """)
    return (
        db.execute(statement, {"token_id": token_id, "experiment_id": experiment_id}).rowcount == 1
    )


def revoke_of_user(db: Connection, user_id: UserId) -> None:
    """Revoke all tokens that act for a user, in every workspace. Idempotent."""
    set_local(db, "user_id", user_id)
    statement = text("""
        UPDATE tokens SET revoked_at = now() WHERE user_id = :user_id AND revoked_at IS NULL
    """)
    db.execute(statement, {"user_id": user_id})


def _token(row: Row[Any]) -> Token:
    return Token(**{**row._mapping, "scopes": tuple(Scope(scope) for scope in row.scopes)})
