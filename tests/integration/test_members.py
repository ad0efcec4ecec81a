"""Members of a workspace: roles, removal, leaving; what ends with them; and races."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from support.batches import ApiClient
from support.people import (
    new_member,
    new_person,
    new_personal_token,
    new_session,
    owner_of,
    race,
    sign_in,
)
from support.servers import new_workspace
from tbservice.auth import grants, invitations, members, people, tokens, workspaces
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from tbservice.types.grants import Scope
from tbservice.types.people import Role

LAST_OWNER = "needs an owner"


@pytest.fixture
def owner(database, workspace_id):
    return new_member(database, workspace_id)


@pytest.fixture
def grant(workspace_id, owner):
    return owner_of(workspace_id, owner)


def roles(database, workspace_id):
    with database.transaction(workspace_id) as db:
        listed = members.list_members(db, owner_of(workspace_id))
    return {member.person.user_id: member.role for member in listed}


def is_valid(database, secret):
    with database.transaction() as db:
        try:
            grants.identify(db, secret)
        except Unauthenticated:
            return False
    return True


def test_last_owner_cannot_leave_be_removed_or_lowered(database, workspace_id, owner, grant):
    new_member(database, workspace_id, Role.EDITOR)
    for change in (
        lambda db: members.leave(db, workspace_id, owner.user_id),
        lambda db: members.remove_member(db, grant, owner.user_id),
        lambda db: members.set_role(db, grant, owner.user_id, Role.EDITOR),
        lambda db: members.set_role(db, owner_of(workspace_id), owner.user_id, Role.VIEWER),
    ):
        with database.transaction(workspace_id) as db, pytest.raises(Conflict) as caught:
            change(db)
        assert caught.value.code == "last_owner"
    assert roles(database, workspace_id)[owner.user_id] is Role.OWNER


def test_disabled_owner_does_not_count_as_another(database, workspace_id, owner):
    other = new_member(database, workspace_id)
    with database.transaction() as db:
        people.disable(db, other.user_id)
    with database.transaction(workspace_id) as db, pytest.raises(Conflict, match=LAST_OWNER):
        members.leave(db, workspace_id, owner.user_id)


def test_owners_leaving_at_once_leave_one(database, workspace_id, owner):
    other = new_member(database, workspace_id)
    result = race(
        database,
        workspace_id,
        lambda db: members.leave(db, workspace_id, owner.user_id),
        lambda db: members.leave(db, workspace_id, other.user_id),
    )
    assert isinstance(result, Conflict)
    assert roles(database, workspace_id) == {other.user_id: Role.OWNER}


def test_owner_removed_meanwhile_changes_nothing(database, workspace_id, grant):
    other, third = (new_member(database, workspace_id) for _ in range(2))
    others = owner_of(workspace_id, other)
    for change in (
        lambda db: members.remove_member(db, others, third.user_id),
        lambda db: members.set_role(db, others, third.user_id, Role.VIEWER),
        lambda db: invitations.invite(db, others, Role.OWNER),
        lambda db: workspaces.rename(db, others, "taken over"),
        lambda db: tokens.create_workspace_token(db, others, [Scope.ADMIN]),
    ):
        with database.transaction(workspace_id) as db:
            people.add_member(db, workspace_id, other.user_id, Role.OWNER)
        result = race(
            database,
            workspace_id,
            lambda db: members.remove_member(db, grant, other.user_id),
            change,
        )
        assert isinstance(result, Forbidden), result
        assert roles(database, workspace_id)[third.user_id] is Role.OWNER


def test_machine_makes_no_owners_invitations_and_tokens(database, workspace_id):
    machine = owner_of(workspace_id)
    editor = new_member(database, workspace_id, Role.EDITOR)
    with database.transaction(workspace_id) as db:
        for forbidden in (
            lambda: members.set_role(db, machine, editor.user_id, Role.OWNER),
            lambda: invitations.invite(db, machine, Role.VIEWER),
            lambda: tokens.create_workspace_token(db, machine, [Scope.READ]),
        ):
            with pytest.raises(Forbidden):
                forbidden()
        members.set_role(db, machine, editor.user_id, Role.VIEWER)
    assert roles(database, workspace_id)[editor.user_id] is Role.VIEWER


def test_lower_role_revokes_tokens_too_strong(database, workspace_id, grant, client, experiment):
    editor = new_member(database, workspace_id, Role.EDITOR)
    secret = sign_in(database, editor)
    made = {
        scopes: new_personal_token(database, workspace_id, editor, *scopes)
        for scopes in ((Scope.READ,), (Scope.APPEND,), (Scope.READ, Scope.APPEND), (Scope.ADMIN,))
    }
    admin = ApiClient(client, made[Scope.ADMIN,])
    of_experiment = {
        scope: admin.new_token(experiment, scope) for scope in (Scope.READ, Scope.APPEND)
    }
    with database.transaction(workspace_id) as db:
        members.set_role(db, grant, editor.user_id, Role.VIEWER)
    assert {scopes for scopes, token in made.items() if is_valid(database, token)} == {
        (Scope.READ,)
    }
    assert is_valid(database, of_experiment[Scope.READ])
    assert not is_valid(database, of_experiment[Scope.APPEND])
    with database.without_transaction() as db:
        assert grants.grant_read(db, experiment, secret).user_id == editor.user_id
        with pytest.raises(Forbidden):
            grants.grant_append(db, experiment, secret)


@pytest.mark.parametrize("is_leaving", [True, False])
def test_removal_ends_rights_in_that_workspace_at_once(
    database, database_url, workspace_id, grant, client, experiment, is_leaving
):
    person = new_member(database, workspace_id, Role.EDITOR)
    elsewhere = new_workspace(database_url).workspace_id
    with database.transaction() as db:
        people.add_member(db, elsewhere, person.user_id, Role.OWNER)
    here_token = new_personal_token(database, workspace_id, person, Scope.ADMIN)
    there_token = new_personal_token(database, elsewhere, person, Scope.ADMIN)
    given = ApiClient(client, here_token).new_token(experiment, "read")
    page = client.get(f"/experiment/{experiment}/?token={here_token}", follow_redirects=False)
    assert page.status_code == 303
    data = f"/experiment/{experiment}/data/runs"
    assert client.get(data).status_code == 200  # by the cookie's read-only token
    secret = sign_in(database, person)

    with database.transaction(workspace_id) as db:
        if is_leaving:
            members.leave(db, workspace_id, person.user_id)
        else:
            members.remove_member(db, grant, person.user_id)
    assert client.get(data).status_code == 401
    assert not is_valid(database, here_token)
    assert not is_valid(database, given)
    assert is_valid(database, there_token)
    with database.without_transaction() as db:
        with pytest.raises(NotFound):
            grants.grant_read(db, experiment, secret)
        assert grants.grant_owner(db, secret, elsewhere).user_id == person.user_id


def test_removed_owner_leaves_no_open_invitation(database, workspace_id, grant):
    other = new_member(database, workspace_id)
    with database.transaction(workspace_id) as db:
        secret = invitations.invite(db, owner_of(workspace_id, other), Role.OWNER)[1]
    with database.transaction(workspace_id) as db:
        members.remove_member(db, grant, other.user_id)
    with database.transaction() as db, pytest.raises(NotFound):
        invitations.accept(db, secret, other)


def test_role_is_found_by_session_and_token_as_it_is_now(database, workspace_id, grant):
    other = new_member(database, workspace_id)
    token = new_personal_token(database, workspace_id, other, Scope.ADMIN)
    secret = sign_in(database, other)
    for held in (token, secret):
        with database.without_transaction() as db:
            assert grants.grant_owner(db, held, workspace_id).user_id == other.user_id
    with database.transaction(workspace_id) as db:
        members.set_role(db, grant, other.user_id, Role.EDITOR)
    for held in (token, secret):  # an editor's admin token remains, and is no owner's
        with database.without_transaction() as db, pytest.raises(Forbidden):
            grants.grant_owner(db, held, workspace_id)


@pytest.mark.parametrize("role", [None, Role.VIEWER])
def test_token_created_during_removal_is_revoked(database, workspace_id, grant, role):
    editor = new_member(database, workspace_id, Role.EDITOR)
    created = []

    def create(db):
        created.append(
            tokens.create_personal_token(db, editor.user_id, workspace_id, [Scope.ADMIN])[1]
        )

    def lower(db):
        if role is None:
            members.remove_member(db, grant, editor.user_id)
        else:
            members.set_role(db, grant, editor.user_id, role)

    assert race(database, workspace_id, create, lower) is None
    assert not is_valid(database, created[0])
    with database.transaction() as db:
        people.add_member(db, workspace_id, editor.user_id, Role.EDITOR)
    assert isinstance(race(database, workspace_id, lower, create), NotFound | Forbidden)


def test_token_created_during_disabling_is_revoked(database, workspace_id, owner):
    created = []

    def create(db):
        created.append(
            tokens.create_personal_token(db, owner.user_id, workspace_id, [Scope.READ])[1]
        )

    assert (
        race(database, workspace_id, create, lambda db: people.disable(db, owner.user_id)) is None
    )
    assert not is_valid(database, created[0])
    with database.transaction() as db:
        people.enable(db, owner.user_id)
    result = race(database, workspace_id, lambda db: people.disable(db, owner.user_id), create)
    assert isinstance(result, Forbidden)


def test_disabled_person_loses_tokens_everywhere(database, database_url, workspace_id, owner):
    elsewhere = new_workspace(database_url).workspace_id
    with database.transaction() as db:
        people.add_member(db, elsewhere, owner.user_id, Role.VIEWER)
    made = [
        new_personal_token(database, place, owner, Scope.READ)
        for place in (workspace_id, elsewhere)
    ]
    assert all(is_valid(database, token) for token in made)
    with database.transaction() as db:
        people.disable(db, owner.user_id)
    assert not any(is_valid(database, token) for token in made)


def test_workspaces_of_person_are_bounded(database, monkeypatch):
    monkeypatch.setattr("tbservice.auth.workspaces.PERSON_WORKSPACES_ITEMS_MAX", 2)
    person = new_person(database)
    for name in ("first", "second"):
        with database.transaction() as db:
            made = workspaces.create_for_person(db, person.user_id, name, is_permitted=True)
        assert (made.workspace_name, made.role) == (name, Role.OWNER)
    with database.transaction() as db, pytest.raises(Conflict, match="use one of them, give one"):
        workspaces.create_for_person(db, person.user_id, "third", is_permitted=True)
    with database.transaction() as db, pytest.raises(Forbidden):
        workspaces.create_for_person(db, person.user_id, "third", is_permitted=False)
    with database.transaction() as db, pytest.raises(Invalid):
        workspaces.create_for_person(db, person.user_id, " ", is_permitted=True)
    with database.transaction() as db:
        listed = people.list_memberships(db, person.user_id)
    assert [each.workspace_name for each in listed] == ["first", "second"]


def test_members_of_workspace_are_bounded(database, workspace_id, owner, monkeypatch):
    monkeypatch.setattr("tbservice.auth.people.MEMBERS_ITEMS_MAX", 1)
    person = new_person(database)
    with database.transaction() as db, pytest.raises(Conflict):
        people.add_member(db, workspace_id, person.user_id, Role.VIEWER)
    with database.transaction() as db:
        assert people.add_member(db, workspace_id, owner.user_id, Role.VIEWER) is Role.OWNER
    with database.transaction() as db, pytest.raises(NotFound):
        people.add_member(db, 2**40, person.user_id, Role.VIEWER)


def test_rows_of_people_are_hidden_from_other_tenants(database, database_url, workspace_id, owner):
    stranger = new_member(database, new_workspace(database_url).workspace_id)
    other = new_workspace(database_url).workspace_id
    with database.transaction(workspace_id) as db:
        invitations.invite(db, owner_of(workspace_id, owner), Role.VIEWER)
    new_personal_token(database, workspace_id, owner, Scope.READ)
    of_owner = f"user_id = '{owner.user_id}'"
    seen = {
        (None, ""): (0, 0, 0),
        (workspace_id, ""): (1, 1, 1),
        (other, ""): (0, 0, 0),
        (None, owner.user_id): (1, 0, 1),
        (None, stranger.user_id): (0, 0, 0),
        (other, stranger.user_id): (0, 0, 0),
    }
    for (reader_id, user_id), expected in seen.items():
        with database.transaction(reader_id) as db:
            set_local(db, "user_id", user_id)
            counts = tuple(
                db.execute(text(f"SELECT count(*) FROM {rows}")).scalar()  # noqa: S608 - constants
                for rows in (
                    f"members WHERE {of_owner}",
                    f"invitations WHERE created_by = '{owner.user_id}'",
                    f"tokens WHERE {of_owner}",
                )
            )
        assert counts == expected, (reader_id, user_id)


def test_person_cannot_add_membership_or_token_by_policy(database, workspace_id):
    person = new_person(database)
    for statement in (
        "INSERT INTO members (workspace_id, user_id, role) VALUES (:place, :id, 'owner')",
        """INSERT INTO tokens (token_id, workspace_id, user_id, scopes, label, prefix, digest)
        VALUES ('t', :place, :id, '{admin}', '', '', '')""",
    ):
        with database.transaction() as db:
            set_local(db, "user_id", person.user_id)
            with pytest.raises(Exception, match="row-level security"):
                db.execute(text(statement), {"place": workspace_id, "id": person.user_id})
            db.rollback()


@pytest.mark.plain("a cluster has no policy that looks into another table: two statements do it")
def test_session_shows_policy_memberships_of_its_person_alone(database, workspace_id, owner):
    new_member(database, workspace_id)
    secret, other = sign_in(database, owner), new_session(database, workspace_id)
    for held, expected in ((secret, 1), (other, 0)):
        digest = grants.parse_session_digest(held).hex()
        with database.transaction() as db:
            set_local(db, "secret_digest", digest)
            rows = db.execute(text("SELECT user_id FROM members")).scalars().all()
        assert len(rows) == 1
        assert (rows[0] == owner.user_id) == expected
