"""Operators: who has the right, for how long, and what their pages show and do."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from support.people import new_person, sign_in
from tbservice.audit.recording import NO_WORKSPACE
from tbservice.audit.tables import audit_records
from tbservice.auth import operators, sessions
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.types.audit import AuditFilter


@pytest.fixture
def person(database):
    return new_person(database)


@pytest.fixture
def operator(database, person):
    with database.transaction() as db:
        operators.make_operator(db, person.user_id)
    return person


@pytest.fixture
def secret(database, operator):
    return sign_in(database, operator)


def find(database, secret):
    with database.transaction() as db:
        return sessions.find_session(db, secret)


def revoke(database, person):
    with database.transaction() as db:
        operators.revoke_operator(db, person.user_id)


def let_sign_in_be_old(database, person):
    with database.transaction() as db:
        set_local(db, "user_id", person.user_id)
        statement = "UPDATE browser_sessions SET created_at = now() - interval '16 minutes'"
        assert db.execute(text(statement)).rowcount


def acts_of(database, object_id, workspace=NO_WORKSPACE):
    """The acts done to something, the latest first."""
    with database.snapshot(workspace) as db:
        wanted = AuditFilter(None, None, object_id)
        return audit_records.list_page(db, workspace, wanted, None, 20)


def test_operator_is_found_with_session_until_revoked(database, person, secret):
    assert find(database, secret).is_operator
    assert not find(database, sign_in(database, new_person(database))).is_operator
    revoke(database, person)
    assert not find(database, secret).is_operator
    acts = [each.act for each in acts_of(database, person.user_id)]
    assert [act for act in acts if act.startswith("operator")] == [
        "operator.remove",
        "operator.add",
    ]


def test_operator_is_made_and_revoked_once(database, operator):
    with pytest.raises(Conflict, match="already"), database.transaction() as db:
        operators.make_operator(db, operator.user_id)
    revoke(database, operator)
    with pytest.raises(Conflict, match="no operator"):
        revoke(database, operator)


def test_first_operator_stays_revoked(database, person):
    def start():
        with database.transaction() as db:
            operators.make_first_operator(db, person.user_id)
            return person.user_id in {each.user_id for each, _ in operators.list_operators(db)}

    assert start()
    revoke(database, person)
    assert not start()


def test_act_of_operator_needs_recent_sign_in(database, operator, secret):
    session = find(database, secret)

    def check():
        with database.transaction() as db:
            operators.check_act(db, operator.user_id, session.session_id)

    check()
    let_sign_in_be_old(database, operator)
    with pytest.raises(Forbidden, match="more than 15 minutes ago"):
        check()
    revoke(database, operator)
    with pytest.raises(NotFound):
        check()
