"""Routes for the invitations to a workspace: create, list, revoke."""

from __future__ import annotations

from datetime import datetime

from fastapi import status
from pydantic import BaseModel, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayManage, UsesDatabase, UsesSettings
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import EndTime, PersonAnswer
from tbservice.auth import invitations
from tbservice.auth.link_urls import invitation_url
from tbservice.types.people import Role

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/invitations", tags=["workspaces"])


class NewInvitation(FewFields):
    """The properties of an invitation to create."""

    role: Role
    email: str = Field(
        default="",
        max_length=limits.EMAIL_CHARS_MAX,
        description="Only the person with this confirmed e-mail address can accept; empty: anyone "
        "who has the link",
    )
    expires_at: EndTime = None


class InvitationAnswer(BaseModel, from_attributes=True, populate_by_name=True):
    """An invitation without its secret."""

    id: str = Field(validation_alias="invitation_id")
    role: Role
    email: str
    invited_by: PersonAnswer | None
    created_at: datetime
    expires_at: datetime


class CreatedInvitationAnswer(InvitationAnswer):
    """A new invitation with its link."""

    url: str = Field(description="The link to send; store it now: it cannot be read again")


class InvitationList(BaseModel):
    """The open invitations of a workspace, newest first."""

    invitations: list[InvitationAnswer]


@router.post("", status_code=status.HTTP_201_CREATED)
def create_invitation(
    grant: MayManage, new: NewInvitation, database: UsesDatabase, settings: UsesSettings
) -> CreatedInvitationAnswer:
    """Create an invitation, a link that one person can accept.

    Needs the scope admin, and of a person, the role owner; a machine's token cannot invite owners.
    Valid for 7 days unless `expires_at` says otherwise, and for 30 days at most. The service sends
    no e-mail. Repeating the request creates another invitation.
    """
    with database.transaction(grant) as db:
        invitation, secret = invitations.invite(db, grant, new.role, new.email, new.expires_at)
    url = invitation_url(settings.public_url, secret)
    shown = InvitationAnswer.model_validate(invitation)
    return CreatedInvitationAnswer(**shown.model_dump(), url=url)


@router.get("")
def list_invitations(grant: MayManage, database: UsesDatabase) -> InvitationList:
    """List the open invitations, newest first."""
    with database.snapshot(grant) as db:
        listed = invitations.list_invitations(db, grant)
    return InvitationList(invitations=list(map(InvitationAnswer.model_validate, listed)))


@router.delete("/{invitation_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_invitation(grant: MayManage, invitation_id: str, database: UsesDatabase) -> None:
    """Revoke an invitation, with immediate effect; repeating the request changes nothing."""
    with database.transaction(grant) as db:
        invitations.revoke(db, grant, invitation_id)
