"""Authorize callers: turn a secret into a grant, or raise. Nothing else makes grants for callers.

A secret is a token, or that of a browser session (cookies only: see `api/http/dependencies.py`). A
missing experiment and another workspace's look the same: 404 with a valid secret, 401 without.
What is suspended is found by the same look-up, and raises Suspended; of a person Forbidden. Each
grant counts the request for its workspace, and raises QuotaExceeded where a quota is used up.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.audit import acting
from tbservice.audit.acting import Means
from tbservice.audit.acts import AUDIT_NETWORKS_ITEMS_MAX, Act
from tbservice.audit.recording import is_known_use, record_use
from tbservice.auth import secrets
from tbservice.auth.secrets import SecretKind
from tbservice.auth.tables import auth_lookup, secret_use, workspaces
from tbservice.auth.tables.auth_lookup import ExperimentOwner, SessionIdentity, TokenIdentity
from tbservice.errors import Forbidden, NotFound, Suspended, Unauthenticated
from tbservice.quotas.traffic import count_request
from tbservice.types.experiments import Visibility
from tbservice.types.grants import (
    AdminGrant,
    AppendGrant,
    Grant,
    KatibGrant,
    OwnerGrant,
    PersonalGrant,
    ReadGrant,
    Scope,
    WorkspaceGrant,
)
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId
from tbservice.types.people import Principal, Role
from tbservice.types.quotas import LINKS, MACHINES
from tbservice.types.suspensions import Suspendable, Suspension

_Identity = TokenIdentity | SessionIdentity

_NO_WORKSPACE = "there is no such workspace, or it is not yours"

_RIGHTS: Final = {
    Scope.READ: "read its experiments",
    Scope.APPEND: "upload to it",
    Scope.ADMIN: "change, share or delete its experiments",
}
"""The right that a role does not give, in a sentence for people."""


def grant_workspace(
    db: Connection, secret: str | None, scope: Scope, workspace_id: WorkspaceId | None = None
) -> WorkspaceGrant:
    """Return the right to create (append), list (read) or change experiments of a workspace.

    Args:
        db: A connection.
        secret: A token of a workspace, or a browser session.
        scope: Scope of the operation.
        workspace_id: Where: needed for a browser session; a token's is known.

    Raises:
        Unauthenticated: The secret is missing or not valid.
        Forbidden: The token is for one experiment, or lacks the scope, as does the person's role.
        NotFound: The workspace is missing, or not the caller's.
    """
    identity = _require_workspace(db, secret, workspace_id)
    _require_scope(identity, scope)
    _count(identity, scope)
    may_share = Scope.ADMIN in identity.scopes
    return WorkspaceGrant(_workspace_of(identity), may_share=may_share, user_id=identity.user_id)


def grant_owner(
    db: Connection, secret: str | None, workspace_id: WorkspaceId | None = None
) -> OwnerGrant:
    """Return the right to manage a workspace: its name, members, invitations and tokens.

    Owners have it, by their browser session or a token of theirs with the scope admin, and so does
    a machine's token with this scope. Raises as `grant_workspace` does.
    """
    identity = _require_workspace(db, secret, workspace_id)
    _require_scope(identity, Scope.ADMIN)
    workspace_id = _workspace_of(identity)
    if identity.user_id is not None and _find_role(db, identity) is not Role.OWNER:
        raise Forbidden("only an owner of the workspace may do this")
    _count(identity, Scope.ADMIN)
    return OwnerGrant(workspace_id, user_id=identity.user_id)


def grant_member(
    db: Connection, secret: str | None, workspace_id: WorkspaceId | None = None
) -> WorkspaceGrant:
    """Return the right to see a workspace and its members, whose addresses are not for machines.

    Members have it, by their browser session or a token of theirs with the scope read, and so does
    a machine's token with the scope admin. Raises as `grant_workspace` does.
    """
    identity = _require_workspace(db, secret, workspace_id)
    _require_scope(identity, Scope.ADMIN if identity.user_id is None else Scope.READ)
    # Never refused: they show what is used up, and by whom.
    _count(identity, Scope.ADMIN)
    return WorkspaceGrant(_workspace_of(identity), user_id=identity.user_id)


def grant_read(db: Connection, experiment_id: str, secret: str | None) -> ReadGrant:
    """Return the right to read an experiment; those with visibility `link` need no secret.

    The right of the secret itself comes first. A share link shows the same whatever the
    visibility. Raises Unauthenticated, NotFound, Forbidden or Suspended.
    """
    return grant_read_and_find_owner(db, experiment_id, secret)[0]


def grant_read_and_find_owner(
    db: Connection, experiment_id: str, secret: str | None
) -> tuple[ReadGrant, ExperimentOwner]:
    """Return the right of `grant_read`, and what the same query found of the experiment."""
    owner, identity = _look_up(db, experiment_id, secret)
    is_link = identity is not None and identity.link and identity.experiment_id == experiment_id
    try:
        identity = _check_scope(
            experiment_id, owner, _require_identity(db, secret, identity), Scope.READ
        )
    except (Unauthenticated, NotFound, Forbidden, Suspended):
        if owner is None or owner.visibility is not Visibility.LINK or is_link:
            raise
        _refuse_suspended(owner.suspension)
        count_request(owner.workspace_id, Scope.READ, LINKS, experiment_id, is_member=False)
        return ReadGrant(owner.workspace_id, ExperimentId(experiment_id), is_stranger=True), owner
    assert owner is not None  # noqa: S101 - checked with the scope
    return _read_grant(experiment_id, identity), owner


def grant_read_by_token(db: Connection, experiment_id: str, secret: str) -> tuple[ReadGrant, bool]:
    """Return the right to read by this token alone, and whether it permits nothing else.

    The visibility of the experiment is ignored, and so are browser sessions. Raises as `grant_read`
    does.
    """
    identity = _authorize(db, experiment_id, require_no_session(secret), Scope.READ)
    is_for_this_alone = identity.experiment_id is not None and identity.scopes == {Scope.READ}
    grant = _read_grant(experiment_id, identity)
    return grant, is_for_this_alone


def grant_preview(db: Connection, experiment_id: str, secret: str) -> ReadGrant:
    """Return the right to read by a share link, for the program that shows a preview of it.

    No use of the link is recorded: nobody has opened it. Raises as `grant_read` does, and
    Forbidden for another token.
    """
    owner, identity = _look_up(db, experiment_id, require_no_session(secret))
    if identity is None:
        raise Unauthenticated("this token is unknown, expired or revoked")
    _refuse_suspended(identity.suspension)
    if identity.link is None:
        raise Forbidden("a preview is of a share link")
    return _read_grant(experiment_id, _check_scope(experiment_id, owner, identity, Scope.READ))


def grant_read_by_session(db: Connection, experiment_id: str, secret: str) -> ReadGrant:
    """Return the right to read that a browser session has by its person's membership alone.

    The visibility of the experiment is ignored. Raises as `grant_read` does, and Unauthenticated
    for a token.
    """
    if parse_session_digest(secret) is None:
        raise Unauthenticated("this is not a browser session")
    return _read_grant(experiment_id, _authorize(db, experiment_id, secret, Scope.READ))


def grant_append(db: Connection, experiment_id: str, secret: str | None) -> AppendGrant:
    """Return the right to append to an experiment and list its upload cursors.

    Raises Unauthenticated, NotFound or Forbidden.
    """
    identity = _authorize(db, experiment_id, secret, Scope.APPEND)
    return AppendGrant(
        _workspace_of(identity),
        ExperimentId(experiment_id),
        may_name_workspace_blobs=_may_read_workspace(identity),
        user_id=identity.user_id,
    )


def grant_admin(
    db: Connection, experiment_id: str, secret: str | None, *, allows_kept_copy: bool = False
) -> AdminGrant:
    """Return the right to rename, share and delete an experiment.

    Raises Unauthenticated, NotFound or Forbidden: for a frozen copy, unless a kept one is allowed.
    """
    owner, found = _look_up(db, experiment_id, secret)
    identity = _require_identity(db, secret, found)
    _check_scope(experiment_id, owner, identity, Scope.ADMIN, allows_kept_copy=allows_kept_copy)
    is_copy = owner is not None and owner.snapshot_of is not None
    place = _workspace_of(identity), ExperimentId(experiment_id)
    return AdminGrant(*place, user_id=identity.user_id, is_kept_copy=is_copy)


def grant_katib(db: Connection, secret: str | None) -> KatibGrant:
    """Return the right to report trials of Katib, whose requests name no experiment of ours.

    A token of a workspace is for all of its experiments, another one for its own experiment. It
    needs the scope append. Raises Unauthenticated or Forbidden.
    """
    identity = _require_identity(db, require_no_session(secret), _look_up(db, None, secret)[1])
    _require_scope(identity, Scope.APPEND)
    _count(identity, Scope.APPEND, identity.experiment_id)
    may_read = bool(identity.scopes & {Scope.READ, Scope.ADMIN})
    return KatibGrant(
        _workspace_of(identity),
        identity.experiment_id,
        may_read,
        may_delete=identity.experiment_id is None and Scope.ADMIN in identity.scopes,
        user_id=identity.user_id,
    )


def grant_personal(
    db: Connection, secret: str | None, scope: Scope | None = Scope.ADMIN
) -> PersonalGrant:
    """Return the right to do what concerns a person alone, in the workspace of their token.

    Args:
        db: A connection.
        secret: A token for a whole workspace that acts for a person.
        scope: Scope that it must permit; None for any.

    Raises:
        Unauthenticated: The secret is missing or not valid, or a browser session's.
        Forbidden: The token is a machine's, is for one experiment, or lacks the scope.
    """
    identity = _look_up(db, None, require_no_session(secret))[1]
    identity = _require_identity(db, secret, identity)
    if (
        not isinstance(identity, TokenIdentity)
        or identity.user_id is None
        or identity.experiment_id is not None
    ):
        raise Forbidden("this token acts for no person in a workspace; use one of your own")
    if scope is not None:
        _require_scope(identity, scope)
    _count(identity, Scope.ADMIN)
    return PersonalGrant(
        identity.workspace_id,
        identity.token_id,
        identity.scopes,
        identity.expires_at,
        user_id=identity.user_id,
    )


def acting_person(grant: Grant) -> UserId:
    """Return the person of a grant that was found to have one."""
    assert grant.user_id is not None  # noqa: S101 - a personal grant has a person
    return grant.user_id


def identify(db: Connection, secret: str | None) -> Principal:
    """Return who a secret belongs to: of an anonymous link nobody, and no workspace.

    Raises Unauthenticated.
    """
    identity = _require_identity(db, secret, _look_up(db, None, secret)[1])
    if identity.link is not None and identity.link.is_anonymous:
        return Principal(None, None, identity.experiment_id, identity.scopes, None)
    return Principal(
        identity.user_id,
        identity.workspace_id,
        identity.experiment_id,
        identity.scopes,
        identity.token_id if isinstance(identity, TokenIdentity) else None,
        identity.expires_at if isinstance(identity, TokenIdentity) else None,
    )


def require_no_session(secret: str | None) -> str | None:
    """Return a secret that is not a browser session's, which only its cookie may send.

    A route that takes it from a header needs no protection against requests from other sites, and
    a page's script could not use a stolen one. Raises Unauthenticated.
    """
    # By its form, before any look-up.
    if secret is not None and secret.startswith(SecretKind.SESSION):
        raise Unauthenticated("this is not a token: a browser session is for pages only")
    return secret


def parse_token_digest(secret: str | None) -> bytes | None:
    """Return the digest by which a token is looked up; None for a malformed token."""
    return None if secret is None else secrets.parse_digest(secret, SecretKind.TOKEN)


def parse_session_digest(secret: str | None) -> bytes | None:
    """Return the digest by which a browser session is looked up; None for a malformed secret."""
    return None if secret is None else secrets.parse_digest(secret, SecretKind.SESSION)


def find_caller(db: Connection, digest: bytes) -> tuple[UserId | None, WorkspaceId, bool] | None:
    """Return whose share of the server a token's requests use; None for an invalid token.

    Also for one of a deleted workspace.

    That is the person it acts for; of a machine's token, and of a link, the one who created the
    workspace, or None if nobody is known; then the workspace, and whether the token can only read:
    such tokens are passed on to others. This is not a grant: see `tbservice.admission`.
    """
    identity = auth_lookup.find_owner_and_identity(db, None, digest)[1]
    if identity is None or (identity.suspension is not None and identity.suspension.is_deletion):
        return None
    person = identity.user_id or workspaces.find_creator(db, identity.workspace_id)
    return person, identity.workspace_id, identity.scopes == {Scope.READ}


def find_session_caller(db: Connection, digest: bytes) -> UserId | None:
    """Return the person of a browser session, whose share of the server its requests use.

    None for one that is not valid. This is not a grant.
    """
    identity = auth_lookup.find_owner_and_session(db, None, None, digest)[1]
    return None if identity is None else identity.user_id


def find_link_caller(
    db: Connection, experiment_id: str
) -> tuple[UserId | None, WorkspaceId, bool] | None:
    """Return whose share of the server requests without a token use, as `find_caller` does.

    None for an experiment that is not visible by link. This is not a grant.
    """
    if not secrets.is_experiment_id(experiment_id):
        return None
    owner = auth_lookup.find_owner_and_identity(db, ExperimentId(experiment_id), None)[0]
    if owner is None or owner.visibility is not Visibility.LINK:
        return None
    return workspaces.find_creator(db, owner.workspace_id), owner.workspace_id, True


def _authorize(db: Connection, experiment_id: str, secret: str | None, scope: Scope) -> _Identity:
    owner, identity = _look_up(db, experiment_id, secret)
    return _check_scope(experiment_id, owner, _require_identity(db, secret, identity), scope)


def _read_grant(experiment_id: str, identity: _Identity) -> ReadGrant:
    return ReadGrant(
        _workspace_of(identity),
        ExperimentId(experiment_id),
        identity.link,
        user_id=identity.user_id,
    )


def _look_up(
    db: Connection,
    experiment_id: str | None,
    secret: str | None,
    workspace_id: WorkspaceId | None = None,
) -> tuple[ExperimentOwner | None, _Identity | None]:
    is_id = experiment_id is not None and secrets.is_experiment_id(experiment_id)
    known_id = ExperimentId(experiment_id) if experiment_id is not None and is_id else None
    session_digest = parse_session_digest(secret)
    if session_digest is not None:
        return auth_lookup.find_owner_and_session(db, known_id, workspace_id, session_digest)
    digest = parse_token_digest(secret)
    return (
        (None, None)
        if known_id is None and digest is None
        else auth_lookup.find_owner_and_identity(db, known_id, digest)
    )


def _require_identity(db: Connection, secret: str | None, identity: _Identity | None) -> _Identity:
    """Return the identity of the secret, and record that it was used."""
    if secret is None:
        raise Unauthenticated("a token is needed: send it as 'Authorization: Bearer <token>'")
    if identity is None:
        raise Unauthenticated("this token is unknown, expired or revoked")
    _refuse_suspended(identity.suspension)
    if isinstance(identity, SessionIdentity):
        acting.identify(Means.SESSION, identity.session_id, identity.user_id)
        if not identity.is_use_recorded:
            secret_use.record_session_use(db, identity.session_id, identity.user_id)
        return identity

    is_token = identity.link is None
    acting.identify(Means.TOKEN if is_token else Means.LINK, identity.token_id, identity.user_id)
    act = Act.TOKEN_NETWORK if is_token else Act.LINK_NETWORK
    if not (identity.is_session or is_known_use(act, identity.token_id)):
        use = act, identity.workspace_id, identity.token_id, AUDIT_NETWORKS_ITEMS_MAX
        secret_use.attempt(db, record_use, *use)
    if not identity.is_use_recorded:
        secret_use.record_token_use(db, identity)
    return identity


def _require_workspace(
    db: Connection, secret: str | None, workspace_id: WorkspaceId | None
) -> _Identity:
    """Return the identity of a secret that is valid for a whole workspace."""
    identity = _look_up(db, None, secret, workspace_id)[1]
    identity = _require_identity(db, secret, identity)
    if identity.experiment_id is not None:
        raise Forbidden("this token is not for the whole workspace; use a workspace token")
    if identity.workspace_id is None or workspace_id not in {None, identity.workspace_id}:
        raise NotFound(_NO_WORKSPACE)
    if isinstance(identity, SessionIdentity):
        _refuse_suspended(identity.workspace_suspension)
    return identity


def _refuse_suspended(suspension: Suspension | None) -> None:
    if suspension is not None:
        raise suspension.as_error()


def _is_passed_on(identity: _Identity) -> bool:
    """Return whether the secret is for others: a link, or a token that only reads one experiment.

    Not those that a browser of a member gets by itself.
    """
    return (
        isinstance(identity, TokenIdentity)
        and identity.experiment_id is not None
        and identity.scopes == {Scope.READ}
        and not identity.is_session
    )


def _check_scope(
    experiment_id: str,
    owner: ExperimentOwner | None,
    identity: _Identity,
    scope: Scope,
    *,
    allows_kept_copy: bool = False,
) -> _Identity:
    has_experiment = identity.experiment_id in {None, experiment_id}
    # One answer for all three, so that nobody can find out which experiments exist.
    if owner is None or owner.workspace_id != identity.workspace_id or not has_experiment:
        raise NotFound("there is no such experiment, or it is not yours")
    if owner.suspension is not None and (
        owner.suspension.kind is not Suspendable.EXPERIMENT or _is_passed_on(identity)
    ):
        raise owner.suspension.as_error()
    _require_scope(identity, scope)
    is_kept = allows_kept_copy and owner.snapshot_of == experiment_id
    if owner.snapshot_of is not None and scope is not Scope.READ and not is_kept:
        raise Forbidden("this is the frozen copy of a share link: it can only be read")
    _count(identity, scope, experiment_id)
    return identity


def _count(identity: _Identity, scope: Scope, experiment_id: str | None = None) -> None:
    """Count the request for the workspace of the identity, its person, and an experiment."""
    is_passed_on = _is_passed_on(identity)
    who = LINKS if is_passed_on else identity.user_id or MACHINES
    count_request(_workspace_of(identity), scope, who, experiment_id, is_member=not is_passed_on)


def _require_scope(identity: _Identity, scope: Scope) -> None:
    if identity.scopes & {scope, Scope.ADMIN}:
        return
    if isinstance(identity, SessionIdentity):
        raise Forbidden(f"your role in this workspace does not permit to {_RIGHTS[scope]}")
    advice = ""
    if scope is Scope.ADMIN and identity.user_id is not None:
        advice = ": log in again, and tick Manage"
    raise Forbidden(
        f"this token lacks the scope {scope.value}; it has {', '.join(sorted(identity.scopes))}"
        f"{advice}"
    )


def _find_role(db: Connection, identity: _Identity) -> Role | None:
    """Return the role of the identity's person; that of a token's is looked up."""
    if isinstance(identity, SessionIdentity):
        return identity.role
    if identity.user_id is None:
        return None
    return auth_lookup.find_role(db, identity.workspace_id, identity.user_id)


def _workspace_of(identity: _Identity) -> WorkspaceId:
    """Return the workspace of an identity that was found to have one."""
    assert identity.workspace_id is not None  # noqa: S101 - checked before
    return identity.workspace_id


def _may_read_workspace(identity: _Identity) -> bool:
    is_for_all = identity.experiment_id is None
    return is_for_all and bool(identity.scopes & {Scope.READ, Scope.ADMIN})
