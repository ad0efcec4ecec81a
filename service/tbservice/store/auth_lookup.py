"""Queries for authentication, before workspace or person are known: by id, and by digests."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import Connection, Engine

from tbservice import limits
from tbservice.store.pg import citus
from tbservice.store.pg.pipeline import RLS_SETTINGS, get_driver_connection, query_with_rls
from tbservice.types import (
    ExperimentId,
    LinkView,
    Role,
    Scope,
    TokenId,
    UserId,
    Visibility,
    WorkspaceId,
)

_log = logging.getLogger(__name__)

RECORD_PAUSE_SECONDS: Final = 60.0
"""Seconds without records of use after one has failed, in a cluster."""

_paused_until: WeakKeyDictionary[Engine, float] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ExperimentOwner:
    """The workspace that owns an experiment, its visibility, and whether it is a frozen copy."""

    workspace_id: WorkspaceId
    visibility: Visibility
    is_snapshot: bool


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The workspace, the experiment and the scopes of a valid token.

    `experiment_id` is None for a token of the workspace, `user_id` for one that acts for nobody,
    `link` for one that is no share link.
    `is_use_recorded`: its use was recorded within the last minute.
    """

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    is_use_recorded: bool
    user_id: UserId | None
    link: LinkView | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """The person of a valid browser session, and their role in the workspace that is asked for.

    Workspace and role are None if the person is no member of it.
    """

    session_id: str
    user_id: UserId
    workspace_id: WorkspaceId | None
    role: Role | None
    is_use_recorded: bool
    experiment_id: None = None
    link: None = None

    @property
    def scopes(self) -> frozenset[Scope]:
        """What the role permits."""
        return frozenset() if self.role is None else self.role.scopes


def find_owner_and_identity(
    db: Connection, experiment_id: ExperimentId | None, token_digest: bytes | None
) -> tuple[ExperimentOwner | None, TokenIdentity | None]:
    """Return an experiment's owner and a token's identity, in one query.

    Either is None if the argument is None or matches no row. An expired or revoked token does not
    match. The row policies show an experiment to anyone who names its exact id, and a token to
    anyone who names the exact SHA-256 of its secret.
    """
    rows = query_with_rls(
        db,
        {"experiment_id": experiment_id or "", "token_digest": (token_digest or b"").hex()},
        f"""
            SELECT e.workspace_id, e.visibility, e.snapshot_of IS NOT NULL, t.token_id,
                t.workspace_id, t.experiment_id, t.scopes,
                coalesce(t.last_used_at > now() - interval '1 minute', false), t.user_id,
                t.expires_at, t.is_link, t.run_pattern, t.tag_pattern, t.is_anonymous
            -- The outer joins make PostgreSQL evaluate the settings, which the row policies read,
            -- before it reads the tables.
            FROM {RLS_SETTINGS} AS settings
            {_join_experiment(experiment_id)}
            LEFT JOIN tokens AS t ON t.digest = decode(%(token_digest)s, 'hex')
                AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
        """,  # noqa: S608 - constants
        {"experiment_id": experiment_id or "", "token_digest": (token_digest or b"").hex()},
    )
    owner, identity = _owner(*rows[0][:3]), None
    token_id, workspace_id, bound_to, scopes, is_recorded, user_id, *rest = rows[0][3:]
    expires_at, is_link, *shown = rest
    if token_id is not None:
        identity = TokenIdentity(
            token_id,
            WorkspaceId(workspace_id),
            bound_to,
            frozenset(map(Scope, scopes)),
            is_recorded,
            user_id,
            LinkView(token_id, *shown) if is_link else None,
            expires_at,
        )
    return owner, identity


def find_owner_and_session(
    db: Connection,
    experiment_id: ExperimentId | None,
    workspace_id: WorkspaceId | None,
    session_digest: bytes,
) -> tuple[ExperimentOwner | None, SessionIdentity | None]:
    """Return an experiment's owner, and a browser session's identity in a workspace.

    The workspace is `workspace_id`, else the experiment's; with neither, the identity has no role.
    A session that is expired, or whose person is disabled, does not match. The row policies show a
    session, and the memberships of its person, to anyone who names its exact digest.
    """
    rows = query_with_rls(
        db,
        {"experiment_id": experiment_id or "", "secret_digest": session_digest.hex()},
        f"""
            SELECT e.workspace_id, e.visibility, e.snapshot_of IS NOT NULL, s.session_id,
                s.user_id, m.workspace_id, m.role,
                coalesce(s.last_used_at > now() - interval '1 minute', false)
            FROM (SELECT) AS one
            {_join_experiment(experiment_id)}
            LEFT JOIN (browser_sessions AS s
                    JOIN users AS u ON u.user_id = s.user_id AND NOT u.is_disabled)
                ON s.digest = %(digest)s AND s.expires_at > now()
                AND s.last_used_at > now() - %(idle_seconds)s * interval '1 second'
            LEFT JOIN members AS m ON m.user_id = s.user_id
                AND m.workspace_id = coalesce(CAST(%(workspace_id)s AS bigint), e.workspace_id)
        """,  # noqa: S608 - constants
        {
            "experiment_id": experiment_id or "",
            "workspace_id": workspace_id,
            "digest": session_digest,
            "idle_seconds": limits.PERSON_SESSION_IDLE_SECONDS_MAX,
        },
    )
    session_id, user_id, member_of, role, is_recorded = rows[0][3:]
    asked = workspace_id or rows[0][0]
    if citus.is_cluster(db) and user_id is not None and asked is not None:
        # The policy by which the query above finds the role looks into another table.
        role = _find_own_role(db, asked, user_id)
        member_of = None if role is None else asked
    identity = None
    if session_id is not None:
        identity = SessionIdentity(
            session_id,
            UserId(user_id),
            None if member_of is None else WorkspaceId(member_of),
            None if role is None else Role(role),
            is_recorded,
        )
    return _owner(*rows[0][:3]), identity


def _join_experiment(experiment_id: ExperimentId | None) -> str:
    """Return the join of the experiment; of none, if none is asked for: its node may be down."""
    if experiment_id is not None:
        return "LEFT JOIN experiments AS e ON e.experiment_id = %(experiment_id)s"
    return """
        CROSS JOIN (SELECT NULL::bigint AS workspace_id, NULL::text AS visibility,
            NULL::text AS snapshot_of) AS e
    """


def _find_own_role(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> str | None:
    rows = query_with_rls(
        db,
        {"user_id": user_id},
        "SELECT role FROM members WHERE workspace_id = %(id)s AND user_id = %(user_id)s",
        {"id": workspace_id, "user_id": user_id},
    )
    return rows[0][0] if rows else None


def record_session_use(db: Connection, session_id: str, user_id: UserId) -> None:
    """Set a session's time of last use to now, unless another transaction has locked the row."""
    _record_use(
        db,
        {"user_id": user_id},
        """
            UPDATE browser_sessions SET last_used_at = now() WHERE session_id =
                (SELECT session_id FROM browser_sessions WHERE session_id = %(session_id)s
                    FOR UPDATE SKIP LOCKED)
            RETURNING session_id
        """,
        {"session_id": session_id},
    )


def _record_use(
    db: Connection, rls_settings: Mapping[str, str], statement: str, parameters: Mapping[str, Any]
) -> None:
    """Execute an update that a request does not depend on.

    Every node of a cluster has these tables, so that it fails while one is down. Then the process
    does not try again for `RECORD_PAUSE_SECONDS`: a node that does not answer takes long to fail.
    """
    if not citus.is_cluster(db):
        query_with_rls(db, rls_settings, statement, parameters)
        return
    if _paused_until.get(db.engine, 0.0) > time.monotonic():
        return
    driver = get_driver_connection(db)
    is_alone = driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    if not is_alone:
        driver.execute("SAVEPOINT record_use")
    try:
        query_with_rls(db, rls_settings, statement, parameters)
    except psycopg.Error as error:
        if driver.closed:
            raise
        _log.warning("a node is down; uses of tokens are not recorded: %s", type(error).__name__)
        _paused_until[db.engine] = time.monotonic() + RECORD_PAUSE_SECONDS
        driver.execute("ROLLBACK" if is_alone else "ROLLBACK TO SAVEPOINT record_use")


def find_role(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> Role | None:
    """Return the role of a person in a workspace; None if they are no member of it."""
    rows = query_with_rls(
        db,
        {"workspace_id": str(workspace_id)},
        "SELECT role FROM members WHERE workspace_id = %(id)s AND user_id = %(user_id)s",
        {"id": workspace_id, "user_id": user_id},
    )
    return Role(rows[0][0]) if rows else None


def record_token_use(db: Connection, identity: TokenIdentity) -> None:
    """Set a token's time of last use to now, unless another transaction holds the row's lock."""
    _record_use(
        db,
        {"workspace_id": str(identity.workspace_id)},
        """
            UPDATE tokens SET last_used_at = now() WHERE token_id =
                (SELECT token_id FROM tokens WHERE token_id = %(token_id)s FOR UPDATE SKIP LOCKED)
            RETURNING token_id
        """,
        {"token_id": identity.token_id},
    )


def _owner(
    workspace_id: int | None, visibility: str | None, is_snapshot: bool
) -> ExperimentOwner | None:
    if workspace_id is None or visibility is None:
        return None
    return ExperimentOwner(WorkspaceId(workspace_id), Visibility(visibility), is_snapshot)
