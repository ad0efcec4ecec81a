"""Queries for authentication, before workspace or person are known: by id, and by digests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.cluster.citus import Forms
from tbservice.db.pipeline import (
    PendingResult,
    execute_binary,
    fetch_binary,
    pipeline_with_rls,
    query_with_rls,
)
from tbservice.db.suspensions import exist as suspensions_exist
from tbservice.db.suspensions import select_suspensions
from tbservice.types.experiments import Visibility
from tbservice.types.grants import LinkView, Scope
from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId
from tbservice.types.people import Role
from tbservice.types.suspensions import Suspendable, Suspension


@dataclass(frozen=True, slots=True)
class ExperimentOwner:
    """The workspace that owns an experiment, its visibility, and of a frozen copy its source.

    A copy that has outlasted its source is its own.
    `version` and `updated_at` change with the experiment. `suspension` is that of the workspace, or
    else of what shares the experiment.
    """

    workspace_id: WorkspaceId
    visibility: Visibility
    snapshot_of: ExperimentId | None
    version: int
    updated_at: datetime
    suspension: Suspension | None


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The workspace, the experiment and the scopes of a valid token.

    `experiment_id` is None for a token of the workspace, `user_id` for one that acts for nobody,
    `link` for one that is no share link.
    `is_use_recorded`: its use was recorded within the last minute. `is_session`: a browser's, which
    was made by itself. `suspension`: of its workspace, its person, or the link.
    """

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    is_use_recorded: bool
    user_id: UserId | None
    link: LinkView | None
    expires_at: datetime | None
    is_session: bool
    suspension: Suspension | None


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """The person of a valid browser session, and their role in the workspace that is asked for.

    Workspace and role are None if the person is no member of it. `suspension` is the person's, the
    other one that of the workspace which was asked for by its id.
    """

    session_id: str
    user_id: UserId
    workspace_id: WorkspaceId | None
    role: Role | None
    is_use_recorded: bool
    suspension: Suspension | None
    workspace_suspension: Suspension | None
    experiment_id: None = None
    link: None = None

    @property
    def scopes(self) -> frozenset[Scope]:
        """Scopes that the role permits."""
        return frozenset() if self.role is None else self.role.scopes


_OWNER_COLUMNS: Final = """
    e.workspace_id, e.visibility, e.snapshot_of, e.version, e.updated_at
"""
_OWNER_SUBJECTS: Final = (
    "'workspace/' || e.workspace_id",
    "'experiment/' || e.experiment_id",
    "'experiment/' || e.snapshot_of",
)
_OWNER_COLUMNS_COUNT: Final = 5
_OWNER_KINDS: Final = frozenset({Suspendable.EXPERIMENT})
_IDENTITY_COLUMNS: Final = """
    t.token_id, t.workspace_id, t.experiment_id, t.scopes,
    coalesce(t.last_used_at > now() - interval '1 minute', false), t.user_id,
    t.expires_at, t.is_link, t.run_pattern, t.tag_pattern, t.is_anonymous, t.is_session
"""
_IDENTITY_SUBJECTS: Final = (
    "'workspace/' || t.workspace_id",
    "'person/' || t.user_id",
    "'link/' || t.token_id",
)
_IDENTITY_COLUMNS_COUNT: Final = 12
_USER_ID_PLACE: Final = 5
_IDENTITY_KINDS: Final = frozenset({Suspendable.PERSON, Suspendable.LINK})
"""Kinds of suspensions; those of a workspace are told apart by its id."""

_SESSION_SUBJECTS: Final = (
    "'person/' || s.user_id",
    "'workspace/' || CAST(%(workspace_id)s AS bigint)",
)
_IS_VALID: Final = """
    t.digest = decode(%(token_digest)s, 'hex') AND t.revoked_at IS NULL
        AND (t.expires_at IS NULL OR t.expires_at > now())
"""


def find_owner_and_identity(
    db: Connection, experiment_id: ExperimentId | None, token_digest: bytes | None
) -> tuple[ExperimentOwner | None, TokenIdentity | None]:
    """Return an experiment's owner and a token's identity, in one query.

    Either is None if the argument is None or matches no row. An expired or revoked token does not
    match. The row policies show an experiment to anyone who names its exact id, and a token to
    anyone who names the exact SHA-256 of its secret.
    """
    rls_settings = {
        "experiment_id": experiment_id or "",
        "token_digest": (token_digest or b"").hex(),
    }
    *row, suspensions = _FIND.of(db)(db, rls_settings, experiment_id)
    owner, identity = _owner(row, suspensions), None
    token_id, workspace_id, bound_to, scopes, is_recorded, user_id, *rest = row[
        _OWNER_COLUMNS_COUNT:
    ]
    expires_at, is_link, *shown, is_session = rest
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
            is_session,
            Suspension.find(suspensions or (), _IDENTITY_KINDS, workspace_id),
        )
    return owner, identity


def _find_together(
    db: Connection, rls_settings: Mapping[str, str], experiment_id: ExperimentId | None
) -> list[Any]:
    """Return the columns of an experiment's owner and of a token, each None if there is none.

    The last value is what is suspended of them.
    """
    settings = ", ".join(f"set_config('tbhub.{name}', %({name})s, true)" for name in rls_settings)
    ((*row,),) = fetch_binary(
        db,
        f"""
            SELECT {_OWNER_COLUMNS}, {_IDENTITY_COLUMNS},
                {select_suspensions(db, *_OWNER_SUBJECTS, *_IDENTITY_SUBJECTS)}
            -- The outer joins make PostgreSQL evaluate the settings, which the row policies read,
            -- before it reads the tables.
            FROM (SELECT {settings}) AS settings
            {_join_experiment(experiment_id)}
            LEFT JOIN tokens AS t ON {_IS_VALID}
        """,  # noqa: S608 - constants
        rls_settings,
    )
    return row


def _find_singly(
    db: Connection, rls_settings: Mapping[str, str], experiment_id: ExperimentId | None
) -> list[Any]:
    """Do the same by a statement for each table, which Citus plans at a third of one for several.

    What is suspended is looked for in a second round trip, and only if there is anything.
    """
    owners, any_suspended = PendingResult(), f"SELECT {suspensions_exist(db)}"
    with pipeline_with_rls(db, rls_settings):
        if experiment_id is not None:
            owners = execute_binary(
                db,
                f"""
                    SELECT {_OWNER_COLUMNS}, e.snapshot_of FROM experiments AS e
                    WHERE e.experiment_id = %(experiment_id)s
                """,  # noqa: S608 - constants
                {"experiment_id": experiment_id},
            )
        tokens = execute_binary(
            db,
            f"SELECT {_IDENTITY_COLUMNS} FROM tokens AS t WHERE {_IS_VALID}",  # noqa: S608 - constants
            {"token_digest": rls_settings["token_digest"]},
        )
        suspended = execute_binary(db, any_suspended, {})
    *owner, snapshot_of = next(iter(owners.rows()), (None,) * (_OWNER_COLUMNS_COUNT + 1))
    token = next(iter(tokens.rows()), (None,) * _IDENTITY_COLUMNS_COUNT)
    found = None
    if suspended.rows() == [(True,)]:
        token_id, token_workspace_id, *_ = token
        named = {
            "owner_workspace": owner[0] and f"workspace/{owner[0]}",
            "experiment": owner[0] and f"experiment/{experiment_id}",
            "source": snapshot_of and f"experiment/{snapshot_of}",
            "workspace": token_workspace_id and f"workspace/{token_workspace_id}",
            "person": token[_USER_ID_PLACE] and f"person/{token[_USER_ID_PLACE]}",
            "link": token_id and f"link/{token_id}",
        }
        subjects = [f"%({name})s::text" for name in named]
        statement = f"SELECT {select_suspensions(db, *subjects)}"
        ((found,),) = query_with_rls(db, rls_settings, statement, named)
    return [*owner, *token, found]


_FIND: Final = Forms(_find_together, _find_singly)


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
            SELECT {_OWNER_COLUMNS}, s.session_id, s.user_id, m.workspace_id, m.role,
                coalesce(s.last_used_at > now() - interval '1 minute', false),
                {select_suspensions(db, *_OWNER_SUBJECTS, *_SESSION_SUBJECTS)}
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
    session_id, user_id, member_of, role, is_recorded, suspensions = rows[0][_OWNER_COLUMNS_COUNT:]
    asked = workspace_id or rows[0][0]
    if role is None and user_id is not None and asked is not None:
        # A cluster lacks the policy by which the query above finds the role of a member.
        role = find_role(db, asked, user_id, is_own=True)
        member_of = None if role is None else asked
    identity = None
    if session_id is not None:
        identity = SessionIdentity(
            session_id,
            UserId(user_id),
            None if member_of is None else WorkspaceId(member_of),
            None if role is None else Role(role),
            is_recorded,
            Suspension.find(suspensions or (), {Suspendable.PERSON}, None),
            Suspension.find(suspensions or (), (), workspace_id),
        )
    return _owner(rows[0], suspensions), identity


def _join_experiment(experiment_id: ExperimentId | None) -> str:
    """Return the join of the experiment; of none, if none is asked for: its node may be down."""
    if experiment_id is not None:
        return "LEFT JOIN experiments AS e ON e.experiment_id = %(experiment_id)s"
    return """
        CROSS JOIN (SELECT NULL::bigint AS workspace_id, NULL::text AS visibility,
            NULL::text AS experiment_id, NULL::text AS snapshot_of, NULL::bigint AS version,
            NULL::timestamptz AS updated_at
        ) AS e
    """


def find_role(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, *, is_own: bool = False
) -> Role | None:
    """Return the role of a person in a workspace; None if they are no member of it.

    With `is_own`, as that person, for whom not all of the workspace is visible.
    """
    rows = query_with_rls(
        db,
        {"user_id": user_id} if is_own else {"workspace_id": str(workspace_id)},
        "SELECT role FROM members WHERE workspace_id = %(id)s AND user_id = %(user_id)s",
        {"id": workspace_id, "user_id": user_id},
    )
    return Role(rows[0][0]) if rows else None


def _owner(row: Sequence[Any], suspensions: Sequence[str] | None) -> ExperimentOwner | None:
    """Return the owner of a row that begins with `_OWNER_COLUMNS`, unless it is deleted."""
    workspace_id, visibility, snapshot_of, version, updated_at = row[:_OWNER_COLUMNS_COUNT]
    suspension = Suspension.find(suspensions or (), _OWNER_KINDS, workspace_id)
    if workspace_id is None or (suspension is not None and suspension.is_deletion):
        return None
    return ExperimentOwner(
        WorkspaceId(workspace_id),
        Visibility(visibility),
        snapshot_of,
        version,
        updated_at,
        suspension,
    )
