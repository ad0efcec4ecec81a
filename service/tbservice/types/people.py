"""People, their roles, sessions, invitations and tokens, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tbservice.types.grants import Scope
from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId


class Role(enum.StrEnum):
    """Role of a member of a workspace; each includes the rights of the next.

    An owner manages members, invitations and the workspace's tokens; an editor creates, changes,
    shares and deletes experiments; a viewer reads.
    """

    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"

    @property
    def scopes(self) -> frozenset[Scope]:
        """Scopes of a browser session of a member with this role, and at most of a token."""
        return frozenset({Scope.READ}) if self is Role.VIEWER else frozenset(Scope)

    def includes(self, other: Role) -> bool:
        """Return whether this role permits all that the other does."""
        return _ROLE_ORDER.index(self) <= _ROLE_ORDER.index(other)


_ROLE_ORDER: Final = list(Role)


@dataclass(frozen=True, slots=True)
class Person:
    """A user. `email` is "" if none is known; `name` may be "" (then show the e-mail address)."""

    user_id: UserId
    name: str
    email: str

    @staticmethod
    def of(user_id: UserId | None, name: str, email: str) -> Person | None:
        """Return the person of an outer join's columns, or None."""
        return None if user_id is None else Person(user_id, name, email)


@dataclass(frozen=True, slots=True)
class Principal:
    """Owner of a secret, before anything is asked for.

    A browser session has a person and no workspace: the role in each workspace says what it may do.
    A token has a workspace and scopes, and a person unless it is a machine's.
    """

    user_id: UserId | None
    workspace_id: WorkspaceId | None
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    token_id: TokenId | None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that a person is signed in with; the secret is not part of it.

    `last_workspace_id` is that of the workspace whose page the person opened last, on any browser;
    they may have left it. None if they opened none. `is_operator` is False in lists.
    """

    session_id: str
    person: Person
    user_agent: str
    address: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime
    last_workspace_id: WorkspaceId | None
    is_operator: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """A workspace that a person is a member of."""

    workspace_id: WorkspaceId
    workspace_name: str
    role: Role


@dataclass(frozen=True, slots=True)
class DeletedWorkspace:
    """A workspace that was deleted, and can be restored until it is erased."""

    workspace_id: WorkspaceId
    name: str
    deleted_at: datetime
    erase_at: datetime


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a workspace.

    `is_confirmed` is False if who invited them chose the address, which may be somebody else's.
    """

    person: Person
    is_confirmed: bool
    role: Role
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link that invites to a workspace; the secret is not part of it. `email` "" is for anyone.

    At most one of `accepted_at` and `revoked_at` is set.
    """

    invitation_id: str
    workspace_id: WorkspaceId
    workspace_name: str
    role: Role
    email: str
    invited_by: Person | None
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class TokenUse:
    """The label of a token, its workspace, and whom it acts for: nobody for a machine's."""

    label: str
    workspace_name: str
    role: Role | None
    person: Person | None


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; `prefix` is the beginning of the secret, for lists.

    `created_by` is None for one that an administrator of the service created. With `is_personal`,
    it acts for a person, who created it, and ends with their rights.
    """

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: tuple[Scope, ...]
    label: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_personal: bool = False
    created_by: Person | None = None
