"""Whose share of a worker a request uses: `admission/callers.py` on a real database."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from support.people import (
    cookie_of,
    new_machine_token,
    new_member,
    new_person,
    new_personal_token,
    owner_of,
    sign_in,
)
from support.servers import new_workspace
from tbservice.admission.callers import CallerLookup
from tbservice.auth import invitations, people, secrets, tokens, workspaces
from tbservice.auth.secrets import SecretKind
from tbservice.auth.tables import users
from tbservice.db.database import Database
from tbservice.types.grants import Scope
from tbservice.types.people import Role
from tbservice.types.sign_up import SignUp

ADDRESS = "address 192.0.2.1"
SIGN_IN_PATHS = ["/sign-in", "/sign-in/oidc/x/callback", "/invitation", "/invitation/join"]


@pytest.fixture
def identify(client, database):
    """The caller of a GET of an experiment, with a token, a cookie, or none."""
    lookup = CallerLookup(database)

    def identify(experiment, token=None, cookie=None):
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers += [(b"cookie", cookie_of(cookie)["Cookie"].encode())] if cookie else []
        path = f"/api/v1/experiments/{experiment}/scalars/data"
        scope = {"type": "http", "path": path, "query_string": b"", "headers": headers}
        scope["app"] = client.app
        return asyncio.run(lookup.identify({**scope, "client": ("192.0.2.1", 1)}))

    return identify


def test_caller_with_token_of_unknown_creator_is_workspace(api, owner_token, identify):
    experiment = api.new_experiment(visibility="link")
    caller = identify(experiment, owner_token)
    assert not caller.is_anonymous
    assert not caller.is_reader
    assert caller.line == caller.client == caller.key


def test_people_who_join_are_in_families_of_who_invited(database, database_url, identify):
    first = new_person(database)
    inviter, joined = first, []
    for address in ("second@family.example", "third@family.example"):
        workspace_id = new_workspace(database_url).workspace_id
        with database.transaction() as db:
            people.add_member(db, workspace_id, inviter.user_id, Role.OWNER)
        with database.transaction(workspace_id) as db:
            grant = owner_of(workspace_id, inviter)
            secret = invitations.invite(db, grant, Role.OWNER, address)[1]
        with database.transaction() as db:
            inviter = invitations.join(db, secret, "somebody", SignUp(), is_link_enough=True)[0]
        joined.append(inviter)

    callers = [identify("A" * 22, cookie=sign_in(database, person)) for person in (first, *joined)]
    assert len({caller.key for caller in callers}) == 3
    names = [f"family of {person.user_id}" for person in (first, *joined)]
    assert [caller.families for caller in callers] == [tuple(names[: n + 1]) for n in range(3)]

    with database.transaction() as db:  # an administrator knows the last one
        people.admit(db, inviter.user_id)
    confirmed = identify("A" * 22, cookie=sign_in(database, inviter))
    assert confirmed.families == (f"family of {inviter.user_id}",)


def test_families_stay_whatever_becomes_of_who_invited(database, identify):
    first = new_person(database)
    with database.transaction() as db:
        second = people.create_by_invitation(db, "", "second", first)
        third = people.create_by_invitation(db, "", "third", second)
    cookie = sign_in(database, third)
    before = identify("A" * 22, cookie=cookie).families
    assert len(before) == 3
    with database.transaction() as db:
        people.disable(db, second.user_id)
        # An unconfirmed address is no bridge: at a provider, they are somebody else.
        people.sign_in_identity(db, "https://issuer", "third", "", False, "third")
    assert identify("A" * 22, cookie=sign_in(database, third)).families == before


def test_families_of_long_chain_of_invitations_are_bounded(database):
    person = new_person(database)
    chain = [person.user_id]
    with database.transaction() as db:
        for number in range(2 * users.SPONSORS_ITEMS_MAX):
            person = people.create_by_invitation(db, "", f"invited {number}", person)
            chain.append(person.user_id)
        kept = chain[: users.SPONSORS_ITEMS_MAX]
        assert users.list_sponsors(db, person.user_id) == [*kept, person.user_id]
        assert users.list_sponsors(db, kept[-1]) == kept


def test_invitation_makes_account_before_migration_of_families(servers):
    with servers.database_before("0012") as url, closing(Database(url, 1)) as database:
        inviter = new_person(database)
        with database.transaction() as db:
            person = people.create_by_invitation(db, "", "somebody", inviter)
            assert users.list_sponsors(db, person.user_id) == [person.user_id]


def test_workspaces_of_person_share_what_person_may_use(database, identify):
    person = new_person(database)
    clients = set()
    for name in ("first", "second"):
        with database.transaction() as db:
            workspace_id = workspaces.create_for_person(
                db, person.user_id, name, is_permitted=True
            ).workspace_id
        with database.transaction(workspace_id) as db:
            owner = owner_of(workspace_id, person)
            reading = tokens.create_workspace_token(db, owner, [Scope.READ])[1]
        personal = new_personal_token(database, workspace_id, person, Scope.ADMIN)
        for token in (new_machine_token(database, workspace_id, Scope.APPEND), personal, reading):
            caller = identify("A" * 22, token)
            assert caller.key == caller.line == f"person {person.user_id}"
            assert caller.is_reader == (token is reading)
            clients.add(caller.client)
    session = identify("A" * 22, cookie=sign_in(database, person))
    assert session.key == f"person {person.user_id}"
    assert len(clients) == 4  # in rotation: each workspace and its readers


def test_member_has_share_apart_from_creator(database, workspace_id, owner_token, identify):
    owner, member = (new_member(database, workspace_id) for _ in range(2))
    tokens = [
        new_personal_token(database, workspace_id, each, Scope.READ) for each in (owner, member)
    ]
    keys = {identify("A" * 22, token).key for token in [*tokens, owner_token]}
    assert keys == {
        f"person {owner.user_id}",
        f"person {member.user_id}",
        f"workspace {workspace_id}",
    }


def test_caller_by_link_is_reader_of_its_workspace(api, owner_token, identify):
    experiment = api.new_experiment(visibility="link")
    for _ in range(2):  # looked up, then cached
        caller = identify(experiment)
        assert caller.key == identify(experiment, owner_token).key
        assert caller.is_reader
        assert not caller.is_anonymous
        assert (caller.line, caller.client) == (experiment, ADDRESS)


def test_caller_chooses_no_line_by_id_that_is_not_public(api, identify):
    experiment = api.new_experiment()
    for name in (experiment, "A" * 22, "no id", f"{experiment},{experiment}"):
        caller = identify(name)
        assert caller.is_anonymous
        assert (caller.key, caller.line, caller.client) == (ADDRESS, ADDRESS, ADDRESS)


def test_account_is_known_once_looked_up_until_it_ends(database, workspace_id, owner_token):
    lookup = CallerLookup(database)
    with database.transaction(workspace_id) as db:
        token, ending = tokens.create_owner_token(db, workspace_id, "a test")
    reading = new_machine_token(database, workspace_id, Scope.READ)

    def scope_of(secret):
        headers = [(b"authorization", f"Bearer {secret}".encode())]
        return {"type": "http", "path": "/", "query_string": b"", "headers": headers}

    for secret in (owner_token, ending, reading):
        assert lookup.find_account(scope_of(secret)) is None
        asyncio.run(lookup.identify(scope_of(secret)))
    account = f"workspace {workspace_id}"
    assert lookup.find_account(scope_of(owner_token)).key == account
    assert lookup.find_account(scope_of(ending)).key == account
    assert lookup.find_account(scope_of(reading)) is None  # its readers may be anybody

    with database.transaction(workspace_id) as db:
        tokens.revoke_workspace_token(db, owner_of(workspace_id), token.token_id)
    lookup._known = {known: (caller, 0.0) for known, (caller, _until) in lookup._known.items()}
    asyncio.run(lookup.identify(scope_of(ending)))
    assert lookup.find_account(scope_of(ending)) is None
    assert lookup.find_account(scope_of(owner_token)).key == account


def test_caller_at_sign_in_is_of_another_group(database):
    scope = {"type": "http", "query_string": b"", "headers": [], "client": ("192.0.2.1", 1)}
    lookup = CallerLookup(database)
    groups = {
        path: asyncio.run(lookup.identify({**scope, "path": path})).group
        for path in (*SIGN_IN_PATHS, "/", "/sign-in-now", "/invitations")
    }
    assert groups["/sign-in"] != groups["/"]
    assert {groups[path] for path in SIGN_IN_PATHS} == {groups["/sign-in"]}
    assert groups["/"] == groups["/sign-in-now"] == groups["/invitations"]


def test_caller_with_unknown_token_is_address(api, identify):
    experiment = api.new_experiment(visibility="link")
    assert identify(experiment, secrets.generate_token()).key == ADDRESS
    assert identify(experiment, "malformed").is_reader


def test_caller_with_browser_session_is_its_person(api, owner_token, database, identify):
    experiment = api.new_experiment(visibility="link")
    person = new_person(database)
    cookie = sign_in(database, person)
    for _ in range(2):  # looked up, then cached
        caller = identify(experiment, cookie=cookie)
        assert caller.key == caller.line == caller.client == f"person {person.user_id}"
        assert not caller.is_anonymous
        assert not caller.is_reader
    assert identify(experiment, owner_token, cookie).key.startswith("workspace ")
    unknown = secrets.generate_secret(SecretKind.SESSION)
    assert identify(experiment, cookie=unknown).is_reader
