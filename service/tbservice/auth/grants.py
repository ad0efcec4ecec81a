"""Authorize callers: turn a token into a grant, or raise. Nothing else makes grants for callers.

A missing experiment and another workspace's look the same: 404 with a valid token, 401 without.
"""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.auth import secrets
from tbservice.errors import Forbidden, NotFound, Unauthenticated
from tbservice.store import auth_lookup
from tbservice.store.auth_lookup import ExperimentOwner, TokenIdentity
from tbservice.types import (
    AdminGrant,
    AppendGrant,
    ExperimentId,
    KatibGrant,
    ReadGrant,
    Scope,
    Visibility,
    WorkspaceGrant,
    WorkspaceId,
)


def grant_workspace(db: Connection, secret: str | None) -> WorkspaceGrant:
    """Return the right to create and list experiments; requires an admin token of a workspace.

    Raises Unauthenticated, or Forbidden if the token is for one experiment or has no admin scope.
    """
    identity = _require_token(db, secret, _look_up(db, None, secret)[1])
    if identity.experiment_id is not None or Scope.ADMIN not in identity.scopes:
        raise Forbidden("this token is not for the whole workspace; use a workspace token")
    return WorkspaceGrant(identity.workspace_id)


def grant_read(db: Connection, experiment_id: str, secret: str | None) -> ReadGrant:
    """Return the right to read an experiment; those with visibility `link` need no token.

    A share link shows the same whatever the visibility. Raises Unauthenticated, NotFound or
    Forbidden.
    """
    owner, identity = _look_up(db, experiment_id, secret)
    is_link = identity is not None and identity.link and identity.experiment_id == experiment_id
    if owner is not None and owner.visibility is Visibility.LINK and not is_link:
        return ReadGrant(owner.workspace_id, ExperimentId(experiment_id))
    identity = _check_scope(experiment_id, owner, _require_token(db, secret, identity), Scope.READ)
    return ReadGrant(identity.workspace_id, ExperimentId(experiment_id), identity.link)


def grant_read_by_token(db: Connection, experiment_id: str, secret: str) -> tuple[ReadGrant, bool]:
    """Return the right to read by this token alone, and whether it permits nothing else.

    The visibility of the experiment is ignored. Raises as `grant_read` does.
    """
    identity = _authorize(db, experiment_id, secret, Scope.READ)
    is_for_this_alone = identity.experiment_id is not None and identity.scopes == {Scope.READ}
    grant = ReadGrant(identity.workspace_id, ExperimentId(experiment_id), identity.link)
    return grant, is_for_this_alone


def grant_append(db: Connection, experiment_id: str, secret: str | None) -> AppendGrant:
    """Return the right to append to an experiment and list its upload cursors.

    Raises Unauthenticated, NotFound or Forbidden.
    """
    identity = _authorize(db, experiment_id, secret, Scope.APPEND)
    return AppendGrant(
        identity.workspace_id,
        ExperimentId(experiment_id),
        may_name_workspace_blobs=identity.experiment_id is None,
    )


def grant_admin(db: Connection, experiment_id: str, secret: str | None) -> AdminGrant:
    """Return the right to rename, share and delete an experiment.

    Raises Unauthenticated, NotFound or Forbidden.
    """
    identity = _authorize(db, experiment_id, secret, Scope.ADMIN)
    return AdminGrant(identity.workspace_id, ExperimentId(experiment_id))


def grant_katib(db: Connection, secret: str | None) -> KatibGrant:
    """Return the right to report trials of Katib, whose requests name no experiment of ours.

    An admin token of a workspace is for all of its experiments, one with the scope `append` for its
    own experiment. Raises Unauthenticated or Forbidden.
    """
    identity = _require_token(db, secret, _look_up(db, None, secret)[1])
    _require_scope(identity, Scope.APPEND)
    may_read = bool(identity.scopes & {Scope.READ, Scope.ADMIN})
    return KatibGrant(identity.workspace_id, identity.experiment_id, may_read)


def parse_token_digest(secret: str | None) -> bytes | None:
    """Return the digest by which a token is looked up; None for a malformed token."""
    return secrets.token_digest(secret) if secret is not None and secrets.is_token(secret) else None


def find_caller(db: Connection, digest: bytes) -> tuple[WorkspaceId, bool] | None:
    """Return the workspace of a token and whether it can only read; None for an invalid token.

    The token's requests count towards the workspace's share of the server. Tokens that can only
    read are passed on to others. This is not a grant: see `tbservice.admission`.
    """
    identity = auth_lookup.find_owner_and_identity(db, None, digest)[1]
    return None if identity is None else (identity.workspace_id, identity.scopes == {Scope.READ})


def find_link_owner(db: Connection, experiment_id: str) -> WorkspaceId | None:
    """Return the workspace of an experiment that is visible by link; None for any other.

    Requests without a token count towards its share of the server. This is not a grant.
    """
    if not secrets.is_experiment_id(experiment_id):
        return None
    owner = auth_lookup.find_owner_and_identity(db, ExperimentId(experiment_id), None)[0]
    return owner.workspace_id if owner and owner.visibility is Visibility.LINK else None


def _authorize(
    db: Connection, experiment_id: str, secret: str | None, scope: Scope
) -> TokenIdentity:
    owner, identity = _look_up(db, experiment_id, secret)
    return _check_scope(experiment_id, owner, _require_token(db, secret, identity), scope)


def _look_up(
    db: Connection, experiment_id: str | None, secret: str | None
) -> tuple[ExperimentOwner | None, TokenIdentity | None]:
    is_id = experiment_id is not None and secrets.is_experiment_id(experiment_id)
    known_id = ExperimentId(experiment_id) if experiment_id is not None and is_id else None
    digest = parse_token_digest(secret)
    return (
        (None, None)
        if known_id is None and digest is None
        else auth_lookup.find_owner_and_identity(db, known_id, digest)
    )


def _require_token(
    db: Connection, secret: str | None, identity: TokenIdentity | None
) -> TokenIdentity:
    """Return the identity of the token, and record that it was used."""
    if secret is None:
        raise Unauthenticated("a token is needed: send it as 'Authorization: Bearer <token>'")
    if identity is None:
        raise Unauthenticated("this token is unknown, expired or revoked")
    if not identity.is_use_recorded:
        auth_lookup.record_token_use(db, identity)
    return identity


def _check_scope(
    experiment_id: str, owner: ExperimentOwner | None, identity: TokenIdentity, scope: Scope
) -> TokenIdentity:
    has_experiment = identity.experiment_id in {None, experiment_id}
    if owner is None or owner.workspace_id != identity.workspace_id or not has_experiment:
        raise NotFound("there is no such experiment, or it is not yours")
    _require_scope(identity, scope)
    if owner.is_snapshot and scope is not Scope.READ:
        raise Forbidden("this is the frozen copy of a share link: it can only be read")
    return identity


def _require_scope(identity: TokenIdentity, scope: Scope) -> None:
    if not identity.scopes & {scope, Scope.ADMIN}:
        raise Forbidden(
            f"this token lacks the scope {scope.value}; it has {', '.join(sorted(identity.scopes))}"
        )
