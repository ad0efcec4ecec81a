"""Signing in at an OpenID provider, from the button to the session, with the certified provider."""

import hashlib
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from support import servers as support
from support.openid import openid_provider, path_and_query
from tbservice.auth import invitations, people
from tbservice.auth.tables import members, sign_in_attempts
from tbservice.db.database import set_local
from tbservice.server.app import create_app
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.people import Role

SESSION = "tbhub_session"
ATTEMPT = "tbhub_sign_in"
FORM = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def providers():
    with openid_provider("local") as first, openid_provider("other") as second:
        yield {"local": first, "other": second}


@pytest.fixture(scope="module")
def workspaces(shared_settings):
    """Two workspaces, which the rules of the first provider open."""
    url = shared_settings.database_url.get_secret_value()
    return [support.new_workspace(url).workspace_id for _ in range(2)]


@pytest.fixture(scope="module")
def application_with_providers(shared_settings, providers, workspaces):
    rules = [
        {"workspace": workspaces[0], "role": "viewer", "email_domain": "elsewhere.example"},
        {"workspace": workspaces[0], "role": "editor", "claim": "groups", "value": "ml"},
        {"workspace": workspaces[1], "role": "editor", "email_domain": "example.org"},
        {"workspace": 2**40, "role": "owner", "claim": "groups", "value": "ml"},
    ]
    oidc = [
        {**providers["local"].settings, "members": rules},
        {**providers["other"].settings, "name": "Other ID"},
    ]
    settings = type(shared_settings).model_validate(
        {**shared_settings.model_dump(), "oidc_providers": oidc}
    )
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def client(application_with_providers):
    application_with_providers.cookies.clear()
    return application_with_providers


def begin(client, provider="local", next_path="/me"):
    answer = client.post(
        f"/sign-in/oidc/{provider}", data={"next": next_path}, headers=FORM, follow_redirects=False
    )
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def come_back(client, address):
    return client.get(path_and_query(address), follow_redirects=False)


def sign_in(client, providers, login, **options):
    return come_back(client, providers["local"].sign_in(begin(client, **options), login))


def count_attempts(database):
    with database.transaction() as db:
        # Nobody sees the attempts of others: expire them first.
        return db.exec_driver_sql("SELECT count(*) FROM sign_in_attempts").scalar_one()


def memberships(database, email):
    with database.transaction() as db:
        person = people.find_named(db, email)
        workspaces = people.list_memberships(db, person.user_id)
    return person, {item.workspace_id: item.role for item in workspaces}


def test_sign_in_at_provider_opens_a_session(client, providers, database, workspaces):
    answer = sign_in(client, providers, "alice")
    assert (answer.status_code, answer.headers["location"]) == (303, "/me")
    assert client.cookies[SESSION].startswith("tbs_")
    assert ATTEMPT not in client.cookies
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith(SESSION))
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    person, roles = memberships(database, "alice@EXAMPLE.org")
    assert person.name == "Alice Adams"
    assert roles == {workspaces[1]: Role.EDITOR}


def test_rules_give_the_highest_role_and_never_lower_one(client, providers, database, workspaces):
    sign_in(client, providers, "carol")
    person, roles = memberships(database, "carol@elsewhere.example")
    assert roles == {workspaces[0]: Role.EDITOR}  # the workspace that does not exist is left out

    with database.transaction(WorkspaceId(workspaces[0])) as db:
        members.put(db, workspaces[0], person.user_id, Role.OWNER)
    sign_in(client, providers, "carol")
    assert memberships(database, "carol@elsewhere.example")[1] == {workspaces[0]: Role.OWNER}


def test_person_without_any_claims_signs_in(client, providers):
    assert sign_in(client, providers, "nobody").status_code == 303
    assert client.get("/me", headers={"Accept": "text/html"}).status_code == 200


def test_sign_in_leads_to_no_other_site(client, providers):
    """More addresses: test_sign_in_pages.py."""
    answer = sign_in(client, providers, "alice", next_path="//evil.example")
    assert answer.headers["location"] == "/"


def test_redirect_signs_in_once(client, providers):
    back = providers["local"].sign_in(begin(client), "alice")
    cookies = dict(client.cookies)
    assert come_back(client, back).status_code == 303
    client.cookies.clear()
    client.cookies.update(cookies)
    answer = come_back(client, back)
    assert answer.status_code == 403
    assert "sign in again" in answer.text
    assert SESSION not in client.cookies


def test_redirect_of_another_browser_signs_nobody_in(client, providers):
    """The attacker begins, and makes a victim's browser open what comes back."""
    back = providers["local"].sign_in(begin(client), "mallory")
    client.cookies.clear()
    assert come_back(client, back).status_code == 403
    begin(client)  # the victim has a sign-in of its own
    assert come_back(client, back).status_code == 403
    assert SESSION not in client.cookies


def test_redirect_with_forged_parameters_is_refused(client, providers):
    def forged(**changes):
        back = providers["local"].sign_in(begin(client), "alice")
        query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
        query = {name: value for name, value in {**query, **changes}.items() if value is not None}
        path = urlsplit(back).path
        return client.get(path, params=query, follow_redirects=False)

    assert forged().status_code == 303
    assert forged(state="another").status_code == 403
    assert forged(state=None).status_code == 403
    assert forged(code="another").status_code == 403
    assert forged(code=None).status_code == 400
    assert forged(iss="https://evil.example").status_code == 403
    assert forged(iss=None).status_code == 403
    assert forged(code="x" * 5_000).status_code == 422
    address = "/sign-in/oidc/local/callback?state=%FF%00&code=%00"
    assert client.get(address, follow_redirects=False).status_code == 403


def test_code_of_one_provider_is_no_use_at_another(client, providers):
    back = providers["local"].sign_in(begin(client), "alice")
    address = back.replace("/local/", "/other/")
    assert come_back(client, address).status_code == 403


def test_person_who_cancels_at_the_provider_reads_so(client):
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    issuer = urlsplit(begin(client))
    state = parse_qs(issuer.query)["state"][0]
    answer = client.get(
        "/sign-in/oidc/local/callback",
        params={
            "state": state,
            "error": "access_denied",
            "iss": f"{issuer.scheme}://{issuer.netloc}",
        },
    )
    assert answer.status_code == 403
    assert "cancelled at Example ID" in answer.text


def test_sign_in_begun_by_another_site_is_refused(client):
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
    ):
        answer = client.post("/sign-in/oidc/local", data={"next": "/"}, headers=headers)
        assert answer.status_code == 403
    assert client.post("/sign-in/oidc/unknown", data={"next": "/"}, headers=FORM).status_code == 404


def test_provider_that_is_down_is_told_in_words(shared_settings):
    with openid_provider("gone") as provider:
        oidc = [provider.settings]
    settings = type(shared_settings).model_validate(
        {**shared_settings.model_dump(), "oidc_providers": oidc}
    )
    with TestClient(create_app(settings)) as client:
        answer = client.post(
            "/sign-in/oidc/gone", data={"next": "/"}, headers={**FORM, "Accept": "text/html"}
        )
        assert answer.status_code == 503
        assert "Example ID does not answer" in answer.text
        assert "<html" in answer.text
        assert client.get("/healthz").status_code == 204


def test_disabled_person_does_not_get_in(client, providers, database):
    sign_in(client, providers, "carol")
    person = memberships(database, "carol@elsewhere.example")[0]
    with database.transaction() as db:
        people.disable(db, person.user_id)
    client.cookies.clear()
    answer = sign_in(client, providers, "carol")
    assert answer.status_code == 403
    assert "disabled" in answer.text
    with database.transaction() as db:
        people.enable(db, person.user_id)


def test_secrets_of_attempts_are_stored_as_digests(client, database):
    address = begin(client)
    state = parse_qs(urlsplit(address).query)["state"][0]
    digest = hashlib.sha256(state.encode()).hexdigest()
    with database.transaction() as db:
        set_local(db, "secret_digest", digest)
        row = db.exec_driver_sql("SELECT * FROM sign_in_attempts").one()
    assert state not in str(row)
    assert client.cookies[ATTEMPT] not in str(row)
    assert count_attempts(database) == 0  # row-level security: without the state there is none


def test_sign_ins_that_wait_are_bounded(client, providers, database, monkeypatch):
    address = begin(client)
    with database.transaction() as db:
        waiting, total = sign_in_attempts.count_waiting(db, "testclient")
    module = "tbservice.auth.oidc.sign_in.SIGN_INS_WAITING"
    for limit, count, whose in (
        ("_PER_NETWORK_ITEMS_MAX", waiting, "from your network"),
        ("_ITEMS_MAX", total, "on this server"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}{limit}", count)
            refused = client.post("/sign-in/oidc/local", data={"next": ""}, headers=FORM)
        assert refused.status_code == 409
        assert f"{count} sign-ins {whose}" in refused.text
    # Who waits already is not kept out.
    answer = come_back(client, providers["local"].sign_in(address, "alice"))
    assert (answer.status_code, answer.headers["location"]) == (303, "/me")


@pytest.mark.own_database
def test_service_by_invitation_admits_who_comes_from_one(
    shared_settings, providers, database_url, settings
):
    oidc = [providers["local"].settings]
    named = {**settings.model_dump(), "oidc_providers": oidc, "sign_up": "invitation"}
    workspace = support.new_workspace(database_url)
    with TestClient(create_app(type(shared_settings).model_validate(named))) as client:
        api = client.app.state.database
        with api.transaction() as db:
            owner = people.find_or_create_by_email(db, "owner@example.org")
        with api.transaction(workspace.workspace_id) as db:
            members.put(db, workspace.workspace_id, owner.user_id, Role.OWNER)
            grant = OwnerGrant(workspace.workspace_id, user_id=owner.user_id)
            secrets = {
                address: invitations.invite(db, grant, Role.VIEWER, address)[1]
                for address in ("", "other@example.org")
            }
        for path in ("/me", f"/invitation?token={secrets['other@example.org']}"):
            refused = sign_in(client, providers, "alice", next_path=path)
            assert (refused.status_code, "makes no account" in refused.text) == (403, True)
            client.cookies.clear()
        admitted = sign_in(client, providers, "alice", next_path=f"/invitation?token={secrets['']}")
        assert admitted.status_code == 303
        client.cookies.clear()
        assert sign_in(client, providers, "alice").status_code == 303
