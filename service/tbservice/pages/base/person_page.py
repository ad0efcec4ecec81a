"""A request for one of our own pages, by a person who is signed in, and what they may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.pages.base.frame import render
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn
from tbservice.types.grants import AdminGrant, Scope, WorkspaceGrant
from tbservice.types.identifiers import WorkspaceId


@dataclass(frozen=True, slots=True)
class PersonPage:
    """A request, who is signed in, and the database: all that functions of a page need."""

    request: Request
    session: PersonSession
    database: Database

    def render(self, template: str, error: ServiceError | None = None, **context: Any) -> Response:
        """Return the page; with `error`, its status, and its text above the content."""
        return render(self.request, template, error=error, **context)

    def grant_workspace(self, scope: Scope, workspace_id: WorkspaceId) -> WorkspaceGrant:
        """Return the person's right to a workspace. Raises NotFound and Forbidden."""
        with self.database.without_transaction() as db:
            return grants.grant_workspace(db, self.session.secret, scope, workspace_id)

    def grant_admin(self, experiment_id: str, *, allows_kept_copy: bool = False) -> AdminGrant:
        """Return the right to change an experiment. Raises NotFound and Forbidden."""
        with self.database.without_transaction() as db:
            return grants.grant_admin(
                db, experiment_id, self.session.secret, allows_kept_copy=allows_kept_copy
            )

    @contextmanager
    def admin_transaction(
        self, experiment_id: str, *, allows_kept_copy: bool = False
    ) -> Iterator[tuple[Connection, AdminGrant]]:
        """Open a transaction with the right to change an experiment. Raises as `grant_admin`."""
        grant = self.grant_admin(experiment_id, allows_kept_copy=allows_kept_copy)
        with self.database.transaction(grant) as db:
            yield db, grant


async def _open_page(request: Request, session: SignedIn, database: UsesDatabase) -> PersonPage:
    return PersonPage(request, session, database)


SignedInPage = Annotated[PersonPage, Depends(_open_page)]
"""The page of the person who is signed in; without one, redirects as `SignedIn` does."""
