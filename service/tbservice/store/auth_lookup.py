"""Queries on `tokens` and `experiments` before the tenant is known: who asks, and whose is what is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice.store.pg.pipeline import fetch_binary, query_with_rls
from tbservice.types import ExperimentId, Scope, TokenId, Visibility, WorkspaceId


@dataclass(frozen=True, slots=True)
class ExperimentOwner:
    """Whose an experiment is, and who may see it."""

    workspace_id: WorkspaceId
    visibility: Visibility


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Whom a token that counts stands for."""

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    is_use_recorded: bool


def find_owner_and_identity(
    db: Connection, experiment_id: ExperimentId | None, token_digest: bytes | None
) -> tuple[ExperimentOwner | None, TokenIdentity | None]:
    """The owner of an experiment and the holder of a token, either None where there is none; in one query.

    Whoever knows an experiment's id may ask for its owner. A token that has expired or was revoked has no holder.
    """
    rows = fetch_binary(
        db,
        """
            SELECT e.workspace_id, e.visibility, t.token_id, t.workspace_id, t.experiment_id, t.scopes,
                coalesce(t.last_used_at > now() - interval '1 minute', false)
            -- What the row policies let be seen is set first: the others are joined to it, with no value to match.
            FROM (SELECT set_config('tbhub.experiment_id', %(experiment_id)s, true),
                set_config('tbhub.token_digest', %(token_digest)s, true)) AS sight
            LEFT JOIN experiments AS e ON e.experiment_id = %(experiment_id)s
            LEFT JOIN tokens AS t ON t.digest = decode(%(token_digest)s, 'hex')
                AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
        """,
        {"experiment_id": experiment_id or "", "token_digest": (token_digest or b"").hex()},
    )
    owner_id, visibility, token_id, workspace_id, bound_to, scopes, is_use_recorded = rows[0]
    return (
        None
        if owner_id is None
        else ExperimentOwner(WorkspaceId(owner_id), Visibility(visibility)),
        None
        if token_id is None
        else TokenIdentity(
            token_id,
            WorkspaceId(workspace_id),
            bound_to,
            frozenset(map(Scope, scopes)),
            is_use_recorded,
        ),
    )


def record_token_use(db: Connection, identity: TokenIdentity) -> None:
    """Notes that a token was used now; passes over it when another request is noting the same."""
    query_with_rls(
        db,
        {"workspace_id": str(identity.workspace_id)},
        """
            UPDATE tokens SET last_used_at = now() WHERE token_id =
                (SELECT token_id FROM tokens WHERE token_id = %(token_id)s FOR UPDATE SKIP LOCKED)
            RETURNING token_id
        """,
        {"token_id": identity.token_id},
    )
