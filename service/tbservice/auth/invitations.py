"""Invite people to a workspace by a link, and accept such invitations."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit import acting
from tbservice.audit.acting import Means
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import members, people, secrets
from tbservice.auth.emails import email_key, require_email_key
from tbservice.auth.secrets import SecretKind
from tbservice.auth.tables import invitations, users
from tbservice.auth.tables import members as member_rows
from tbservice.db.clock import read_now
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.types.grants import OwnerGrant
from tbservice.types.people import Invitation, Membership, Person, Role
from tbservice.types.sign_up import SignUp

INVITATION_SECONDS: Final = 7 * 24 * 3600
"""Seconds for which an invitation is valid, unless it says otherwise."""

OPEN_INVITATIONS_ITEMS_MAX: Final = 1_000
"""Invitations (items) of a workspace that are open."""

_ENDED = "this invitation is unknown, was used already or revoked, or has expired"


def invite(
    db: Connection,
    grant: OwnerGrant,
    role: Role,
    email: str = "",
    expires_at: datetime | None = None,
) -> tuple[Invitation, str]:
    """Create an invitation, which one person can accept; return it and its secret.

    The secret cannot be read again. Deletes a few old ones of the workspace.

    Args:
        db: A transaction of the workspace.
        grant: The right to manage the workspace.
        role: Role of the person.
        email: Only the person with this confirmed address can accept; "" for anyone who has the
            link.
        expires_at: When it ends; None for `INVITATION_SECONDS` from now.

    Raises:
        Invalid: The address, or the time: it has passed, or is later than `INVITATION_SECONDS_MAX`.
        Forbidden: The acting person is disabled or no owner any more, or the token is a machine's.
        Conflict: Too many invitations are open.
    """
    now = read_now(db)
    if email:
        require_email_key(email)
    if expires_at is None:
        expires_at = now + timedelta(seconds=INVITATION_SECONDS)
    if not now < expires_at <= now + timedelta(seconds=limits.INVITATION_SECONDS_MAX):
        days = limits.INVITATION_SECONDS_MAX // 86_400
        raise Invalid(f"expires_at must be in the future, and at most {days} days from now")

    members.lock_as_owner(db, grant)
    # An invitation of a stolen token of a machine would outlive it.
    people.require_enabled(db, members.require_person(grant))
    if invitations.count_open(db, grant.workspace_id) >= OPEN_INVITATIONS_ITEMS_MAX:
        raise Conflict("too many invitations are open: revoke some that are not needed")
    ended_before = now - timedelta(seconds=limits.ENDED_TOKEN_SECONDS_MAX)
    invitations.delete_ended(db, grant.workspace_id, ended_before, limits.SIGN_IN_SWEEP_ITEMS_MAX)
    return _create(db, grant, role, email, expires_at)


def find_invitation(db: Connection, secret: str) -> Invitation:
    """Return the invitation of a link, and leave it unused: scanners of e-mail open links.

    Raises NotFound if it is unknown or not open: both look the same.
    """
    digest = secrets.parse_digest(secret, SecretKind.INVITATION)
    invitation = None if digest is None else invitations.find_open(db, digest)
    if invitation is None:
        raise NotFound(_ENDED)
    return invitation


def accept(
    db: Connection, secret: str, person: Person, *, is_link_enough: bool = False
) -> Membership:
    """Make a person a member with the invitation's role; of several requests, one succeeds.

    A member with a lower role gets the higher one. For one who has the role already, nothing
    changes, and the invitation stays open for others.

    Args:
        db: A transaction of no workspace.
        secret: The link's secret.
        person: Person who has signed in.
        is_link_enough: As for `join`: then the address that the person shows need not be confirmed,
            since they could join with it as somebody new.

    Raises:
        NotFound: The invitation is unknown or not open.
        Forbidden: It is for another address, or the person is disabled.
        Conflict: The workspace is full.
    """
    invitation = find_invitation(db, secret)
    people.require_enabled(db, person.user_id)
    _check_address(db, invitation, person, is_link_enough=is_link_enough)

    workspace_id = invitation.workspace_id
    # The workspace is known only now, by the invitation: row-level security hid its rows until
    # then.
    set_local(db, "workspace_id", str(workspace_id))
    member_rows.lock_workspace(db, workspace_id)
    current = member_rows.find_role(db, workspace_id, person.user_id)
    # Not used up: a link that its owner opens to look at it must remain valid for the invited
    # person.
    if current is not None and current.includes(invitation.role):
        return Membership(workspace_id, invitation.workspace_name, current)
    people.check_room(db, workspace_id, current)
    # An UPDATE that finds it open: of two people with one link, only the first is a member.
    if not invitations.accept(db, invitation.invitation_id, person.user_id):
        raise NotFound(_ENDED)
    member_rows.put(db, workspace_id, person.user_id, invitation.role)
    record(
        db,
        Act.INVITATION_ACCEPT,
        workspace_id,
        invitation.invitation_id,
        member=person.user_id,
        role=invitation.role,
    )
    return Membership(workspace_id, invitation.workspace_name, invitation.role)


def join(
    db: Connection, secret: str, name: str, sign_up: SignUp, *, is_link_enough: bool
) -> tuple[Person, Membership]:
    """Create a person with this name, who accepts; of several requests, one succeeds.

    Args:
        db: A transaction of no workspace.
        secret: The link's secret, which proves that the person was invited.
        name: Name of the person that others see.
        sign_up: Who gets an account.
        is_link_enough: Whether people may come into being so. With an OpenID provider they must
            not: an invitation would be a way around it.

    Raises:
        NotFound: The invitation is unknown or not open.
        Forbidden: People sign in at a provider, the invitation's address is a disabled person's, or
            the service makes no account for it.
        Invalid: The name is empty or too long.
        Conflict: A person has confirmed the address, or the workspace is full.
    """
    if not is_link_enough:
        raise Forbidden("sign in first: here, people have an account at a provider")
    invitation = find_invitation(db, secret)
    if not sign_up.admits_invited(email_key(invitation.email)):
        raise Forbidden(people.NOT_ADMITTED, code=people.SIGN_UP_CLOSED)
    person = people.create_by_invitation(db, invitation.email, name, invitation.invited_by)
    acting.identify(Means.INVITATION, invitation.invitation_id, person.user_id)
    return person, accept(db, secret, person, is_link_enough=True)


def list_invitations(db: Connection, grant: OwnerGrant) -> list[Invitation]:
    """Return the open invitations of the workspace, the newest first; without their secrets."""
    return invitations.list_open(db, grant.workspace_id)


def revoke(db: Connection, grant: OwnerGrant, invitation_id: str) -> None:
    """Revoke an invitation that was not accepted. Idempotent.

    Raises NotFound if the workspace has no such invitation.
    """
    if not invitations.revoke(db, grant.workspace_id, invitation_id):
        raise NotFound("the workspace has no such invitation that is open")
    record(db, Act.INVITATION_REVOKE, grant.workspace_id, invitation_id)


def _create(
    db: Connection, grant: OwnerGrant, role: Role, email: str, expires_at: datetime
) -> tuple[Invitation, str]:
    secret = secrets.generate_secret(SecretKind.INVITATION)
    invitation_id = secrets.generate_public_id()
    invitations.create(
        db,
        grant.workspace_id,
        invitation_id,
        role,
        email,
        secrets.secret_digest(secret),
        grant.user_id,
        expires_at,
    )
    record(
        db,
        Act.INVITATION_CREATE,
        grant.workspace_id,
        invitation_id,
        role=role,
        is_for=email or None,
    )
    invitation = invitations.find(db, grant.workspace_id, invitation_id)
    assert invitation is not None  # noqa: S101 - created above
    return invitation, secret


def _check_address(
    db: Connection, invitation: Invitation, person: Person, *, is_link_enough: bool
) -> None:
    """Check that the invitation is for anyone, or for the person's address."""
    if not invitation.email:
        return
    key = email_key(invitation.email)
    user = users.find(db, person.user_id)
    if user is not None and key is not None:
        if user.email_key == key:
            return
        is_shown = user.email_key is None and email_key(user.person.email) == key
        if is_shown and is_link_enough and users.find_by_email_key(db, key) is None:
            return
    raise Forbidden(
        "this invitation is for another e-mail address; sign in as the person it is for, or ask "
        "who invited you for one without an address"
    )
