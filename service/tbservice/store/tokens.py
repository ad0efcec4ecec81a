"""Queries on `tokens`: kept as SHA-256 digests, never as secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.store.database import set_local
from tbservice.types import ExperimentId, Scope, Token, TokenId, WorkspaceId

_COLUMNS: Final = "token_id, experiment_id, scopes, label, prefix, created_at, expires_at, revoked_at, last_used_at"


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a token that counts stands for."""

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    is_use_recorded: bool


def find_holder(db: Connection, digest: bytes) -> Holder | None:
    """The holder of a token that is neither expired nor revoked, before the tenant is known."""
    set_local(db, "token_digest", digest.hex())
    row = db.execute(
        text("""
            SELECT token_id, workspace_id, experiment_id, scopes,
                coalesce(last_used_at > now() - interval '1 minute', false) AS is_use_recorded
            FROM tokens WHERE digest = :digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
        """),
        {"digest": digest},
    ).one_or_none()
    if row is None:
        return None
    scopes = frozenset(Scope(scope) for scope in row.scopes)
    return Holder(row.token_id, WorkspaceId(row.workspace_id), row.experiment_id, scopes, row.is_use_recorded)


def record_use(db: Connection, holder: Holder) -> None:
    """Notes that a token was used now; passes over it when another request is noting the same."""
    set_local(db, "workspace_id", str(holder.workspace_id))
    db.execute(
        text("""
            UPDATE tokens SET last_used_at = now() WHERE token_id =
                (SELECT token_id FROM tokens WHERE token_id = :token_id FOR UPDATE SKIP LOCKED)
        """),
        {"token_id": holder.token_id},
    )


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
