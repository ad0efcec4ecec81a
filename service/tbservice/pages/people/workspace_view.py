"""Shared parts of the pages of a workspace: the workspace, the frame, and the rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import grants
from tbservice.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    ServiceError,
)
from tbservice.pages.base.frame import render
from tbservice.pages.base.person_page import PersonPage
from tbservice.pages.base.signed_in import ScriptOfSignedIn, SignedIn
from tbservice.types.grants import OwnerGrant, Scope, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership

SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid, NotFound, QuotaExceeded)
"""Errors of a form that its page shows above its content."""

_DIGITS_MAX: Final = 18


def parse_workspace_id(text: str) -> WorkspaceId | None:
    """Return the id of a workspace in an address or a form; None for what is none."""
    is_id = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return WorkspaceId(int(text)) if is_id else None


def _find_membership(session: SignedIn, workspace_id: str) -> Membership:
    number = parse_workspace_id(workspace_id)
    membership = None if number is None else session.find_membership(number)
    if membership is None:
        raise NotFound("there is no such workspace, or it is not yours")
    return membership


OwnWorkspace = Annotated[Membership, Depends(_find_membership)]
"""The workspace in the path, of which the person is a member: it decides what is shown.

`auth/grants.py` decides about rights.
"""


@dataclass(frozen=True, slots=True)
class WorkspacePage(PersonPage):
    """A request for a page of a workspace, by a member who is signed in."""

    workspace: Membership

    @property
    def address(self) -> str:
        """Return the path of the workspace's first page; that of every other begins with it."""
        return f"/workspace/{self.workspace.workspace_id}"

    @contextmanager
    def owner_transaction(self) -> Iterator[tuple[Connection, OwnerGrant]]:
        """Open a transaction of the workspace with the right of its owner.

        Raises Forbidden for another member.
        """
        workspace_id = self.workspace.workspace_id
        with self.database.without_transaction() as db:
            grant = grants.grant_owner(db, self.session.secret, workspace_id)
        with self.database.transaction(workspace_id) as db:
            yield db, grant

    def grant_read(self) -> WorkspaceGrant:
        """Return the right to read the workspace, which every member has."""
        return self.grant_workspace(Scope.READ, self.workspace.workspace_id)

    def grant_member(self) -> WorkspaceGrant:
        """Return the right to see what the workspace is: also while its quotas are used up."""
        with self.database.without_transaction() as db:
            return grants.grant_member(db, self.session.secret, self.workspace.workspace_id)

    def render(self, template: str, error: ServiceError | None = None, **context: Any) -> Response:
        """Return the page; with `error`, its status, and its text above the content."""
        return render(self.request, template, error=error, workspace=self.workspace, **context)


def _open_page(
    request: Request, session: SignedIn, workspace: OwnWorkspace, database: UsesDatabase
) -> WorkspacePage:
    return WorkspacePage(request, session, database, workspace)


OwnPage = Annotated[WorkspacePage, Depends(_open_page)]
"""The page of the workspace in the path."""


def _open_script(
    request: Request, session: ScriptOfSignedIn, workspace_id: str, database: UsesDatabase
) -> WorkspacePage:
    return WorkspacePage(request, session, database, _find_membership(session, workspace_id))


OwnScript = Annotated[WorkspacePage, Depends(_open_script)]
"""Page of the workspace in the path, for the script of one of our pages; no window gets it."""
