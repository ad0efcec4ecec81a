"""Create, list and revoke tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import count_of_network, record
from tbservice.auth import members, people, secrets
from tbservice.auth.grants import acting_person
from tbservice.auth.tables import members as member_rows
from tbservice.auth.tables import tokens
from tbservice.auth.tables.tokens import TokenProperties
from tbservice.db.clock import read_now
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.pagination import cut_page, decode_page_token, encode_page_token
from tbservice.types.grants import AdminGrant, OwnerGrant, PersonalGrant, ReadGrant, Scope
from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId
from tbservice.types.people import BrowserSession, Principal, Token, TokenUse

PERSONAL_TOKENS_ITEMS_MAX: Final = 1_000
"""Tokens (items) of a person that a list shows, the newest."""

WORKSPACE_TOKENS_ITEMS_MAX: Final = 10_000
"""Tokens (items) for a whole workspace, of machines and people, that are not revoked."""

EXPERIMENT_TOKENS_ITEMS_MAX: Final = 1_000
"""Tokens and share links (items) of an experiment that are not revoked."""

TOKENS_PER_NETWORK_ITEMS_MAX: Final = 1_000
"""Tokens (items) of a workspace made from one IPv4 address or IPv6 /48 in a day of 86,400 seconds.

Also those that were revoked since; without those of administrators, and without share links.
"""

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
    check_end(db, expires_at)
    properties = TokenProperties(
        grant.workspace_id,
        grant.experiment_id,
        unique_scopes,
        label,
        expires_at,
        user_id=grant.user_id,
        created_by=grant.user_id,
    )
    return _create_and_record(db, properties)


def create_workspace_token(
    db: Connection,
    grant: OwnerGrant,
    scopes: Iterable[Scope],
    label: str = "",
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Create a token of a machine for a whole workspace; return it and its secret.

    Deletes a few ended tokens of the workspace. Raises Invalid for no scope, for a label that is
    too long and for a time that has passed; Forbidden if a machine acts, or who is no owner any
    more.
    """
    unique_scopes = _check_scopes(scopes)
    check_end(db, expires_at)
    acting = members.require_person(grant)
    members.lock_as_owner(db, grant)
    properties = TokenProperties(
        grant.workspace_id, None, unique_scopes, label, expires_at, created_by=acting
    )
    return _create_and_record(db, properties)


def create_personal_token(
    db: Connection,
    user_id: UserId,
    workspace_id: WorkspaceId,
    scopes: Iterable[Scope],
    label: str = "",
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Create a token that acts for a person in one workspace; return it and its secret.

    It is revoked when the person's role permits less, and when they leave or are disabled. Deletes
    a few ended tokens of the workspace. `db` is a transaction of the workspace.

    Raises:
        Invalid: No scope, a label that is too long, or a time that has passed.
        Forbidden: The person's role permits less, or they are disabled.
        NotFound: They are no member of the workspace.
    """
    unique_scopes = _check_scopes(scopes)
    check_end(db, expires_at)
    properties = TokenProperties(
        workspace_id, None, unique_scopes, label, expires_at, user_id=user_id, created_by=user_id
    )
    return _create_and_record(db, properties)


def create_token_by_token(
    db: Connection,
    grant: PersonalGrant,
    scopes: Iterable[Scope],
    label: str = "",
    expires_at: datetime | None = None,
) -> tuple[Token, str]:
    """Create another token of the person; without `expires_at`, it ends with the grant's token.

    Raises as `create_personal_token` does; and Invalid if it would outlive the grant's token.
    """
    if grant.expires_at is not None:
        expires_at = expires_at or grant.expires_at
        if expires_at > grant.expires_at:
            raise Invalid("expires_at is later than the end of the token that creates this one")
    user_id = acting_person(grant)
    return create_personal_token(db, user_id, grant.workspace_id, scopes, label, expires_at)


def check_personal_token(
    db: Connection,
    user_id: UserId,
    workspace_id: WorkspaceId,
    scopes: Iterable[Scope],
    label: str = "",
    expires_at: datetime | None = None,
) -> None:
    """Check that `create_personal_token` would succeed; raises as it does."""
    _check_label(label)
    check_end(db, expires_at)
    _check_person(db, workspace_id, user_id, set(_check_scopes(scopes)))


def create_session_token(db: Connection, grant: ReadGrant) -> str:
    """Return the secret of a new token that may read for `SESSION_LIFETIME`.

    A browser stores it instead of one with more scopes. Deletes a few expired ones of the
    workspace: more than are created, so that they do not accumulate. Raises Forbidden for the
    grant of a share link: the token would show more than the link.
    """
    return _create(db, _session_properties(db, grant))[1]


def make_session_token(
    db: Connection, grant: ReadGrant, session: BrowserSession, session_secret: str
) -> str:
    """Return the secret of the token that a browser session has for reading an experiment.

    A browser has it on the content origin instead of the session, with which it ends; it may read
    for `SESSION_LIFETIME` from now. It is the same at each call, because any site can open pages in
    its reader's browser; of one that was revoked, a new one takes the place. Raises NotFound if the
    session has just ended, and otherwise as `create_session_token` does.
    """
    properties = _session_properties(db, grant)
    assert properties.expires_at is not None  # noqa: S101 - set there
    expires_at = min(properties.expires_at, session.expires_at)
    properties = replace(properties, expires_at=expires_at, browser_session_id=session.session_id)
    secret = secrets.derive_token(session_secret, grant.experiment_id)
    is_valid = tokens.lock_and_extend(db, secrets.secret_digest(secret), expires_at)
    if is_valid:
        return secret
    return _create(db, properties, secret if is_valid is None else secrets.generate_token())[1]


def create_owner_token(db: Connection, workspace_id: WorkspaceId, label: str) -> tuple[Token, str]:
    """Create an admin token of a workspace. For administrators, never behind a route."""
    properties = TokenProperties(workspace_id, None, (Scope.ADMIN,), label, None)
    return _create_and_record(db, properties)


def list_tokens(
    db: Connection, grant: AdminGrant, after: str | None, limit: int, *, sessions: bool
) -> tuple[list[Token], str | None]:
    """Return a page of an experiment's tokens and the page token of the next one, if any.

    The newest first, without their secrets; either those of browser sessions or the others. Raises
    MalformedRequest if `after` is not a page token.
    """
    before = decode_page_token(after) if after else None
    rows = tokens.list_page(db, grant.experiment_id, before, limit + 1, sessions=sessions)
    return cut_page(rows, limit, _page_token)


def list_workspace_tokens(
    db: Connection, grant: OwnerGrant, after: str | None, limit: int
) -> tuple[list[Token], str | None]:
    """Return a page of the tokens for the whole workspace, of machines and of people.

    As `list_tokens` does.
    """
    before = decode_page_token(after) if after else None
    rows = tokens.list_page_of_workspace(db, grant.workspace_id, before, limit + 1)
    return cut_page(rows, limit, _page_token)


def _page_token(last: Token) -> str:
    return encode_page_token(last.created_at, last.token_id)


def list_personal_tokens(
    db: Connection, user_id: UserId, workspace_id: WorkspaceId | None = None
) -> list[Token]:
    """Return the newest tokens that act for a person, in one workspace or in all with None.

    Newest first, at most `PERSONAL_TOKENS_ITEMS_MAX`, without their secrets. `db` is a transaction.
    """
    return tokens.list_of_user(db, user_id, workspace_id, PERSONAL_TOKENS_ITEMS_MAX)


def get_use(db: Connection, principal: Principal) -> TokenUse:
    """Return what the token of a principal is for, in one round trip.

    `db` needs no transaction. Raises NotFound if the token was deleted since.
    """
    assert principal.token_id is not None  # noqa: S101 - a token's, as is the workspace
    assert principal.workspace_id is not None  # noqa: S101 - as above
    use = tokens.find_use(db, principal.workspace_id, principal.token_id)
    if use is None:
        raise NotFound("there is no such token")
    return use


def revoke_token(db: Connection, grant: AdminGrant, token_id: str) -> None:
    """Revoke a token of the experiment. Raises NotFound if it has no such token."""
    if not tokens.revoke(db, grant.experiment_id, TokenId(token_id)):
        raise NotFound("the experiment has no such token")
    record(db, Act.TOKEN_REVOKE, grant.workspace_id, token_id, experiment_id=grant.experiment_id)


def revoke_workspace_token(db: Connection, grant: OwnerGrant, token_id: str) -> None:
    """Revoke a token for the whole workspace, a machine's or a person's. Idempotent.

    Raises NotFound if the workspace has no such token.
    """
    if not tokens.revoke_of_workspace(db, grant.workspace_id, TokenId(token_id)):
        raise NotFound("the workspace has no such token")
    record(db, Act.TOKEN_REVOKE, grant.workspace_id, token_id)


def revoke_personal_token(
    db: Connection, user_id: UserId, token_id: str, workspace_id: WorkspaceId | None = None
) -> None:
    """Revoke a token that acts for this person, in one workspace or in any with None. Idempotent.

    Raises NotFound if they have no such token. `db` is a transaction.
    """
    found = tokens.revoke_personal(db, user_id, workspace_id, TokenId(token_id))
    if found is None:
        raise NotFound("you have no such token")
    record(db, Act.TOKEN_REVOKE, found, token_id)


def _session_properties(db: Connection, grant: ReadGrant) -> TokenProperties:
    """Return the properties of a token that a browser stores; delete a few that have expired."""
    if grant.link is not None:
        raise Forbidden("a share link makes no tokens")
    tokens.delete_ended_sessions(db, grant.workspace_id, limits.TOKEN_SWEEP_ITEMS_MAX)
    return TokenProperties(
        grant.workspace_id,
        grant.experiment_id,
        (Scope.READ,),
        "browser session",
        read_now(db) + SESSION_LIFETIME,
        user_id=grant.user_id,
        created_by=grant.user_id,
        is_session=True,
    )


def check_room(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId | None
) -> None:
    """Raise Conflict if an experiment, or without one a workspace, has too many tokens and links.

    Several requests at once may make a few more.
    """
    items_max = WORKSPACE_TOKENS_ITEMS_MAX if experiment_id is None else EXPERIMENT_TOKENS_ITEMS_MAX
    if tokens.count_valid(db, workspace_id, experiment_id, items_max) >= items_max:
        owner = "the workspace" if experiment_id is None else "the experiment"
        raise Conflict(
            f"{owner} has {items_max} tokens or links that are not revoked, the most there can be: "
            "revoke some that are not needed"
        )


def _check_network(db: Connection, workspace_id: WorkspaceId) -> None:
    """Raise Conflict if too many tokens were made from the network of who acts."""
    items_max = TOKENS_PER_NETWORK_ITEMS_MAX
    count = count_of_network(db, Act.TOKEN_CREATE, 86_400, items_max, workspace_id)
    if count >= items_max:
        raise Conflict(
            f"{items_max:,} tokens of this workspace were made from your network in a day, the "
            "most there can be: use one for several machines, or try again tomorrow",
            code="too_many_tokens",
        )


def _create_and_record(db: Connection, properties: TokenProperties) -> tuple[Token, str]:
    """Create a token of valid scopes and end; return it and its secret."""
    _check_holder(db, properties)
    delete_ended(db, properties.workspace_id, properties.experiment_id)
    check_room(db, properties.workspace_id, properties.experiment_id)
    _check_network(db, properties.workspace_id)
    token, secret = _insert(db, properties, secrets.generate_token())
    record(
        db,
        Act.TOKEN_CREATE,
        properties.workspace_id,
        token.token_id,
        label=properties.label,
        scopes=" ".join(properties.scopes),
        experiment_id=properties.experiment_id,
        for_user_id=properties.user_id,
        expires_at=None if properties.expires_at is None else properties.expires_at.isoformat(),
    )
    return token, secret


def _create(
    db: Connection, properties: TokenProperties, secret: str | None = None
) -> tuple[Token, str]:
    """Create a token of a browser session, with a new secret or this one; return it and that."""
    _check_holder(db, properties)
    return _insert(db, properties, secret or secrets.generate_token())


def _check_holder(db: Connection, properties: TokenProperties) -> None:
    _check_label(properties.label)
    if properties.user_id is not None:
        _check_person(db, properties.workspace_id, properties.user_id, set(properties.scopes))


def _insert(db: Connection, properties: TokenProperties, secret: str) -> tuple[Token, str]:
    token = tokens.create(
        db,
        TokenId(secrets.generate_public_id()),
        secrets.get_display_prefix(secret),
        secrets.secret_digest(secret),
        properties,
    )
    return token, secret


def delete_ended(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId | None
) -> None:
    """Delete a few tokens of an experiment, or without one of the workspace, that ended long ago.

    Here, so that no process has to schedule it.
    """
    seconds, items_max = limits.ENDED_TOKEN_SECONDS_MAX, limits.TOKEN_SWEEP_ITEMS_MAX
    tokens.delete_ended(db, workspace_id, experiment_id, seconds, items_max)


def _check_scopes(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    unique_scopes = tuple(sorted(set(scopes)))
    if not unique_scopes:
        raise Invalid("a token has at least one scope: append, read or admin")
    return unique_scopes


def check_end(db: Connection, expires_at: datetime | None) -> None:
    """Raise Invalid for a time in the past or after `EXPIRY_DAYS_MAX`, on the database's clock."""
    if expires_at is None:
        return
    now = read_now(db)
    if expires_at <= now:
        raise Invalid(f"expires_at is in the past: here it is {now:%Y-%m-%dT%H:%M:%SZ}")
    if expires_at - now > timedelta(days=limits.EXPIRY_DAYS_MAX):
        raise Invalid(
            f"expires_at is at most {limits.EXPIRY_DAYS_MAX:,} days ahead; leave it out for "
            "what never expires"
        )


def _check_label(label: str) -> None:
    if len(label) > limits.EXPERIMENT_NAME_CHARS_MAX or "\0" in label:
        raise Invalid(
            f"a label has at most {limits.EXPERIMENT_NAME_CHARS_MAX} characters, none of them NUL"
        )


def _check_person(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, scopes: set[Scope]
) -> None:
    """Check that a person may have a token of these scopes, and keep it so for the transaction.

    A transaction that lowers the role or disables the person waits for this one, and then revokes
    the token. Raises Forbidden, and NotFound if they are no member of the workspace.
    """
    people.require_enabled(db, user_id)
    role = member_rows.find_role(db, workspace_id, user_id, lock=True)
    if role is None:
        raise NotFound("there is no such workspace, or it is not yours")
    if not scopes <= role.scopes:
        raise Forbidden(f"the role {role.value} permits no token with these scopes")
