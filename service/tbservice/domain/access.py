"""Who may do what: turns a token into a grant, or refuses. Nothing else makes grants.

An experiment that is not there and one that is another's look the same: 404 with a token that counts, 401 without.
"""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.domain import secrets
from tbservice.errors import Forbidden, NotFound, Unauthenticated
from tbservice.store import experiments, tokens
from tbservice.store.tokens import Holder
from tbservice.types import (
    AdminGrant,
    AppendGrant,
    ExperimentId,
    ReadGrant,
    Scope,
    Visibility,
    WorkspaceGrant,
    WorkspaceId,
)


def grant_workspace(db: Connection, secret: str | None) -> WorkspaceGrant:
    """The right to create and list experiments: an admin token of a whole workspace.

    Raises Unauthenticated, or Forbidden when the token is for one experiment or may not administer.
    """
    holder = _holder(db, secret)
    if holder.experiment_id is not None or Scope.ADMIN not in holder.scopes:
        raise Forbidden("this token is not for the whole workspace; use the workspace owner's")
    return WorkspaceGrant(holder.workspace_id)


def grant_read(db: Connection, experiment_id: str, secret: str | None) -> ReadGrant:
    """The right to read an experiment; anyone has it who knows the id of one with visibility `link`.

    Raises Unauthenticated, NotFound or Forbidden.
    """
    owner = _owner(db, experiment_id)
    if owner is not None and owner[1] is Visibility.LINK:
        return ReadGrant(owner[0], ExperimentId(experiment_id))
    return ReadGrant(_check(db, experiment_id, secret, owner, Scope.READ).workspace_id, ExperimentId(experiment_id))


def grant_read_by_token(db: Connection, experiment_id: str, secret: str) -> tuple[ReadGrant, bool]:
    """The right to read that this very token gives, whatever the visibility; and whether it can do no more than that.

    Raises as `grant_read` does.
    """
    holder = _check(db, experiment_id, secret, _owner(db, experiment_id), Scope.READ)
    is_for_this_alone = holder.experiment_id is not None and holder.scopes == {Scope.READ}
    return ReadGrant(holder.workspace_id, ExperimentId(experiment_id)), is_for_this_alone


def grant_append(db: Connection, experiment_id: str, secret: str | None) -> AppendGrant:
    """The right to add to an experiment and to read its cursors. Raises Unauthenticated, NotFound or Forbidden."""
    owner = _owner(db, experiment_id)
    return AppendGrant(_check(db, experiment_id, secret, owner, Scope.APPEND).workspace_id, ExperimentId(experiment_id))


def grant_admin(db: Connection, experiment_id: str, secret: str | None) -> AdminGrant:
    """The right to rename, share and delete an experiment. Raises Unauthenticated, NotFound or Forbidden."""
    owner = _owner(db, experiment_id)
    return AdminGrant(_check(db, experiment_id, secret, owner, Scope.ADMIN).workspace_id, ExperimentId(experiment_id))


def _owner(db: Connection, experiment_id: str) -> tuple[WorkspaceId, Visibility] | None:
    if not secrets.is_experiment_id(experiment_id):
        return None
    return experiments.find_owner(db, ExperimentId(experiment_id))


def _holder(db: Connection, secret: str | None) -> Holder:
    if secret is None:
        raise Unauthenticated("a token is needed: send it as 'Authorization: Bearer <token>'")
    holder = tokens.find_holder(db, secrets.token_digest(secret)) if secrets.is_token(secret) else None
    if holder is None:
        raise Unauthenticated("this token is not known here, or it has expired or been revoked")
    if not holder.is_use_recorded:
        tokens.record_use(db, holder)
    return holder


def _check(
    db: Connection,
    experiment_id: str,
    secret: str | None,
    owner: tuple[WorkspaceId, Visibility] | None,
    scope: Scope,
) -> Holder:
    holder = _holder(db, secret)
    is_for_it = holder.experiment_id in {None, experiment_id}
    if owner is None or owner[0] != holder.workspace_id or not is_for_it:
        raise NotFound("there is no such experiment, or it is not yours")
    if not holder.scopes & {scope, Scope.ADMIN}:
        raise Forbidden(f"this token may not {scope.value} here; it may {', '.join(sorted(holder.scopes))}")
    return holder
