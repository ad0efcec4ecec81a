"""What the pages of a workspace share: whose they are, their frame, and the owner's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.pages.base.frame import render
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Membership

SHOWN_ERRORS: Final = (Conflict, Forbidden, Invalid, NotFound)
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

What may be done is decided by `auth/grants.py`.
"""


@contextmanager
def owner_transaction(
    database: Database, session: PersonSession, workspace: Membership
) -> Iterator[tuple[Connection, OwnerGrant]]:
    """Open a transaction of the workspace with the right of its owner.

    Raises Forbidden for another member.
    """
    workspace_id = workspace.workspace_id
    with database.without_transaction() as db:
        grant = grants.grant_owner(db, session.secret, workspace_id)
    with database.transaction(workspace_id) as db:
        yield db, grant


def render_tab(
    request: Request,
    template: str,
    workspace: Membership,
    error: ServiceError | None = None,
    **context: Any,
) -> Response:
    """Return a page of the workspace; with `error`, its status, and its text above the content."""
    return render(
        request,
        template,
        200 if error is None else error.status,
        workspace=workspace,
        error="" if error is None else error.detail,
        **context,
    )
