"""Invitations to a workspace: who can accept them, how often, and until when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from support.people import new_member, new_person, owner_of, race
from support.servers import new_workspace
from tbservice import limits
from tbservice.auth import invitations, people, secrets
from tbservice.auth.secrets import SecretKind
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound, ServiceError
from tbservice.types.people import Role


@pytest.fixture
def grant(database, workspace_id):
    return owner_of(workspace_id, new_member(database, workspace_id))


@pytest.fixture
def invite(database, workspace_id, grant):
    def invite(role=Role.EDITOR, email="", expires_at=None):
        with database.transaction(workspace_id) as db:
            return invitations.invite(db, grant, role, email, expires_at)

    return invite


def accept(database, secret, person):
    with database.transaction() as db:
        return invitations.accept(db, secret, person)


def test_invitation_shows_what_it_is_for(database, workspace_id, grant, invite):
    invitation, secret = invite(email="Ann@Example.org")
    assert (invitation.role, invitation.email) == (Role.EDITOR, "Ann@Example.org")
    assert invitation.invited_by.user_id == grant.user_id
    assert (invitation.expires_at - invitation.created_at).days in {6, 7}
    with database.transaction() as db:
        shown = invitations.find_invitation(db, secret)
    assert shown == invitation
    assert shown.workspace_name == "a test's workspace"
    with database.transaction(workspace_id) as db:
        assert invitations.list_invitations(db, grant) == [invitation]
        stored = str(db.execute(text("SELECT * FROM invitations")).all())
    assert secret not in stored


def test_invitation_is_accepted_once_of_many_at_once(database, workspace_id, invite):
    secret = invite()[1]
    people_ = [new_person(database) for _ in range(8)]

    def try_accept(person):
        try:
            return accept(database, secret, person)
        except NotFound:
            return None

    with ThreadPoolExecutor(8) as threads:
        accepted = [each for each in threads.map(try_accept, people_) if each]
    assert [(each.workspace_id, each.role) for each in accepted] == [(workspace_id, Role.EDITOR)]
    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM members")).scalar() == 2


def test_invitation_raises_role_and_never_lowers_it(database, workspace_id, invite):
    viewer = new_member(database, workspace_id, Role.VIEWER)
    owner = new_member(database, workspace_id, Role.OWNER)
    secret = invite()[1]
    assert accept(database, secret, owner).role is Role.OWNER  # and it is not used up
    assert accept(database, secret, viewer).role is Role.EDITOR
    with pytest.raises(NotFound):
        accept(database, secret, new_person(database))


@pytest.mark.parametrize(
    ("invited", "email", "is_accepted"),
    [
        ("Ann.Lee@Example.org", "ann.lee@example.ORG", True),
        ("ann.lee@example.org", "ann.lee@example.org", True),
        ("ann.lee@example.org", "annlee@example.org", False),
        ("ann.lee@example.org", "ann.lee+x@example.org", False),
        ("ann.lee@example.org", "ann.lee@example.com", False),
    ],
)
def test_invitation_by_address_is_for_its_person_alone(
    database, invite, invited, email, is_accepted
):
    secret = invite(email=invited)[1]
    person = new_person(database, email)
    if is_accepted:
        assert accept(database, secret, person).role is Role.EDITOR
    else:
        with pytest.raises(Forbidden):
            accept(database, secret, person)


def test_invitation_by_address_needs_it_confirmed(database, invite):
    secret = invite(email="mallory@example.org")[1]
    with database.transaction() as db:
        person = people.sign_in_identity(
            db, "https://idp", "mallory", "mallory@example.org", False, "Mallory"
        )
    assert person.email == "mallory@example.org"
    with pytest.raises(Forbidden):
        accept(database, secret, person)


def test_invitation_ends_revoked_or_expired(database, workspace_id, grant, invite):
    person = new_person(database)
    revoked, expired = invite(), invite()
    with database.transaction(workspace_id) as db:
        invitations.revoke(db, grant, revoked[0].invitation_id)
        invitations.revoke(db, grant, revoked[0].invitation_id)
        values = {"id": expired[0].invitation_id}
        statement = "UPDATE invitations SET expires_at = now() WHERE invitation_id = :id"
        db.execute(text(statement), values)
    unknown = secrets.generate_secret(SecretKind.INVITATION)
    token = secrets.generate_token()
    for secret in (revoked[1], expired[1], unknown, token, "", "nonsense"):
        with pytest.raises(NotFound):
            accept(database, secret, person)
        with database.transaction() as db, pytest.raises(NotFound):
            invitations.find_invitation(db, secret)
    with database.transaction(workspace_id) as db:
        assert invitations.list_invitations(db, grant) == []


def test_invitation_revoked_while_accepted_is_not_accepted(database, workspace_id, grant, invite):
    invitation, secret = invite()
    person = new_person(database)
    result = race(
        database,
        workspace_id,
        lambda db: invitations.revoke(db, grant, invitation.invitation_id),
        lambda db: invitations.accept(db, secret, person),
    )
    assert isinstance(result, NotFound)
    with database.transaction() as db:
        assert people.list_memberships(db, person.user_id) == []


def test_invitation_cannot_be_revoked_by_another_workspace(
    database, database_url, workspace_id, invite
):
    invitation, secret = invite()
    other = new_workspace(database_url).workspace_id
    for place, grant in ((other, owner_of(other)), (workspace_id, owner_of(other))):
        with database.transaction(place) as db, pytest.raises(NotFound):
            invitations.revoke(db, grant, invitation.invitation_id)
    assert accept(database, secret, new_person(database))


def test_invitation_of_disabled_person_is_refused(database, invite):
    secret = invite()[1]
    person = new_person(database)
    with database.transaction() as db:
        people.disable(db, person.user_id)
    with pytest.raises(Forbidden):
        accept(database, secret, person)


def test_invitation_of_wrong_properties_is_refused(invite):
    for email, seconds in (
        ("no address", None),
        ("ann@exämple.org", None),
        ("a@b@c", None),
        ("", -1),
        ("", limits.INVITATION_SECONDS_MAX + 60),
    ):
        expires_at = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        with pytest.raises(Invalid):
            invite(email=email, expires_at=expires_at)


def test_open_invitations_are_bounded_and_old_ones_deleted(
    database, workspace_id, grant, invite, monkeypatch
):
    monkeypatch.setattr("tbservice.auth.invitations.OPEN_INVITATIONS_ITEMS_MAX", 1)
    first = invite()[0]
    with pytest.raises(Conflict):
        invite()
    with database.transaction(workspace_id) as db:
        invitations.revoke(db, grant, first.invitation_id)
    invite()
    with database.transaction(workspace_id) as db:
        old = f"now() - interval '{limits.ENDED_TOKEN_SECONDS_MAX + 60} seconds'"
        db.execute(text(f"UPDATE invitations SET expires_at = {old}"))  # noqa: S608 - a test's own
    invite()
    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM invitations")).scalar() == 1


ISSUER = "https://provider.example"


def sign_in_account(database, subject, email="", email_verified=False, issuer=ISSUER):
    with database.transaction() as db:
        return people.sign_in_identity(db, issuer, subject, email, email_verified, "A\nname")


def test_account_signs_in_the_same_person_each_time(database):
    first = sign_in_account(database, "s1", "bob.s1@example.org", email_verified=True)
    assert (first.name, first.email) == ("A name", "bob.s1@example.org")
    assert sign_in_account(database, "s1", "new@example.org", email_verified=True) == first
    assert sign_in_account(database, "s1", issuer="https://other").user_id != first.user_id


def test_account_is_linked_by_confirmed_address_alone(database):
    person = new_person(database, "carol@example.org")
    with pytest.raises(Forbidden, match="confirm it there"):
        sign_in_account(database, "c1", "CAROL@example.org")
    assert sign_in_account(database, "c1", "CAROL@example.org", email_verified=True) == person
    # The address was given to somebody else, who has another account.
    with pytest.raises(Forbidden, match="another account"):
        sign_in_account(database, "c2", "carol@example.org", email_verified=True)


def test_account_with_look_alike_address_is_another_person(database):
    person = new_person(database, "dave@example.org")
    for email in (
        "dave@exampl\u0435.org",
        "\uff44ave@example.org",
        "dave@example\u3002org",
        "dave@example.org\0",
    ):
        other = sign_in_account(
            database, f"d {email}".replace("\0", ""), email, email_verified=True
        )
        assert other.user_id != person.user_id, email
        assert other.email == "", email


def test_account_first_signs_in_once_of_many_at_once(database):
    def run(_):
        try:
            return sign_in_account(database, "e1", "erin@example.org", email_verified=True).user_id
        except ServiceError as error:
            return error

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(run, range(8)))) == 1


def test_account_of_disabled_person_is_refused(database):
    person = sign_in_account(database, "f1")
    with database.transaction() as db:
        people.disable(db, person.user_id)
    with pytest.raises(Forbidden):
        sign_in_account(database, "f1")


def test_account_without_name_is_refused(database):
    for issuer, subject in (
        ("", "s"),
        (ISSUER, ""),
        (ISSUER, "s\0"),
    ):
        with pytest.raises(Invalid):
            sign_in_account(database, subject, issuer=issuer)


def test_account_rows_are_hidden_from_others(database):
    person = sign_in_account(database, "g1")
    for setting, value, expected in (
        ("user_id", "", 0),
        ("user_id", new_person(database).user_id, 0),
        ("user_id", person.user_id, 1),
        ("subject", "g1", 0),
    ):
        with database.transaction() as db:
            set_local(db, setting, str(value))
            count = "SELECT count(*) FROM user_identities WHERE subject = 'g1'"
            assert db.execute(text(count)).scalar() == expected
