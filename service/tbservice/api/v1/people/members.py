"""Routes for the members of a workspace: list, change roles, remove."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from fastapi import status
from pydantic import BaseModel

from tbservice.api.http.dependencies import MayManage, MaySeeMembers, UsesDatabase
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import PersonAnswer
from tbservice.auth import members
from tbservice.types.identifiers import UserId
from tbservice.types.people import Member, Role

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/members", tags=["workspaces"])


class RoleChange(FewFields):
    """The new role of a member."""

    role: Role


class MemberAnswer(PersonAnswer):
    """A member of a workspace."""

    role: Role
    joined_at: datetime


class MemberList(BaseModel):
    """The members of a workspace; those who joined first are first."""

    members: list[MemberAnswer]


@router.get("")
def list_members(grant: MaySeeMembers, database: UsesDatabase) -> MemberList:
    """List the members. Needs the scope read; a machine's token, admin."""
    with database.snapshot(grant) as db:
        listed = members.list_members(db, grant)
    return MemberList(members=[member_answer(member) for member in listed])


@router.patch("/{user_id}")
def set_role(
    grant: MayManage, user_id: str, change: RoleChange, database: UsesDatabase
) -> MemberAnswer:
    """Change the role of a member. Needs the scope admin, and of a person, the role owner.

    Tokens of the member that are too strong for a lower role are revoked. The role of the last
    owner cannot be lowered (409, `last_owner`).
    """
    with database.transaction(grant) as db:
        return member_answer(members.set_role(db, grant, UserId(user_id), change.role))


@router.delete("/{user_id}", status_code=status.HTTP_204_NO_CONTENT)
def remove_member(grant: MayManage, user_id: str, database: UsesDatabase) -> None:
    """Remove a member, with immediate effect; their tokens for the workspace are revoked.

    Needs the scope admin, and of a person, the role owner. Experiments that the member created
    remain. The last owner cannot be removed (409, `last_owner`).
    """
    with database.transaction(grant) as db:
        members.remove_member(db, grant, UserId(user_id))


def member_answer(member: Member) -> MemberAnswer:
    """Return the model of a member."""
    return MemberAnswer(**asdict(member.person), role=member.role, joined_at=member.joined_at)
