"""A request for one of our own pages, by a person who is signed in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.pages.base.experiment_admin import admin_transaction
from tbservice.pages.base.frame import render
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.signed_in import SignedIn
from tbservice.types.grants import AdminGrant


@dataclass(frozen=True, slots=True)
class PersonPage:
    """A request, who is signed in, and the database: all that functions of a page need."""

    request: Request
    session: PersonSession
    database: Database

    def render(self, template: str, error: ServiceError | None = None, **context: Any) -> Response:
        """Return the page; with `error`, its status, and its text above the content."""
        return render(self.request, template, error=error, **context)

    def admin_transaction(
        self, experiment_id: str
    ) -> AbstractContextManager[tuple[Connection, AdminGrant]]:
        """Open a transaction with the right to change an experiment, as `experiment_admin`."""
        return admin_transaction(self.database, experiment_id, self.session)


async def _open_page(request: Request, session: SignedIn, database: UsesDatabase) -> PersonPage:
    return PersonPage(request, session, database)


SignedInPage = Annotated[PersonPage, Depends(_open_page)]
"""The page of the person who is signed in; without one, redirects as `SignedIn` does."""
