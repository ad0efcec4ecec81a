"""Session of the person who is signed in, as pages see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership, Person, Role


@dataclass(frozen=True, slots=True)
class PersonSession:
    """A person, the browser session of this request, and the workspaces of the person, by name.

    `last_workspace_id` is that of the workspace whose page the person opened last, on any browser;
    None if they opened none. `is_operator`: of this service, at the moment of the request.
    """

    person: Person
    session_id: str
    secret: str = field(repr=False)
    memberships: tuple[Membership, ...]
    last_workspace_id: WorkspaceId | None = None
    is_operator: bool = False

    @property
    def display_name(self) -> str:
        """Return the name to show for the person; never empty."""
        return self.person.name.strip() or self.person.email.strip() or "Unnamed person"

    @property
    def current_membership(self) -> Membership | None:
        """Return the workspace that was used last, else the oldest that the person owns.

        Without one, the oldest of all; None without any.
        """
        last = self.last_workspace_id
        current = None if last is None else self.find_membership(last)
        return current or min(self.memberships, key=_first_of, default=None)

    def find_membership(self, workspace_id: WorkspaceId) -> Membership | None:
        """Return the person's membership in a workspace, None if there is none."""
        return next((each for each in self.memberships if each.workspace_id == workspace_id), None)


def _first_of(membership: Membership) -> tuple[bool, WorkspaceId]:
    """Return the key of workspaces, of which a person's own come first, each kind by age."""
    return membership.role is not Role.OWNER, membership.workspace_id
