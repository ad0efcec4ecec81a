"""Who is signed in, as pages see it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tbservice.types import Membership, Person, WorkspaceId


@dataclass(frozen=True, slots=True)
class PersonSession:
    """A person, the browser session of this request, and the workspaces of the person, by name."""

    person: Person
    session_id: str
    secret: str = field(repr=False)
    memberships: tuple[Membership, ...]

    @property
    def display_name(self) -> str:
        """Return the name to show for the person; never empty."""
        return self.person.name.strip() or self.person.email.strip() or "Unnamed person"

    def find_membership(self, workspace_id: WorkspaceId) -> Membership | None:
        """Return the person's membership in a workspace, None if there is none."""
        return next((each for each in self.memberships if each.workspace_id == workspace_id), None)
