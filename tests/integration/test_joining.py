"""Joining by an invitation where no OpenID provider is: an account for one who has the link, and no
way into anybody else's.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from support.page_forms import PageReader, new_link, new_reader, session_of
from support.people import new_member, new_person, owner_of, sign_in
from support.servers import new_workspace
from tbservice import limits
from tbservice.auth import invitations, people, sign_in_links
from tbservice.errors import Conflict, Forbidden, NotFound
from tbservice.server.app import create_app
from tbservice.settings import Settings
from tbservice.types.people import Role

CALLERS = 12
NAME = {"name": "Bob Builder"}
PROVIDER = {
    "id": "local",
    "name": "Example ID",
    "issuer": "https://id.example.org",
    "client_id": "tbhub",
}


@pytest.fixture
def invite(database, workspace_id):
    """Return a function that invites somebody to the workspace, and returns the link's secret."""
    grant = owner_of(workspace_id, new_member(database, workspace_id))

    def invite(email="", role=Role.EDITOR):
        with database.transaction(workspace_id) as db:
            return invitations.invite(db, grant, role, email)[1]

    return invite


@pytest.fixture
def with_provider(settings):
    """A client of the same service, with an OpenID provider."""
    named = Settings.model_validate({**settings.model_dump(), "oidc_providers": [PROVIDER]})
    with TestClient(create_app(named)) as client:
        yield client


def open_page(client, secret):
    return PageReader(client).get(f"/invitation?token={secret}", cookie="other=1")


def join(client, secret, **fields):
    """Post the form of an invitation in a browser that has no session of an earlier test."""
    sent = {"token": secret, **NAME, **fields}
    return PageReader(client).post("/invitation/join", sent, cookie="other=1")


def people_of(database, email):
    with database.transaction() as db:
        return [each for each in people.list_people(db) if each.person.email == email]


def is_open(database, secret):
    with database.transaction() as db:
        try:
            invitations.find_invitation(db, secret)
        except NotFound:
            return False
    return True


def test_joining_makes_member_who_is_signed_in(client, database, workspace_id, invite):
    secret = invite("bob.j1@example.org", Role.VIEWER)
    for _ in range(2):  # a scanner of e-mail opens it as well
        page = open_page(client, secret)
        assert page.status_code == 200
        assert 'action="/invitation/join"' in page.text
        assert "bob.j1@example.org" in page.text
        assert session_of(page) is None
    assert people_of(database, "bob.j1@example.org") == []

    joined = join(client, secret)
    assert joined.status_code == 303
    assert joined.headers["location"] == f"/workspace/{workspace_id}?done=joined-new"
    assert "HttpOnly" in joined.headers["set-cookie"]
    welcome = PageReader(client, session_of(joined)).get(joined.headers["location"])
    assert "Welcome, Bob Builder" in welcome.text
    assert welcome.text.count("</bdi> (not confirmed)") == 1
    (bob,) = people_of(database, "bob.j1@example.org")
    with database.transaction() as db:
        (membership,) = people.list_memberships(db, bob.person.user_id)
    assert (membership.workspace_id, membership.role) == (workspace_id, Role.VIEWER)
    assert bob.email_key is None  # the inviter had the link as well

    assert open_page(client, secret).status_code == 404
    assert join(client, secret).status_code == 404


def test_joining_succeeds_once_of_many_at_once(client, database, workspace_id, invite):
    secret, start = invite("bob.j2@example.org"), threading.Barrier(CALLERS)

    def try_join(number):
        start.wait()
        return join(client, secret, name=f"caller {number}")

    with ThreadPoolExecutor(CALLERS) as threads:
        answers = [*threads.map(try_join, range(CALLERS))]
    assert sorted(each.status_code for each in answers) == [303] + [404] * (CALLERS - 1)
    assert len([each for each in answers if session_of(each)]) == 1
    assert len(people_of(database, "bob.j2@example.org")) == 1
    with database.transaction(workspace_id) as db:
        assert db.execute(text("SELECT count(*) FROM members")).scalar() == 2


@pytest.mark.parametrize("address", ["ann.j3@example.org", "ANN.j3@Example.org"])
def test_joining_never_signs_in_as_existing_person(client, database, invite, address):
    ann = new_person(database, "ann.j3@example.org")
    secret = invite(address)
    refused = join(client, secret)
    assert (refused.status_code, session_of(refused)) == (409, None)
    assert "has an account here: sign in with it" in refused.text
    assert is_open(database, secret)
    assert len(people_of(database, address)) == (address == ann.email)

    # Ann, signed in, accepts as herself.
    accepted = new_reader(client, database, ann).post("/invitation", {"token": secret})
    assert accepted.status_code == 303


def test_page_tells_inviter_not_whose_address_has_account(client, database, invite):
    addresses = "ann.j6@example.org", "bob.j6@example.org", "eve.j6@example.org"
    new_person(database, addresses[0])
    with database.transaction() as db:
        people.disable(db, new_person(database, addresses[2]).user_id)
    pages = set()
    for address in addresses:
        secret = invite(address)
        page = open_page(client, secret).text.replace(address, "").replace(secret, "")
        pages.add(re.sub("<time .*?</time>", "", page))  # each invitation has its own time
    assert len(pages) == 1
    assert 'action="/invitation/join"' in pages.pop()


def test_joining_does_not_get_around_provider(client, with_provider, database, invite):
    secret = invite("bob.j4@example.org")
    page = open_page(with_provider, secret)
    assert "/invitation/join" not in page.text
    assert "To accept, sign in first" in page.text
    refused = join(with_provider, secret)
    assert (refused.status_code, session_of(refused)) == (403, None)
    assert people_of(database, "bob.j4@example.org") == []
    reader = PageReader(with_provider, sign_in(database, new_person(database)))
    assert reader.post("/me/sign-in-link").status_code == 403
    assert "New sign-in link" not in reader.get("/me").text
    assert "New sign-in link" in new_reader(client, database).get("/me").text


def test_joining_of_disabled_person_is_refused(client, database, invite):
    assert join(client, invite("bob.j5@example.org")).status_code == 303
    (bob,) = people_of(database, "bob.j5@example.org")
    with database.transaction() as db:
        people.disable(db, bob.person.user_id)
    secret = invite("bob.j5@example.org")
    refused = join(client, secret)
    assert (refused.status_code, session_of(refused)) == (403, None)
    assert len(people_of(database, "bob.j5@example.org")) == 1


def test_disabled_person_does_not_rejoin_by_own_invitation(client, database, database_url):
    """They may have kept the link, with which anybody joins as somebody new."""
    owner = new_person(database)
    secrets = {}
    for place in (new_workspace(database_url).workspace_id for _ in range(2)):
        with database.transaction() as db:
            people.add_member(db, place, owner.user_id, Role.OWNER)
        with database.transaction(place) as db:
            grant = owner_of(place, owner)
            secrets[place] = invitations.invite(db, grant, Role.OWNER)[1]

    with database.transaction() as db:
        people.disable(db, owner.user_id)
    for place, secret in secrets.items():
        assert join(client, secret).status_code == 404
        with database.transaction(place) as db, pytest.raises(Forbidden):
            invitations.invite(db, owner_of(place, owner), Role.OWNER)


def test_joining_without_name_keeps_link_open(client, database, invite):
    for name in (
        "",
        " ",
        "\t\0",
        "x" * (limits.PERSON_NAME_CHARS_MAX + 1),
    ):
        secret = invite()
        refused = join(client, secret, name=name)
        assert (refused.status_code, session_of(refused)) == (422, None), name
        assert 'action="/invitation/join"' in refused.text, name
        assert is_open(database, secret), name


def test_joining_by_link_that_is_none_is_refused(client, database, workspace_id, invite):
    secret = invite()
    with database.transaction(workspace_id) as db:
        db.execute(text("UPDATE invitations SET expires_at = now()"))
    link = new_link(database, new_person(database))
    for token in (secret, link, "", "x", "tbi_" + "0" * 38):
        answer = join(client, token)
        assert (answer.status_code, session_of(answer)) == (404, None)


def test_joining_from_other_site_is_refused(client, database, invite):
    secret = invite()
    for headers in ({"sec_fetch_site": "cross-site"}, {"sec_fetch_mode": "cors"}):
        fields = {"token": secret, **NAME}
        refused = PageReader(client).post("/invitation/join", fields, cookie="other=1", **headers)
        assert (refused.status_code, session_of(refused)) == (403, None)
    assert is_open(database, secret)


def test_joining_while_signed_in_makes_nobody(client, database, invite):
    secret, ann = invite("bob.j6@example.org"), new_reader(client, database)
    answer = ann.post("/invitation/join", {"token": secret, **NAME})
    assert answer.headers["location"] == f"/invitation?token={secret}"
    assert people_of(database, "bob.j6@example.org") == []


def test_person_who_joined_accepts_next_invitation(client, with_provider, database, invite):
    """To the same address, which nobody has confirmed; not where a provider confirms addresses."""
    session = session_of(join(client, invite("bob.j7@example.org", Role.VIEWER)))
    again = {"token": invite("bob.j7@example.org", Role.EDITOR)}
    assert PageReader(with_provider, session).post("/invitation", again).status_code == 403
    other = new_reader(client, database)
    assert other.post("/invitation", again).status_code == 403
    assert PageReader(client, session).post("/invitation", again).status_code == 303


def test_address_of_one_who_joined_is_confirmed_by_id_alone(client, database, invite):
    """Who invited may have made the account, to get what its owner is given later."""
    first = PageReader(client, session_of(join(client, invite("eve.j8@example.org"))))
    with database.transaction() as db:
        with pytest.raises(Conflict, match="--new"):
            people.admit(db, "eve.j8@example.org")
        joined = people.find_named(db, "EVE.j8@example.org")
        assert people.admit(db, joined.user_id) == joined
    assert first.get("/me").headers["location"].startswith("/sign-in")  # signed out
    with database.transaction() as db:
        assert people.admit(db, "eve.j8@example.org") == joined

    join(client, invite("dan.j8@example.org"))
    join(client, invite("dan.j8@example.org"))
    with database.transaction() as db:
        with pytest.raises(Conflict, match="name one by id"):
            people.find_named(db, "dan.j8@example.org")
        new = people.admit(db, "dan.j8@example.org", is_new=True)
    taken = [each.person for each in people_of(database, "dan.j8@example.org")]
    assert len(taken) == 3
    with database.transaction() as db:
        with pytest.raises(Conflict, match="another person's"):
            people.admit(db, next(each.user_id for each in taken if each != new))
        assert people.admit(db, "dan.j8@example.org") == new


def test_own_sign_in_link_signs_in_another_browser_once(client, database):
    reader = new_reader(client, database, ann := new_person(database, name="Ann Own"))

    def new_own_link():
        page = reader.post("/me/sign-in-link").text
        return page.partition("/sign-in/link?token=")[2].partition('"')[0]

    replaced, link = new_own_link(), new_own_link()
    assert PageReader(client).post("/sign-in/link", {"token": replaced}).status_code == 404
    used = PageReader(client).post("/sign-in/link", {"token": link})
    assert (used.status_code, bool(session_of(used))) == (303, True)
    assert PageReader(client).post("/sign-in/link", {"token": link}).status_code == 404

    last = new_own_link()
    reader.post("/me/session/end-others")
    with database.transaction() as db, pytest.raises(NotFound):
        sign_in_links.find_link(db, last)
    assert PageReader(client, session_of(used)).get("/me").status_code == 303
    assert reader.get("/me").status_code == 200
    assert ann.name in reader.get("/me").text


@pytest.mark.parametrize(("sign_up", "address"), [("closed", ""), ("example.net", "a@example.org")])
def test_service_that_is_closed_makes_no_account(settings, invite, sign_up, address):
    named = settings.model_copy(update={"sign_up": sign_up})
    secret = invite(address)
    with TestClient(create_app(named)) as client:
        page = open_page(client, secret)
        assert "makes no account for this invitation" in page.text
        assert "/invitation/join" not in page.text
        assert join(client, secret).status_code == 403
    with TestClient(create_app(settings)) as client:
        assert join(client, secret).status_code == 303


@pytest.mark.own_database
def test_new_accounts_of_a_network_are_limited(client, invite, monkeypatch):
    monkeypatch.setattr(people, "ACCOUNTS_PER_NETWORK_ITEMS_MAX", 2)
    answers = [join(client, invite()) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [303, 303, 409]
    assert "accounts were made from your network" in answers[2].text
