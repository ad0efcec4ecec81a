"""Queries on `tokens`: kept as SHA-256 digests, never as secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.types import ExperimentId, Scope, Token, TokenId, WorkspaceId

_COLUMNS: Final = "token_id, experiment_id, scopes, label, prefix, created_at, expires_at, revoked_at, last_used_at"


def create(
    db: Connection,
    workspace_id: WorkspaceId,
    token_id: TokenId,
    experiment_id: ExperimentId | None,
    scopes: tuple[Scope, ...],
    label: str,
    prefix: str,
    digest: bytes,
    expires_at: datetime | None,
) -> Token:
    """Keeps a new token."""
    row = db.execute(
        text(f"""
            INSERT INTO tokens (token_id, workspace_id, experiment_id, scopes, label, prefix, digest, expires_at)
            VALUES (:token_id, :workspace_id, :experiment_id, CAST(:scopes AS text[]),
                :label, :prefix, :digest, :expires_at)
            RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {
            "token_id": token_id,
            "workspace_id": workspace_id,
            "experiment_id": experiment_id,
            "scopes": [scope.value for scope in scopes],
            "label": label,
            "prefix": prefix,
            "digest": digest,
            "expires_at": expires_at,
        },
    ).one()
    return _token(row)


def list_of_experiment(db: Connection, experiment_id: ExperimentId) -> list[Token]:
    """An experiment's tokens, the newest first, expired and revoked ones too."""
    statement = text(f"SELECT {_COLUMNS} FROM tokens WHERE experiment_id = :id ORDER BY created_at DESC, token_id")  # noqa: S608 - a constant above
    return [_token(row) for row in db.execute(statement, {"id": experiment_id})]


def revoke(db: Connection, experiment_id: ExperimentId, token_id: TokenId) -> bool:
    """Makes a token count no more; revoking it again changes nothing. False when the experiment has no such token."""
    statement = text("""
        UPDATE tokens SET revoked_at = coalesce(revoked_at, now())
        WHERE token_id = :token_id AND experiment_id = :experiment_id
    """)
    return db.execute(statement, {"token_id": token_id, "experiment_id": experiment_id}).rowcount == 1


def _token(row: Row[Any]) -> Token:
    return Token(**{**row._mapping, "scopes": tuple(Scope(scope) for scope in row.scopes)})
