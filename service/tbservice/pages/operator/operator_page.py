"""Shared parts of the operator's pages: who may see them, the frame, lists in pages, and acts.

To everybody but an operator, they look like pages that are not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tbservice.api.http.dependencies import UsesDatabase
from tbservice.auth import operators
from tbservice.errors import Forbidden, NotFound, ServiceError
from tbservice.pages.base.forms import FormFields, read_form
from tbservice.pages.base.frame import forget_person_session, render
from tbservice.pages.base.person_page import PersonPage
from tbservice.pages.base.signed_in import find_person_session

PATH: Final = "/operator"

PAGE_ITEMS: Final = 50
"""Workspaces or people (items) of a page."""

_PAGES_MAX: Final = 1_000_000
_WRITTEN_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class OperatorPage(PersonPage):
    """A request for a page of an operator, by one who is signed in."""

    def render(self, template: str, error: ServiceError | None = None, **context: Any) -> Response:
        """Return the page; with `error`, its status, and its text above the content."""
        return render(
            self.request, f"operator/{template}", error=error, page_items=PAGE_ITEMS, **context
        )

    def check_act(self, db: Connection) -> None:
        """Check that the operator may act now, in the transaction of the act.

        Raises Forbidden for a sign-in that is too old.
        """
        try:
            operators.check_act(db, self.session.person.user_id, self.session.session_id)
        except NotFound as error:
            raise _page_not_found(self.request) from error


def _page_not_found(request: Request) -> HTTPException:
    forget_person_session(request)
    return HTTPException(HTTPStatus.NOT_FOUND)


def _open_page(request: Request, database: UsesDatabase) -> OperatorPage:
    try:
        session = find_person_session(request)
    except Forbidden:  # a script asks
        session = None
    if session is None or not session.is_operator:
        raise _page_not_found(request)
    return OperatorPage(request, session, database)


OwnPage = Annotated[OperatorPage, Depends(_open_page)]
"""The page of an operator who is signed in; 404 as of an unknown address for everybody else."""


async def _read_operator_form(request: Request, page: OwnPage) -> FormFields:
    return await read_form(request, page.session)


OperatorForm = Annotated[FormFields, Depends(_read_operator_form)]
"""The fields of a form of an operator, checked as `read_form` does."""


class Listing:
    """The part of a long list that is shown: state, order, text to look for, number of the page.

    Values of the address that are none of the offered ones are the first of these.
    """

    def __init__(self, request: Request, orders: tuple[str, ...], states: tuple[str, ...]) -> None:
        query = request.query_params
        order, state, page = (query.get(name, "") for name in ("order", "state", "page"))
        self.orders, self.states = orders, states
        self.order = order if order in orders else orders[0]
        self.state = state if state in states else states[0]
        self.written = query.get("q", "").replace("\0", "").strip()[:_WRITTEN_CHARS_MAX]
        is_number = page.isascii() and page.isdigit() and 0 < int(page[:9]) <= _PAGES_MAX
        self.page = int(page[:9]) if is_number else 1

    def arguments(self) -> tuple[str, str, str, int, int]:
        """Return order, state, text, limit and offset, as functions that read a page take them."""
        offset = (self.page - 1) * PAGE_ITEMS
        return self.order, self.state, self.written, PAGE_ITEMS, offset

    def address(self, page: int) -> str:
        """Return the query of another page of the same list."""
        shown = {"q": self.written, "state": self.state, "order": self.order, "page": page}
        return "?" + urlencode({name: value for name, value in shown.items() if value})
