"""People for an operator: the list of all, and the page of one."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from tbservice.auth import people, person_overview, sessions, suspensions, tokens
from tbservice.errors import ServiceError
from tbservice.pages.base.frame import redirect
from tbservice.pages.operator.acts import ActedOn, perform
from tbservice.pages.operator.operator_page import (
    PATH,
    Listing,
    OperatorForm,
    OperatorPage,
    OwnPage,
)
from tbservice.pages.people.workspace_view import SHOWN_ERRORS
from tbservice.types.identifiers import UserId
from tbservice.types.suspensions import Suspendable, subject_of

router = APIRouter(prefix=PATH, include_in_schema=False)


@router.get("/people")
def show_people(page: OwnPage) -> Response:
    """Show all people, those who came last first, in pages."""
    listing = Listing(page.request, person_overview.ORDERS, person_overview.STATES)
    with page.database.transaction() as db:
        total, found = person_overview.list_page(db, *listing.arguments())
    return page.render("people.html", listing=listing, total=total, people=found)


@router.get("/person/{user_id}")
def show_person(page: OwnPage, user_id: str) -> Response:
    """Show a person with their workspaces, browsers and tokens."""
    return _show(page, UserId(user_id))


@router.post("/person/{user_id}")
def change_person(page: OwnPage, form: OperatorForm, user_id: str) -> Response:
    """Do to the person, or to one of their browsers or tokens, what the form says."""
    with page.database.transaction() as db:
        known_id = people.find_person(db, UserId(user_id)).user_id
    try:
        done = perform(page, form, ActedOn(user_id=known_id))
    except SHOWN_ERRORS as error:
        return _show(page, known_id, error)
    return redirect(f"{PATH}/person/{known_id}", done=done)


def _show(page: OperatorPage, user_id: UserId, error: ServiceError | None = None) -> Response:
    with page.database.transaction() as db:
        details = person_overview.describe_one(db, user_id)
        opened = sessions.list_sessions(db, user_id)
        own_tokens = tokens.list_personal_tokens(db, user_id)
        traffic = person_overview.list_traffic(db, details)
        reasons = {each.subject: each.reason for each in suspensions.list_suspended(db)}
    return page.render(
        "person.html",
        error,
        details=details,
        sessions=opened,
        tokens=own_tokens,
        traffic=traffic,
        reason=reasons.get(subject_of(Suspendable.PERSON, user_id)),
        workspace_names={each.workspace_id: each.workspace_name for each in details.memberships},
    )
