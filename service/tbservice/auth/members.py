"""Members of a workspace: list them, change roles, remove, and leave.

Every change locks the workspace first. Under the lock it is checked again that who acts is still an
owner, and that another owner remains. Tokens that are too strong now are revoked in the same
transaction, and so are the invitations of a member who is no owner any more.
"""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth.tables import invitations, members, tokens
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.types.grants import Grant, OwnerGrant
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Member, Role

_LAST_OWNER = "last_owner"


def list_members(db: Connection, grant: Grant) -> list[Member]:
    """Return the members of the workspace, those who joined first first."""
    return members.list_members(db, grant.workspace_id)


def find_role(db: Connection, workspace_id: WorkspaceId, user_id: UserId | None) -> Role | None:
    """Return the role of a person; None for a machine, and for who is no member.

    `db` is a transaction of the workspace.
    """
    return None if user_id is None else members.find_role(db, workspace_id, user_id)


def set_role(db: Connection, grant: OwnerGrant, user_id: UserId, role: Role) -> Member:
    """Change the role of a member. Idempotent.

    Raises:
        NotFound: They are no member.
        Conflict: They are the last owner, with the code last_owner.
        Forbidden: The acting person is no owner any more; or the token is a machine's, and the role
            is owner.
    """
    lock_as_owner(db, grant)
    if role is Role.OWNER:
        require_person(grant)
    current = _require_member(db, grant.workspace_id, user_id)
    if current is Role.OWNER and role is not Role.OWNER:
        _check_other_owner(db, grant.workspace_id, user_id)
    members.put(db, grant.workspace_id, user_id, role)
    _revoke_excess(db, grant.workspace_id, user_id, role)
    if role is not current:
        record(db, Act.MEMBER_ROLE, grant.workspace_id, user_id, role=role, before=current)
    member = members.find_member(db, grant.workspace_id, user_id)
    assert member is not None  # noqa: S101 - the workspace is locked
    return member


def remove_member(db: Connection, grant: OwnerGrant, user_id: UserId) -> None:
    """Remove a member, who may be who acts. Raises as `set_role` does."""
    lock_as_owner(db, grant)
    _remove(db, grant.workspace_id, user_id)
    record(db, Act.MEMBER_REMOVE, grant.workspace_id, user_id)


def leave(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> None:
    """Remove a person at their own wish.

    Raises NotFound if they are no member, and Conflict if they are the last owner.
    """
    members.lock_workspace(db, workspace_id)
    _remove(db, workspace_id, user_id)
    record(db, Act.MEMBER_LEAVE, workspace_id, user_id)


def lock_as_owner(db: Connection, grant: OwnerGrant) -> None:
    """Lock the workspace against other changes, and check that who acts is still an owner.

    The grant was made in another transaction: meanwhile they may have been removed. Raises
    Forbidden, and NotFound if the workspace was deleted.
    """
    if not members.lock_open_workspace(db, grant.workspace_id):
        raise NotFound("there is no such workspace, or it is not yours")
    if grant.user_id is not None:
        role = members.find_role(db, grant.workspace_id, grant.user_id)
        if role is not Role.OWNER:
            raise Forbidden("only an owner of the workspace may do this")


def require_person(grant: OwnerGrant) -> UserId:
    """Return the person who acts.

    A machine's token must not outlive its revocation by what it has made: other tokens, or owners.
    Raises Forbidden.
    """
    if grant.user_id is None:
        raise Forbidden(
            "only a person who owns the workspace may do this; a machine's token may not"
        )
    return grant.user_id


def _require_member(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> Role:
    role = members.find_role(db, workspace_id, user_id)
    if role is None:
        raise NotFound("the workspace has no such member")
    return role


def _check_other_owner(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> None:
    if not members.has_other_owner(db, workspace_id, user_id):
        raise Conflict(
            "the workspace needs an owner: make another member owner first", code=_LAST_OWNER
        )


def _remove(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> None:
    if _require_member(db, workspace_id, user_id) is Role.OWNER:
        _check_other_owner(db, workspace_id, user_id)
    members.delete(db, workspace_id, user_id)
    _revoke_excess(db, workspace_id, user_id, None)


def _revoke_excess(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, role: Role | None
) -> None:
    """Revoke what a member of this role may not have; None for one who is removed."""
    scopes = frozenset() if role is None else role.scopes
    tokens.revoke_beyond(db, workspace_id, user_id, scopes)
    if role is not Role.OWNER:
        invitations.revoke_created_by(db, workspace_id, user_id)
