"""All people with their workspaces, sessions and tokens: for administrators and operators."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE
from tbservice.audit.tables import audit_records
from tbservice.auth import people
from tbservice.auth.tables import users
from tbservice.db.database import set_local
from tbservice.errors import NotFound
from tbservice.quotas.tables import traffic_groups
from tbservice.types.identifiers import UserId
from tbservice.types.people import Membership, Person
from tbservice.types.quotas import Traffic

ORDERS: Final = users.ORDERS
STATES: Final = users.STATES

TRAFFIC_WORKSPACES_ITEMS_MAX: Final = 100
"""Workspaces (items) of a person whose traffic is looked at, one after the other."""


class PersonDetails(NamedTuple):
    """A person, as administrators see them; `state` is one of `STATES`.

    `last_sign_in_at` is as old as the audit log at most; None for none. `sessions` and `tokens` are
    the numbers of those that are valid.
    """

    person: Person
    state: str
    is_operator: bool
    is_confirmed: bool
    created_at: datetime
    last_sign_in_at: datetime | None
    sessions: int
    tokens: int
    memberships: list[Membership]


def list_page(
    db: Connection, order: str, state: str, written: str, limit: int, offset: int
) -> tuple[int, list[PersonDetails]]:
    """Return how many people there are, and a page of them.

    The arguments are those of `users.list_page`. `db` is a transaction of no workspace.
    """
    set_local(db, "workspace_id", str(NO_WORKSPACE))
    total, page = users.list_page(db, order, state, written, limit, offset)
    return total, [_describe(db, each) for each in page]


def describe_one(db: Connection, user_id: UserId) -> PersonDetails:
    """Return one person. Raises NotFound."""
    found = users.find_listed(db, user_id)
    if found is None:
        raise NotFound("there is no such person")
    return _describe(db, found)


def list_traffic(db: Connection, details: PersonDetails) -> list[tuple[Membership, str, Traffic]]:
    """Return the requests of a person by month, in the first of their workspaces.

    In TRAFFIC_WORKSPACES_ITEMS_MAX at most. Afterwards, `db` is a transaction of the last of these.
    """
    listed = []
    for each in details.memberships[:TRAFFIC_WORKSPACES_ITEMS_MAX]:
        set_local(db, "workspace_id", str(each.workspace_id))
        months = traffic_groups.list_of_person(db, each.workspace_id, details.person.user_id)
        listed += [(each, *month) for month in months]
    return listed


def _describe(db: Connection, listed: users.UserState) -> PersonDetails:
    user = listed.user
    user_id = user.person.user_id
    set_local(db, "workspace_id", str(NO_WORKSPACE))
    last_sign_in_at = None
    if audit_records.exist(db):
        last_sign_in_at = audit_records.find_last_time(db, NO_WORKSPACE, Act.SIGN_IN, user_id)
    memberships = people.list_memberships(db, user_id)  # the rest sees what is theirs
    return PersonDetails(
        user.person,
        listed.state,
        listed.is_operator,
        user.email_key is not None,
        user.created_at,
        last_sign_in_at,
        *users.count_secrets(db, user_id),
        memberships,
    )
