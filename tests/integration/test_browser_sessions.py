"""Browser sessions of people: opened, found, rotated and ended; and what they grant."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from support.batches import ApiClient
from support.people import cookie_of, new_member, new_person, new_session, sign_in
from support.servers import new_workspace
from tbservice import limits
from tbservice.auth import grants, people, secrets, sessions, sign_in_links
from tbservice.auth.secrets import SecretKind
from tbservice.db.database import set_local
from tbservice.errors import Forbidden, NotFound, Unauthenticated
from tbservice.types.grants import Scope
from tbservice.types.people import Role

OTHER_SECRETS = (None, "", "nonsense", secrets.generate_token())
UNKNOWN = secrets.generate_secret(SecretKind.SESSION)


@pytest.fixture
def person(database):
    return new_person(database)


@pytest.fixture
def secret(database, person):
    return sign_in(database, person)


def find(database, secret):
    with database.transaction() as db:
        return sessions.find_session(db, secret)


def change(database, person, assignments):
    with database.transaction() as db:
        set_local(db, "user_id", person.user_id)
        changed = db.execute(text(f"UPDATE browser_sessions SET {assignments}"))  # noqa: S608 - a test's own
        assert changed.rowcount == 1


def test_session_has_its_person_and_browser(database, person, secret):
    session = find(database, secret)
    assert (session.person, session.address) == (person, "192.0.2.7")
    assert session.user_agent == "a test's browser"
    assert (session.expires_at - session.created_at).days == 30
    assert session.session_id not in secret


def test_session_secret_is_kept_as_hash(database, person, secret):
    with database.transaction() as db:
        set_local(db, "user_id", person.user_id)
        stored = str(db.execute(text("SELECT * FROM browser_sessions")).all())
    assert person.user_id in stored
    assert secret not in stored


def test_session_is_found_by_its_secret_alone(database, secret):
    for other in (*OTHER_SECRETS, UNKNOWN):
        assert find(database, other) is None, other
        assert find(database, secret[:-1] + ("0" if secret[-1] != "0" else "1")) is None, other


def test_session_ends_after_its_absolute_time(database, person, secret):
    change(database, person, "expires_at = now() - interval '1 second'")
    assert find(database, secret) is None


def test_session_ends_after_it_was_idle(database, person, secret):
    idle = limits.PERSON_SESSION_IDLE_SECONDS_MAX
    change(database, person, f"last_used_at = now() - interval '{idle - 60} seconds'")
    assert find(database, secret) is not None
    change(database, person, f"last_used_at = now() - interval '{idle + 1} seconds'")
    assert find(database, secret) is None


def test_session_use_is_recorded_once_a_minute(database, person, secret, experiment):
    used_at = find(database, secret).last_used_at
    assert find(database, secret).last_used_at == used_at
    for use in (find, lambda *_: refused(database, experiment, secret)):
        change(database, person, "last_used_at = now() - interval '61 seconds'")
        use(database, secret)
        assert find(database, secret).last_used_at > used_at


def refused(database, experiment, secret):
    with database.without_transaction() as db, pytest.raises(NotFound):
        grants.grant_read(db, experiment, secret)


def test_session_of_disabled_person_ends_at_once(database, person, secret):
    with database.transaction() as db:
        people.disable(db, person.user_id)
    assert find(database, secret) is None
    with database.transaction() as db, pytest.raises(Forbidden):
        sessions.open_session(db, person.user_id, "", "")
    with database.transaction() as db:
        people.enable(db, person.user_id)
    assert find(database, secret) is None  # what a disabled person had does not come back
    assert find(database, sign_in(database, person)) is not None


def test_session_needs_person_who_is_not_disabled(database, person, secret, experiment):
    """Also if session and link were left, as by an administrator's own statement."""
    with database.transaction() as db:
        link = sign_in_links.create_link(db, person.user_id)
        statement = text("UPDATE users SET is_disabled = true WHERE user_id = :id")
        db.execute(statement, {"id": person.user_id})
    assert find(database, secret) is None
    with database.without_transaction() as db, pytest.raises(Unauthenticated):
        grants.grant_read(db, experiment, secret)
    with database.transaction() as db, pytest.raises(NotFound):
        sign_in_links.use_link(db, link)


def test_session_closed_or_revoked_is_gone(database, person, secret):
    other, third = sign_in(database, person), sign_in(database, person)
    with database.transaction() as db:
        sessions.close_session(db, secret)
        sessions.close_session(db, secret)
        sessions.close_session(db, None)
    assert find(database, secret) is None
    with database.transaction() as db:
        listed = sessions.list_sessions(db, person.user_id)
    assert {session.session_id for session in listed} == {
        find(database, each).session_id for each in (other, third)
    }

    stranger = new_person(database)
    kept = find(database, other).session_id
    with database.transaction() as db, pytest.raises(NotFound):
        sessions.revoke_session(db, stranger.user_id, kept)
    with database.transaction() as db:
        assert sessions.revoke_other_sessions(db, stranger.user_id, "x") == 0
        assert sessions.revoke_other_sessions(db, person.user_id, kept) == 1
    assert find(database, third) is None
    with database.transaction() as db:
        sessions.revoke_session(db, person.user_id, kept)
    assert find(database, other) is None


def test_sessions_of_person_are_bounded(database, person, secret, monkeypatch):
    monkeypatch.setattr("tbservice.auth.sessions.PERSON_SESSIONS_ITEMS_MAX", 3)
    change(database, person, "last_used_at = now() - interval '1 hour'")
    newer = [sign_in(database, person) for _ in range(3)]
    assert find(database, secret) is None
    assert all(find(database, each) for each in newer)


def test_sessions_expired_are_deleted_by_a_sign_in(database, person):
    sign_in(database, person)
    change(database, person, "expires_at = now() - interval '1 second'")
    sign_in(database, new_person(database))
    with database.transaction() as db:
        set_local(db, "user_id", person.user_id)
        assert db.execute(text("SELECT count(*) FROM browser_sessions")).scalar() == 0


def test_sign_in_link_works_once_of_many_at_once(database, person):
    with database.transaction() as db:
        link = sign_in_links.create_link(db, person.user_id)
    with database.transaction() as db:
        assert sign_in_links.find_link(db, link) == person
        assert sign_in_links.find_link(db, link) == person

    def use(_):
        with database.transaction() as db:
            try:
                return sign_in_links.use_link(db, link)
            except NotFound:
                return None

    with ThreadPoolExecutor(8) as threads:
        used = list(threads.map(use, range(24)))
    assert [each for each in used if each] == [person]
    with database.transaction() as db, pytest.raises(NotFound):
        sign_in_links.find_link(db, link)


def test_sign_in_link_ends_with_its_time_and_person(database, person):
    with database.transaction() as db:
        late = sign_in_links.create_link(db, person.user_id, seconds=-1)
        link = sign_in_links.create_link(db, person.user_id)
    for bad in (late, "", "nonsense", UNKNOWN, secrets.generate_secret(SecretKind.SIGN_IN_LINK)):
        for use in (sign_in_links.find_link, sign_in_links.use_link):
            with database.transaction() as db, pytest.raises(NotFound):
                use(db, bad)
    with database.transaction() as db:
        people.disable(db, person.user_id)
    with database.transaction() as db, pytest.raises(NotFound):
        sign_in_links.use_link(db, link)
    with database.transaction() as db, pytest.raises(Forbidden):
        sign_in_links.create_link(db, person.user_id)


SCOPES = {Role.VIEWER: {Scope.READ}, Role.EDITOR: set(Scope), Role.OWNER: set(Scope)}


@pytest.mark.parametrize("role", SCOPES)
def test_session_grants_what_its_role_permits(database, experiment, workspace_id, role):
    person = new_member(database, workspace_id, role)
    secret = sign_in(database, person)
    for scope, grant in (
        (Scope.READ, grants.grant_read),
        (Scope.APPEND, grants.grant_append),
        (Scope.ADMIN, grants.grant_admin),
    ):
        with database.without_transaction() as db:
            if scope in SCOPES[role]:
                granted = grant(db, experiment, secret)
                assert (granted.workspace_id, granted.user_id) == (workspace_id, person.user_id)
                granted = grants.grant_workspace(db, secret, scope, workspace_id)
                assert (granted.workspace_id, granted.user_id) == (workspace_id, person.user_id)
            else:
                with pytest.raises(Forbidden):
                    grant(db, experiment, secret)
                with pytest.raises(Forbidden):
                    grants.grant_workspace(db, secret, scope, workspace_id)
    with database.without_transaction() as db:
        if role is Role.OWNER:
            assert grants.grant_owner(db, secret, workspace_id).user_id == person.user_id
        else:
            with pytest.raises(Forbidden):
                grants.grant_owner(db, secret, workspace_id)


def test_session_of_stranger_finds_nothing(database, database_url, experiment, workspace_id):
    other = new_workspace(database_url).workspace_id
    for secret in (new_session(database, other), sign_in(database, new_person(database))):
        with database.without_transaction() as db:
            for grant in (grants.grant_read, grants.grant_append, grants.grant_admin):
                for name in (experiment, "A" * 22, "nonsense"):
                    with pytest.raises(NotFound):
                        grant(db, name, secret)
            for place in (workspace_id, 2**62, None):
                with pytest.raises(NotFound):
                    grants.grant_workspace(db, secret, Scope.READ, place)
                with pytest.raises(NotFound):
                    grants.grant_owner(db, secret, place)
    for secret in (UNKNOWN, None):
        with database.without_transaction() as db:
            with pytest.raises(Unauthenticated):
                grants.grant_read(db, experiment, secret)
            with pytest.raises(Unauthenticated):
                grants.grant_owner(db, secret, workspace_id)


def test_session_is_no_token_for_api_and_katib(client, database, experiment, workspace_id):
    secret = new_session(database, workspace_id)
    answer = ApiClient(client, secret).request("GET", f"/experiments/{experiment}")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    answer = client.get(f"/api/v1/experiments/{experiment}", headers=cookie_of(secret))
    assert answer.status_code == 401
    with database.without_transaction() as db, pytest.raises(Unauthenticated):
        grants.grant_katib(db, secret)
    with database.without_transaction() as db, pytest.raises(Unauthenticated):
        grants.grant_read_by_token(db, experiment, secret)


def test_identify_tells_person_workspace_and_scopes(database, workspace_id, owner_token):
    person = new_member(database, workspace_id, Role.EDITOR)
    with database.without_transaction() as db:
        machine = grants.identify(db, owner_token)
    assert (machine.user_id, machine.workspace_id) == (None, workspace_id)
    with database.transaction() as db:
        principal = grants.identify(db, sign_in(database, person))
    assert (principal.user_id, principal.workspace_id) == (person.user_id, None)
    assert principal.token_id is None
    with database.transaction() as db:
        (membership,) = people.list_memberships(db, person.user_id)
    assert (membership.workspace_id, membership.role) == (workspace_id, Role.EDITOR)


def test_sessions_are_hidden_from_other_transactions(database, person, workspace_id):
    sign_in(database, person)
    with database.transaction() as db:
        sign_in_links.create_link(db, person.user_id)
    stranger = new_person(database)
    tables = ("browser_sessions", "sign_in_links")
    for user_id, is_seen in (("", False), (stranger.user_id, False), (person.user_id, True)):
        with database.transaction(workspace_id) as db:
            set_local(db, "user_id", user_id)
            for table in tables:
                count = db.execute(text(f"SELECT count(*) FROM {table}")).scalar()  # noqa: S608 - a constant above
                assert (count > 0) == is_seen, (table, user_id)
