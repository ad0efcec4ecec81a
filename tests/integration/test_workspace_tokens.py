"""Tokens for a whole workspace, of machines and of people: what each scope permits, and by whom they
are created, listed and revoked.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.people import new_machine_token, new_member, new_person, new_personal_token, owner_of
from support.servers import new_workspace
from tbservice import limits
from tbservice.auth import grants, tokens
from tbservice.errors import Forbidden, Invalid, NotFound
from tbservice.types.grants import Scope
from tbservice.types.people import Role


@pytest.fixture
def owner(database, workspace_id):
    return new_member(database, workspace_id)


@pytest.fixture
def make(database, client, workspace_id):
    """The API with a machine's token of these scopes."""

    def make(*scopes):
        return ApiClient(client, new_machine_token(database, workspace_id, *map(Scope, scopes)))

    return make


def test_append_token_creates_and_appends_and_reads_nothing(make, api):
    appender = make("append")
    experiment = appender.new_experiment(name="of a machine")
    others = api.new_experiment()
    for target in (experiment, others):
        appender.write(target, segment(stream(), 0, 9, scalars("loss", [1])))
        assert api.get(target, "scalars")["train"]["loss"]["count"] == 1
        for path in ("", "/scalars"):
            assert appender.request("GET", f"/experiments/{target}{path}").status_code == 403
    assert appender.request("GET", "/experiments").status_code == 403
    shared = {"visibility": "link"}
    assert appender.request("POST", "/experiments", json=shared).status_code == 403
    assert make("admin").request("POST", "/experiments", json=shared).status_code == 201
    assert appender.request("PATCH", f"/experiments/{others}", json={}).status_code == 403
    assert appender.request("DELETE", f"/experiments/{others}").status_code == 403


def test_append_token_names_no_blob_of_other_experiments(make, api):
    first, second = api.new_experiment(), api.new_experiment()
    digest = hashlib.sha256(b"blob").hexdigest()
    api.request("PUT", f"/experiments/{first}/blobs/{digest}", content=b"blob").raise_for_status()
    seen = {}
    for scopes in (("append",), ("append", "read"), ("admin",)):
        path = f"/experiments/{second}/blobs/{digest}"
        answer = make(*scopes).request("GET", path, params={"size": 4})
        seen[scopes] = answer.json()["is_stored"]
    assert seen == {("append",): False, ("append", "read"): True, ("admin",): True}


def test_workspace_tokens_are_listed_and_revoked_by_owner(
    database, client, workspace_id, owner, owner_token
):
    api = ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))
    place = f"/workspaces/{workspace_id}/tokens"
    made = api.request("POST", place, json={"scopes": ["read"], "label": "nightly"}).json()
    listed = api.request("GET", place, params={"limit": 1}).json()
    assert [each["id"] for each in listed["tokens"]] == [made["id"]]
    assert made["created_by"]["user_id"] == owner.user_id
    assert not made["is_personal"]
    rest = api.request("GET", place, params={"after": listed["next"]}).json()
    assert [each["is_personal"] for each in rest["tokens"]] == [True, False]
    assert owner_token.startswith(rest["tokens"][1]["prefix"])
    assert rest["tokens"][1]["created_by"] is None
    assert (rest["next"], "token" in listed["tokens"][0]) == (None, False)

    machine = ApiClient(client, made["token"])
    assert machine.request("GET", "/experiments").status_code == 200
    for _ in range(2):
        assert api.request("DELETE", f"{place}/{made['id']}").status_code == 204
    assert machine.request("GET", "/experiments").status_code == 401
    assert api.request("DELETE", f"{place}/none").status_code == 404


def test_workspace_tokens_exclude_those_of_experiments(api, experiment, workspace_id):
    api.new_token(experiment, "read")
    of_experiment = api.get(experiment, "tokens")["tokens"][0]["id"]
    place = f"/workspaces/{workspace_id}/tokens"
    assert len(api.request("GET", place).json()["tokens"]) == 1
    assert api.request("DELETE", f"{place}/{of_experiment}").status_code == 404


def test_personal_token_makes_others_no_longer_than_itself(client, database, workspace_id, owner):
    soon = datetime.now(UTC) + timedelta(hours=1)
    secret = new_personal_token(database, workspace_id, owner, Scope.ADMIN, expires_at=soon)
    api = ApiClient(client, secret)
    new = {"scopes": ["append"], "label": "laptop"}
    made = api.request("POST", "/me/tokens", json=new).json()
    assert datetime.fromisoformat(made["expires_at"]) == soon
    assert (made["is_personal"], made["created_by"]["email"]) == (True, owner.email)
    later = (soon + timedelta(seconds=1)).isoformat()
    answer = api.request("POST", "/me/tokens", json={**new, "expires_at": later})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    appender = ApiClient(client, made["token"])
    for method, path, body in (
        ("GET", "/me/tokens", None),
        ("POST", "/me/tokens", new),
        ("POST", "/workspaces", {"name": "mine"}),
        ("DELETE", f"/me/tokens/{made['id']}", None),
    ):
        assert appender.request(method, path, json=body).status_code == 403


def test_personal_tokens_are_listed_for_their_workspace_alone(
    client, database, database_url, workspace_id, owner
):
    elsewhere = new_workspace(database_url).workspace_id
    there = new_member(database, elsewhere)
    with database.transaction(elsewhere) as db:
        db.execute(text("UPDATE members SET user_id = :id"), {"id": owner.user_id})
    here_secret = new_personal_token(database, workspace_id, owner, Scope.ADMIN)
    there_secret = new_personal_token(database, elsewhere, owner, Scope.ADMIN)
    api = ApiClient(client, here_secret)
    (listed,) = api.request("GET", "/me/tokens").json()["tokens"]
    assert here_secret.startswith(listed["prefix"])
    with database.transaction() as db:
        both = tokens.list_personal_tokens(db, owner.user_id)
    assert [each.workspace_id for each in both] == [elsewhere, workspace_id]
    assert api.request("DELETE", f"/me/tokens/{both[0].token_id}").status_code == 404
    with database.transaction() as db, pytest.raises(NotFound):
        tokens.revoke_personal_token(db, there.user_id, both[0].token_id)
    with database.transaction() as db:
        tokens.revoke_personal_token(db, owner.user_id, both[0].token_id)
    assert ApiClient(client, there_secret).request("GET", "/me").status_code == 401
    assert api.request("GET", "/me").status_code == 200


def test_me_tells_person_workspace_and_token(client, database, workspace_id, owner):
    secret = new_personal_token(database, workspace_id, owner, Scope.READ)
    me = ApiClient(client, secret).request("GET", "/me").json()
    assert me["person"] == {"user_id": owner.user_id, "name": "Ann", "email": owner.email}
    place = {"workspace_id": workspace_id, "name": "a test's workspace", "role": "owner"}
    assert me["workspace"] == place
    token = {name: me["token"][name] for name in ("scopes", "label", "experiment_id")}
    assert token == {"scopes": ["read"], "label": "", "experiment_id": None}


def test_me_tells_nothing_of_people_to_token_of_experiment(
    client, database, workspace_id, owner, experiment
):
    api = ApiClient(client, new_personal_token(database, workspace_id, owner, Scope.ADMIN))
    secret = api.new_token(experiment, "read", label="for Reviewer 2")
    answer = ApiClient(client, secret).request("GET", "/me")
    assert (answer.json()["person"], answer.json()["workspace"]) == (None, None)
    assert answer.json()["token"]["experiment_id"] == experiment
    for hidden in (owner.email, owner.user_id, "Reviewer", 'workspace"}'):
        assert hidden not in answer.text


def test_personal_token_exceeds_no_role(database, workspace_id):
    viewer = new_member(database, workspace_id, Role.VIEWER)
    stranger = new_person(database)
    with database.transaction(workspace_id) as db:
        for scopes in ([Scope.APPEND], [Scope.READ, Scope.ADMIN]):
            for check in (tokens.create_personal_token, tokens.check_personal_token):
                with pytest.raises(Forbidden):
                    check(db, viewer.user_id, workspace_id, scopes)
        tokens.check_personal_token(db, viewer.user_id, workspace_id, [Scope.READ])
        with pytest.raises(NotFound):
            tokens.create_personal_token(db, stranger.user_id, workspace_id, [Scope.READ])
        past = datetime.now(UTC) - timedelta(seconds=60)
        for scopes, label, end in (
            ([], "", None),
            ([Scope.READ], "x" * 201, None),
            ([Scope.READ], "", past),
        ):
            with pytest.raises(Invalid):
                tokens.check_personal_token(db, viewer.user_id, workspace_id, scopes, label, end)


def test_workspace_tokens_ended_long_ago_are_deleted(database, workspace_id, owner):
    secret = new_machine_token(database, workspace_id, Scope.READ)
    with database.transaction(workspace_id) as db:
        old = f"now() - interval '{limits.ENDED_TOKEN_SECONDS_MAX + 60} seconds'"
        db.execute(text(f"UPDATE tokens SET revoked_at = {old} WHERE scopes = '{{read}}'"))  # noqa: S608 - a test's own
        tokens.create_workspace_token(db, owner_of(workspace_id, owner), [Scope.READ])
        digest = grants.parse_token_digest(secret)
        query = text("SELECT count(*) FROM tokens WHERE digest = :digest")
        assert db.execute(query, {"digest": digest}).scalar() == 0
