"""Queries on `tokens`, which are stored as SHA-256 of the secret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.db.database import set_local
from tbservice.db.pipeline import query_with_rls
from tbservice.types.grants import Scope
from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId
from tbservice.types.people import Person, Role, Token, TokenUse

_COLUMNS: Final = """
    t.token_id, t.workspace_id, t.experiment_id, t.scopes, t.label, t.prefix, t.created_at,
    t.expires_at, t.revoked_at, t.last_used_at, t.user_id IS NOT NULL, u.user_id, u.name, u.email
"""
_TOKENS: Final = f"""
    SELECT {_COLUMNS} FROM tokens AS t LEFT JOIN users AS u ON u.user_id = t.created_by
"""  # noqa: S608 - a constant above

PAGE: Final = """
    AND (CAST(:created_at AS timestamptz) IS NULL OR t.created_at < :created_at
        OR (t.created_at = :created_at AND t.token_id > :token_id))
    ORDER BY t.created_at DESC, t.token_id LIMIT :limit
"""
"""The last conditions of a query for a page of `tokens AS t`, and its end: see `page_values`."""


@dataclass(frozen=True, slots=True)
class TokenProperties:
    """Rights of a new token, and the fields that lists show of it.

    `experiment_id` is the only experiment that it is valid for, None for all; `expires_at` None is
    never. `user_id` is the person whom it acts for, and with whose rights it ends; `created_by` who
    creates it. With `is_session`, it is for a browser, and is deleted after it has expired, and
    with the browser session `browser_session_id`, if it has one.
    """

    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: tuple[Scope, ...]
    label: str
    expires_at: datetime | None
    user_id: UserId | None = None
    created_by: UserId | None = None
    is_session: bool = False
    browser_session_id: str | None = None


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
            WITH t AS (
                INSERT INTO tokens (token_id, workspace_id, experiment_id, scopes, label, prefix,
                    digest, expires_at, user_id, created_by, is_session, browser_session_id)
                VALUES (:token_id, :workspace_id, :experiment_id, CAST(:scopes AS text[]),
                    :label, :prefix, :digest, :expires_at, :user_id, :created_by, :is_session,
                    :browser_session_id)
                RETURNING *)
            SELECT {_COLUMNS} FROM t LEFT JOIN users AS u ON u.user_id = t.created_by
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
            and revoked ones included, without share links.
    """
    rows = db.execute(
        text(f"""
            {_TOKENS} WHERE experiment_id = :experiment_id AND is_session = :sessions
                AND NOT is_link
                AND (NOT is_session OR (expires_at > now() AND revoked_at IS NULL))
                {PAGE}
        """),
        {"experiment_id": experiment_id, "sessions": sessions, **page_values(before, limit)},
    )
    return [_token(row) for row in rows]


def list_page_of_workspace(
    db: Connection,
    workspace_id: WorkspaceId,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[Token]:
    """Return one page of the tokens that are for a whole workspace, newest first.

    Expired and revoked ones are included. The arguments are those of `list_page`.
    """
    rows = db.execute(
        text(f"{_TOKENS} WHERE workspace_id = :workspace_id AND experiment_id IS NULL {PAGE}"),
        {"workspace_id": workspace_id, **page_values(before, limit)},
    )
    return [_token(row) for row in rows]


def list_of_user(
    db: Connection, user_id: UserId, workspace_id: WorkspaceId | None, limit: int
) -> list[Token]:
    """Return the newest tokens that act for a user, newest first, but not those of browsers.

    None for `workspace_id` lists the tokens of all workspaces. Expired and revoked ones are
    included.
    """
    set_local(db, "user_id", user_id)
    rows = db.execute(
        text(f"""
            {_TOKENS} WHERE t.user_id = :user_id AND NOT is_session
                AND (CAST(:workspace_id AS bigint) IS NULL OR workspace_id = :workspace_id)
            ORDER BY t.created_at DESC, t.token_id LIMIT :limit
        """),
        {"user_id": user_id, "workspace_id": workspace_id, "limit": limit},
    )
    return [_token(row) for row in rows]


def find_use(db: Connection, workspace_id: WorkspaceId, token_id: TokenId) -> TokenUse | None:
    """Return what a token of the workspace is for, or None; `db` needs no transaction."""
    rows = query_with_rls(
        db,
        {"workspace_id": str(workspace_id)},
        """
            SELECT t.label, w.name, m.role, u.user_id, u.name, u.email FROM tokens AS t
            JOIN workspaces AS w ON w.workspace_id = t.workspace_id
            LEFT JOIN members AS m
                ON m.workspace_id = t.workspace_id AND m.user_id = t.user_id
            LEFT JOIN users AS u ON u.user_id = t.user_id
            WHERE t.token_id = %(token_id)s
        """,
        {"token_id": token_id},
    )
    if not rows:
        return None
    label, workspace_name, role, *person = rows[0]
    return TokenUse(
        label,
        workspace_name,
        None if role is None else Role(role),
        Person.of(*person),
    )


def is_link(db: Connection, workspace_id: WorkspaceId, token_id: TokenId) -> bool:
    """Return whether a workspace has a share link with this id, valid or not."""
    statement = text("""
        SELECT EXISTS (SELECT FROM tokens
            WHERE workspace_id = :workspace_id AND token_id = :token_id AND is_link)
    """)
    values = {"workspace_id": workspace_id, "token_id": token_id}
    return bool(db.execute(statement, values).scalar_one())


def find_last_use(db: Connection, workspace_id: WorkspaceId) -> datetime | None:
    """Return when a token of a workspace was last used; None if none was."""
    statement = text("SELECT max(last_used_at) FROM tokens WHERE workspace_id = :id")
    used_at: datetime | None = db.execute(statement, {"id": workspace_id}).scalar_one()
    return used_at


def lock_and_extend(db: Connection, digest: bytes, expires_at: datetime) -> bool | None:
    """Let a token end at that time, and others wait who do the same; return whether it is valid.

    It is not if it was revoked, which remains; None if there is no such token.
    """
    citus.lock_name(db, f"token {digest.hex()}")
    statement = text("""
        UPDATE tokens SET expires_at = :expires_at
        WHERE digest = :digest RETURNING revoked_at IS NULL
    """)
    values = {"digest": digest, "expires_at": expires_at}
    return db.execute(statement, values).scalar_one_or_none()


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
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId | None,
    seconds: float,
    limit: int,
) -> None:
    """Delete at most `limit` of an experiment's tokens that ended so many seconds ago.

    With None, of those for the whole workspace. A token ends when it expires or is revoked.
    Idempotent.
    """
    condition = "experiment_id IS NULL" if experiment_id is None else "experiment_id = :id"
    statement = text(f"""
        DELETE FROM tokens WHERE token_id = ANY (ARRAY(
            SELECT token_id FROM tokens
            WHERE workspace_id = :workspace_id AND {condition}
                AND least(revoked_at, expires_at) < now() - make_interval(secs => :seconds)
            LIMIT :limit FOR UPDATE SKIP LOCKED))
    """)  # noqa: S608 - one of two constants
    values: dict[str, object] = {
        "workspace_id": workspace_id,
        "seconds": seconds,
        "limit": limit,
    }
    db.execute(statement, values if experiment_id is None else {**values, "id": experiment_id})


def count_valid(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId | None, limit: int
) -> int:
    """Return how many tokens and links of an experiment are not revoked, but at most `limit`.

    Without an experiment, those of the whole workspace. Expired ones count until they are deleted.
    """
    statement = text(f"""
        SELECT count(*) FROM (
            SELECT FROM tokens WHERE workspace_id = :workspace_id AND revoked_at IS NULL
                AND {"experiment_id IS NULL" if experiment_id is None else "experiment_id = :id"}
                AND NOT is_session
            LIMIT :limit) AS valid
    """)  # noqa: S608 - constants
    values = {"workspace_id": workspace_id, "id": experiment_id, "limit": limit}
    return int(db.execute(statement, values).scalar_one())


def revoke(db: Connection, experiment_id: ExperimentId, token_id: TokenId) -> bool:
    """Revoke a token; return False if the experiment has no such token. Idempotent."""
    statement = text("""
        UPDATE tokens SET revoked_at = least(revoked_at, now())
        WHERE token_id = :token_id AND experiment_id = :experiment_id
    """)
    return (
        db.execute(statement, {"token_id": token_id, "experiment_id": experiment_id}).rowcount == 1
    )


def revoke_of_workspace(db: Connection, workspace_id: WorkspaceId, token_id: TokenId) -> bool:
    """Revoke a token that is for a whole workspace; return False if it has none. Idempotent."""
    statement = text("""
        UPDATE tokens SET revoked_at = least(revoked_at, now())
        WHERE token_id = :token_id AND workspace_id = :workspace_id AND experiment_id IS NULL
    """)
    values = {"token_id": token_id, "workspace_id": workspace_id}
    return db.execute(statement, values).rowcount == 1


def revoke_personal(
    db: Connection, user_id: UserId, workspace_id: WorkspaceId | None, token_id: TokenId
) -> WorkspaceId | None:
    """Revoke a token that acts for a user, of one workspace or of any with None.

    Return its workspace; None if there is no such token. Idempotent.
    """
    set_local(db, "user_id", user_id)
    statement = text("""
        UPDATE tokens SET revoked_at = least(revoked_at, now())
        WHERE token_id = :token_id AND user_id = :user_id AND NOT is_session
            AND (CAST(:workspace_id AS bigint) IS NULL OR workspace_id = :workspace_id)
        RETURNING workspace_id
    """)
    values = {"token_id": token_id, "user_id": user_id, "workspace_id": workspace_id}
    return db.execute(statement, values).scalar_one_or_none()


def revoke_of_user(db: Connection, user_id: UserId) -> None:
    """Revoke all tokens that act for a user, in every workspace. Idempotent."""
    set_local(db, "user_id", user_id)
    statement = text("""
        UPDATE tokens SET revoked_at = now() WHERE user_id = :user_id AND revoked_at IS NULL
    """)
    db.execute(statement, {"user_id": user_id})


def revoke_beyond(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, scopes: Iterable[Scope]
) -> None:
    """Revoke those tokens of a user in a workspace that have another scope than `scopes`.

    Idempotent.
    """
    statement = text("""
        UPDATE tokens SET revoked_at = now()
        WHERE user_id = :user_id AND workspace_id = :workspace_id AND revoked_at IS NULL
            AND NOT scopes <@ CAST(:scopes AS text[])
    """)
    values = {
        "user_id": user_id,
        "workspace_id": workspace_id,
        "scopes": [scope.value for scope in scopes],
    }
    db.execute(statement, values)


def page_values(before: tuple[datetime, str] | None, limit: int) -> dict[str, object]:
    """Return the parameters of `PAGE`, for what comes after a token or from the first one on."""
    return {
        "created_at": before[0] if before else None,
        "token_id": before[1] if before else "",
        "limit": limit,
    }


def _token(row: Sequence[Any]) -> Token:
    scopes, creator = tuple(map(Scope, row[3])), Person.of(*row[-3:])
    fields = [*row[:3], scopes, *row[4:-3], creator]
    return Token(*fields)
