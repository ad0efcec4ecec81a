"""Deleted people: nothing acts for them any more, and their names and addresses are erased."""

from __future__ import annotations

import contextvars
import json
import threading

import psycopg
import pytest
from sqlalchemy import text

from support.batches import ApiClient
from support.page_forms import PageReader
from support.people import new_member, new_person, new_personal_token, owner_of, race, sign_in
from support.suspending import suspend
from tbservice.auth import deletion, invitations, people, sessions, workspaces
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.experiments.eraser import erase_due
from tbservice.types.grants import Scope
from tbservice.types.people import Role


@pytest.fixture
def member(database, workspace_id):
    """An owner of a workspace that has another one."""
    new_member(database, workspace_id)
    return new_member(database, workspace_id)


@pytest.fixture
def erase(database, owner_url):
    """Lets the days pass in which a person can be restored, and erases them."""

    def erase(person):
        with psycopg.connect(owner_url) as db:
            db.execute(
                "UPDATE suspensions SET erase_at = now() - interval '1 s' WHERE subject = %s",
                (f"person/{person.user_id}",),
            )
        contextvars.Context().run(erase_due, database, threading.Event())

    return erase


@pytest.fixture
def find_text(owner_url):
    """Returns the tables with a row that contains a text, in any column."""

    def find(text):
        tables = set()
        with psycopg.connect(owner_url) as db:
            names = db.execute(
                "SELECT table_name FROM information_schema.tables"
                " WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
            ).fetchall()
            for (table,) in names:
                db.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
                statement = f"SELECT FROM {table} AS t WHERE t::text ILIKE %s LIMIT 1"
                if db.execute(statement, (f"%{text}%",)).fetchone() is not None:
                    tables.add(table)
            db.rollback()
        return tables

    return find


def delete(database, person):
    with database.transaction() as db:
        deletion.delete_person(db, person.user_id)


def test_account_is_deleted_on_its_page_at_once(client, database, workspace_id, member):
    secret = new_personal_token(database, workspace_id, member, Scope.ADMIN)
    api, page = ApiClient(client, secret), PageReader(client, sign_in(database, member))
    other_browser = PageReader(client, sign_in(database, member))
    experiment = api.new_experiment()
    assert page.post("/me/delete", {"typed": "someone@else"}).status_code == 422
    assert page.post("/me/delete", {"typed": member.email.upper()}).status_code == 303
    assert api.request("GET", f"/experiments/{experiment}").status_code in {401, 403}
    assert [each.get("/me").status_code for each in (page, other_browser)] == [303, 303]
    with database.transaction() as db, pytest.raises(Forbidden, match="is deleted"):
        sessions.open_session(db, member.user_id, "", "")


def test_account_needs_a_recent_sign_in(client, database, member, owner_url):
    page = PageReader(client, sign_in(database, member))
    with psycopg.connect(owner_url) as db:
        db.execute("ALTER TABLE browser_sessions NO FORCE ROW LEVEL SECURITY")
        db.execute(
            "UPDATE browser_sessions SET created_at = now() - interval '16 minutes'"
            " WHERE user_id = %s",
            (member.user_id,),
        )
        db.execute("ALTER TABLE browser_sessions FORCE ROW LEVEL SECURITY")
    answer = page.post("/me/delete", {"typed": member.email})
    assert (answer.status_code, "sign in again" in " ".join(answer.text.split())) == (403, True)
    assert page.get("/me").status_code == 200


def test_only_owner_cannot_be_deleted(client, database, workspace_id):
    alone = new_member(database, workspace_id)
    page = PageReader(client, sign_in(database, alone))
    with database.transaction() as db:
        name = workspaces.get_name(db, workspace_id)
    refused = page.post("/me/delete", {"typed": alone.email})
    assert (refused.status_code, "nobody else owns" in refused.text.lower()) == (409, True)
    suspend(database, "person", new_member(database, workspace_id).user_id)  # owns nothing
    assert page.post("/me/delete", {"typed": alone.email}).status_code == 409
    with database.transaction() as db:
        deletion.delete_any_workspace(db, workspace_id, name)
    assert page.post("/me/delete", {"typed": alone.email}).status_code == 303


def test_last_two_owners_cannot_both_go(database, workspace_id):
    first, second = (new_member(database, workspace_id) for _ in range(2))

    def go(person):
        return lambda db: deletion.delete_person(db, person.user_id)

    assert isinstance(race(database, workspace_id, go(first), go(second)), Conflict)


def test_restored_person_signs_in_again(database, member, run_tbservice):
    assert run_tbservice("user", "delete", member.email)[0] == 0
    listed = [line.split("\t") for line in run_tbservice("user", "list")[1]]
    assert [each[3] for each in listed if each[0] == member.user_id] == ["deleted"]
    assert run_tbservice("user", "restore", member.email)[0] == 0
    assert run_tbservice("user", "restore", member.email)[0] != 0
    with database.transaction() as db:
        assert people.require_enabled(db, member.user_id).email == member.email


def test_erased_person_leaves_a_pseudonym(
    client, database, workspace_id, erase, find_text, run_tbservice
):
    owner = new_member(database, workspace_id)
    with database.transaction() as db:
        person = people.find_or_create_by_email(db, "Zebedee.Q@Example.org", "Zebedee Quux")
        people.sign_in_identity(db, "https://issuer", "zebedee-sub", person.email, True, "")
    grant = owner_of(workspace_id, owner)
    with database.transaction(workspace_id) as db:
        secret = invitations.invite(db, grant, Role.EDITOR, person.email, None)[1]
    with database.transaction() as db:
        invitations.accept(db, secret, person)
    token = new_personal_token(database, workspace_id, person, Scope.ADMIN)
    experiment = ApiClient(client, token).new_experiment(name="stays")
    page = PageReader(client, sign_in(database, person))
    page.post("/experiments/searches", {"workspace": str(workspace_id), "name": "mine"})
    page.post("/me/name", {"name": "Zebedee the Second"})
    page.get(f"/workspace/{workspace_id}")
    last = text("SELECT last_workspace_id FROM users WHERE user_id = :user_id")
    with database.transaction() as db:
        assert db.execute(last, {"user_id": person.user_id}).scalar_one() == workspace_id
    delete(database, person)
    assert find_text("zebedee") >= {"users", "user_identities", "invitations"}

    erase(person)
    erase(person)
    # The owners of the workspace keep whom they have invited, as long as they keep their log.
    assert find_text("zebedee") == {"audit_records"}
    assert find_text(person.user_id).isdisjoint(
        {"members", "tokens", "browser_sessions", "saved_searches", "user_identities"}
    )
    with database.transaction() as db:
        assert db.execute(last, {"user_id": person.user_id}).scalar_one() is None
    shown = PageReader(client, sign_in(database, owner))
    pseudonym = f"deleted person #{person.user_id[:8]}"
    assert pseudonym in shown.get(f"/experiment/{experiment}/about").text
    assert pseudonym in shown.get(f"/workspace/{workspace_id}/audit").text
    receipts = map(json.loads, run_tbservice("receipts")[1])
    (receipt,) = (each for each in receipts if each["person_id"] == person.user_id)
    assert receipt["deleted_at"] < receipt["erased_at"] == receipt["objects_gone_at"]
    assert receipt["rows"] >= 4
    assert new_person(database, "zebedee.q@example.org").user_id != person.user_id


def test_restoring_whom_nobody_deleted_is_refused(database, member):
    with database.transaction() as db, pytest.raises(NotFound):
        deletion.restore_person(db, member.user_id)
