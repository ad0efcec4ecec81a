"""Queries on `tokens` and `experiments` before the workspace is known, for authentication."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from tbservice.store.pg.pipeline import fetch_binary, query_with_rls
from tbservice.types import ExperimentId, LinkView, Scope, TokenId, Visibility, WorkspaceId


@dataclass(frozen=True, slots=True)
class ExperimentOwner:
    """The workspace that owns an experiment, its visibility, and whether it is a frozen copy."""

    workspace_id: WorkspaceId
    visibility: Visibility
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The workspace, the experiment and the scopes of a valid token.

    `experiment_id` is None for a token of the workspace, `link` for one that is no share link.
    `is_use_recorded`: its use was recorded within the last minute.
    """

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    is_use_recorded: bool
    link: LinkView | None


def find_owner_and_identity(
    db: Connection, experiment_id: ExperimentId | None, token_digest: bytes | None
) -> tuple[ExperimentOwner | None, TokenIdentity | None]:
    """Return an experiment's owner and a token's identity, in one query.

    Either is None if the argument is None or matches no row. An expired or revoked token does not
    match. The row policies show an experiment to anyone who names its exact id, and a token to
    anyone who names the exact SHA-256 of its secret.
    """
    rows = fetch_binary(
        db,
        """
            SELECT e.workspace_id, e.visibility, e.snapshot_of IS NOT NULL, t.token_id,
                t.workspace_id, t.experiment_id, t.scopes,
                coalesce(t.last_used_at > now() - interval '1 minute', false),
                t.is_link, t.run_pattern, t.tag_pattern, t.is_anonymous
            -- The outer joins make PostgreSQL evaluate the settings, which the row policies read,
            -- before it reads the tables.
            FROM (SELECT set_config('tbhub.experiment_id', %(experiment_id)s, true),
                set_config('tbhub.token_digest', %(token_digest)s, true)) AS settings
            LEFT JOIN experiments AS e ON e.experiment_id = %(experiment_id)s
            LEFT JOIN tokens AS t ON t.digest = decode(%(token_digest)s, 'hex')
                AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
        """,
        {"experiment_id": experiment_id or "", "token_digest": (token_digest or b"").hex()},
    )
    owner_id, visibility, is_snapshot, token_id, workspace_id, bound_to, scopes, is_use_recorded = (
        rows[0][:8]
    )
    is_link, *shown = rows[0][8:]

    owner = identity = None
    if owner_id is not None:
        owner = ExperimentOwner(WorkspaceId(owner_id), Visibility(visibility), is_snapshot)
    if token_id is not None:
        identity = TokenIdentity(
            token_id,
            WorkspaceId(workspace_id),
            bound_to,
            frozenset(map(Scope, scopes)),
            is_use_recorded,
            LinkView(token_id, *shown) if is_link else None,
        )
    return owner, identity


def record_token_use(db: Connection, identity: TokenIdentity) -> None:
    """Set a token's time of last use to now, unless another transaction holds the row's lock."""
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
