"""Create, list and revoke tokens."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth import people, secrets
from tbservice.errors import Forbidden, Invalid, NotFound
from tbservice.pagination import decode_page_token, encode_page_token
from tbservice.store import members, tokens
from tbservice.store.tokens import TokenProperties
from tbservice.types import (
    AdminGrant,
    ReadGrant,
    Scope,
    Token,
    TokenId,
    UserId,
    WorkspaceId,
)

SESSION_LIFETIME: Final = timedelta(hours=12)
"""How long a browser may read after its user entered a token with more scopes than read."""


def create_token(
    db: Connection,
    grant: AdminGrant,
    scopes: Iterable[Scope],
    label: str = "",
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Create a token of one experiment to append, to read, or both; return it and its secret.

    The secret cannot be read again. Deletes a few ended tokens of the experiment. Raises Invalid
    for no scope, for admin, for a label that is too long and for a time that has passed.
    """
    unique_scopes = tuple(sorted(set(scopes)))
    if not unique_scopes or Scope.ADMIN in unique_scopes:
        raise Invalid("a token of one experiment has the scope append, read, or both")
    if expires_at is not None and expires_at <= datetime.now(UTC):
        raise Invalid("expires_at is in the past")
    ended_before = datetime.now(UTC) - timedelta(seconds=limits.ENDED_TOKEN_SECONDS_MAX)
    tokens.delete_ended(db, grant.experiment_id, ended_before, limits.TOKEN_SWEEP_ITEMS_MAX)
    properties = TokenProperties(
        grant.workspace_id,
        grant.experiment_id,
        unique_scopes,
        label,
        expires_at,
        user_id=grant.user_id,
    )
    return _create(db, properties)


def create_session_token(db: Connection, grant: ReadGrant) -> str:
    """Return the secret of a new token that may read for `SESSION_LIFETIME`.

    A browser stores it instead of one with more scopes. Deletes a few expired browser
    sessions of the workspace: more than are created, so that they do not accumulate. Raises
    Forbidden for the grant of a share link: the token would show more than the link.
    """
    if grant.link is not None:
        raise Forbidden("a share link makes no tokens")
    tokens.delete_ended_sessions(db, grant.workspace_id, limits.TOKEN_SWEEP_ITEMS_MAX)
    properties = TokenProperties(
        grant.workspace_id,
        grant.experiment_id,
        (Scope.READ,),
        "browser session",
        datetime.now(UTC) + SESSION_LIFETIME,
        user_id=grant.user_id,
        is_session=True,
    )
    return _create(db, properties)[1]


def create_owner_token(db: Connection, workspace_id: WorkspaceId, label: str) -> tuple[Token, str]:
    """Create an admin token of a workspace. For administrators, never behind a route."""
    return _create(db, TokenProperties(workspace_id, None, (Scope.ADMIN,), label, None))


def list_tokens(
    db: Connection, grant: AdminGrant, after: str | None, limit: int, *, sessions: bool
) -> tuple[list[Token], str | None]:
    """Return a page of an experiment's tokens and the page token of the next one, if any.

    The newest first, without their secrets; either those of browser sessions or the others. Raises
    MalformedRequest if `after` is not a page token.
    """
    before = decode_page_token(after) if after else None
    rows = tokens.list_page(db, grant.experiment_id, before, limit + 1, sessions=sessions)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return page, encode_page_token(last.created_at, last.token_id) if last else None


def revoke_token(db: Connection, grant: AdminGrant, token_id: str) -> None:
    """Revoke a token of the experiment. Raises NotFound if it has no such token."""
    if not tokens.revoke(db, grant.experiment_id, TokenId(token_id)):
        raise NotFound("the experiment has no such token")


def _create(db: Connection, properties: TokenProperties) -> tuple[Token, str]:
    """Insert a token of valid properties; return it and its secret."""
    label = properties.label
    if len(label) > limits.EXPERIMENT_NAME_CHARS_MAX or "\0" in label:
        raise Invalid(
            f"a label has at most {limits.EXPERIMENT_NAME_CHARS_MAX} characters, none of them NUL"
        )
    if properties.user_id is not None:
        _check_person(db, properties.workspace_id, properties.user_id, set(properties.scopes))
    secret = secrets.generate_token()
    token = tokens.create(
        db,
        secrets.generate_token_id(),
        secrets.get_display_prefix(secret),
        secrets.secret_digest(secret),
        properties,
    )
    return token, secret


def _check_person(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, scopes: set[Scope]
) -> None:
    """Check that a person may have a token of these scopes, and keep it so for the transaction.

    Who lowers the role or disables the person waits for the transaction, and then revokes the
    token. Raises Forbidden, and NotFound if they are no member of the workspace.
    """
    people.require_enabled(db, user_id)
    role = members.find_role(db, workspace_id, user_id, lock=True)
    if role is None:
        raise NotFound("there is no such workspace, or it is not yours")
    if not scopes <= role.scopes:
        raise Forbidden(f"the role {role.value} permits no token with these scopes")
