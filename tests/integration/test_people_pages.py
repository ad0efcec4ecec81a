"""Pages of people: account, workspaces, members, invitations, tokens; who may do what in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import text
from starlette.testclient import TestClient

from support.batches import ApiClient, images, scalars
from support.page_forms import PageReader, new_reader
from support.page_routes import SIGN_IN, TABLE
from support.people import new_member, new_session
from support.servers import new_workspace
from support.share_links import make_link
from tbservice.auth import members, operators, people, tokens
from tbservice.server import app as application
from tbservice.server import routes
from tbservice.types.grants import OwnerGrant, Scope
from tbservice.types.people import Role

HOSTILE = '"><script>alert(1)</script>{{ 7 * 7 }}\u202e'
NOBODY, STRANGER, VIEWER, EDITOR, OWNER = "nobody", "stranger", "viewer", "editor", "owner"
OPEN_FORMS = {
    "/experiment/EXPERIMENT/report",
    "/theme",
    "/sign-in/link",
    "/sign-in/oidc/nothing",
    "/invitation/join",
}
NAMES = {
    "ID": "{workspace_id}",
    "EXPERIMENT": "{experiment_id}",
    "1:EXPERIMENT": "{comparison}",
    "runs.csv": "{file}",
    "PERSON": "{user_id}",
    "nothing": "{provider}",
    "uploading": "{name:path}",
    "uploading.md": "{name:path}.md",
    "experiments.png": "{name}",
    "1": "{number}",
    "x": "{view_id}",
}
PUBLIC = {"/static/{digest}/{name}", "/favicon.ico"}


@pytest.fixture
def readers(client, database, workspace_id):
    """A browser of each kind of person, by its name."""
    readers = {NOBODY: PageReader(client), STRANGER: new_reader(client, database)}
    for role in (Role.VIEWER, Role.EDITOR, Role.OWNER):
        readers[role.value] = PageReader(client, new_session(database, workspace_id, role))
    return readers


@pytest.fixture
def ann(database, workspace_id):
    """An owner of the workspace."""
    return new_member(database, workspace_id, Role.OWNER)


@pytest.fixture
def owner(client, database, ann):
    """The browser of that owner."""
    return new_reader(client, database, ann)


@pytest.fixture
def grant(workspace_id, ann):
    return OwnerGrant(workspace_id, user_id=ann.user_id)


@pytest.fixture
def address_of(client, owner_token, workspace_id):
    """Return the address of a path of the table: of the workspace, and of an experiment in it."""
    experiment = ApiClient(client, owner_token).new_experiment()

    def address(path):
        return path.replace("ID", str(workspace_id)).replace("EXPERIMENT", experiment)

    return address


def page_routes():
    """(method, path) of every route of our own pages that takes part in the table."""
    return {
        (method, route.path)
        for module in routes.PAGE_MODULES
        for route in module.router.routes
        if isinstance(route, APIRoute) and route.path not in PUBLIC
        for method in route.methods
    }


def test_page_shows_each_person_what_is_theirs(readers, address_of):
    for path, fields, statuses in TABLE:
        if fields is None:
            check_answers(readers, statuses, lambda reader, path=path: reader.get(address_of(path)))


FORMS = [row for row in TABLE if row[1] is not None]
REFUSED = [row for row in FORMS if min(row[2][1:]) >= 400]
"""Forms that are refused to everybody, so that they change nothing."""


def test_form_of_nothing_says_so_to_each_person(readers, address_of):
    for path, fields, statuses in REFUSED:
        sent = {name: address_of(value) for name, value in fields.items()}
        check_answers(
            readers,
            statuses,
            lambda reader, path=path, sent=sent: reader.post(address_of(path), sent),
        )


@pytest.mark.parametrize(
    ("path", "fields", "statuses"),
    [row for row in FORMS if row not in REFUSED],
    ids=lambda value: str(value)[:50],
)
def test_form_does_for_each_person_what_is_theirs(readers, address_of, path, fields, statuses):
    sent = {name: address_of(value) for name, value in fields.items()}
    check_answers(readers, statuses, lambda reader: reader.post(address_of(path), sent))


def check_answers(readers, statuses, ask):
    """Ask as each person of the table."""
    for reader, status in zip(readers.values(), statuses, strict=True):
        answer = ask(reader)
        assert answer.status_code == status, answer.url
        if status == SIGN_IN and reader.secret is None and answer.url.path != "/theme":
            assert answer.headers["location"].startswith("/sign-in")


def test_every_page_route_is_in_table():
    listed = {
        (
            "GET" if fields is None else "POST",
            "/".join(NAMES.get(part, part) for part in path.partition("?")[0].split("/")),
        )
        for path, fields, _ in TABLE
    }
    assert page_routes() <= listed


def test_every_form_refuses_other_sites_and_forged_tokens(
    client, database, ann, owner, workspace_id, address_of
):
    with database.transaction() as db:
        operators.make_operator(db, ann.user_id)
    for path, fields, _ in TABLE:
        if fields is None or path in OPEN_FORMS:  # these need nobody
            continue
        address = address_of(path)
        assert owner.post(address, fields, csrf=False).status_code == 403, path
        assert owner.post(address, fields, csrf="0" * 64).status_code == 403, path
        foreign = {"sec_fetch_site": "cross-site"}
        assert owner.post(address, fields, **foreign).status_code == 403, path
        answer = client.get(address, headers=owner.headers(), follow_redirects=False)
        assert answer.status_code in {200, 303, 404, 405}
    assert owner.get("/sign-in").status_code == 303  # still signed in
    assert owner.get(f"/workspace/{workspace_id}").status_code == 200


def test_address_of_form_leads_to_its_page(readers, address_of, workspace_id):
    pages = {path.partition("?")[0] for path, fields, _ in TABLE if fields is None}
    for path in {path for path, fields, _ in TABLE if fields is not None} - pages:
        leads = {reader.get(address_of(path)).headers["location"] for reader in readers.values()}
        assert len(leads) == 1, path
        shown = readers[OWNER].get(leads.pop())
        # The token of one was in its form; the view of the other is not there.
        is_dead = path in {"/invitation/join", "/workspace/ID/views/x/share"}
        assert shown.status_code in ({404} if is_dead else {200, SIGN_IN}), path
    nothing = readers[NOBODY].get("/experiment/nothing/token/revoke").headers["location"]
    assert nothing == "/experiment/nothing/access"
    revoke = readers[OWNER].get(f"/workspace/{workspace_id}/token/revoke")
    assert revoke.headers["location"] == f"/workspace/{workspace_id}/tokens"


def test_start_page_shows_workspace_used_last_anywhere(
    client, database, database_url, workspace_id, owner, ann
):
    other = new_workspace(database_url).workspace_id
    with database.transaction(other) as db:
        people.add_member(db, other, ann.user_id, Role.VIEWER)
    assert f'"/workspace/{workspace_id}"' in owner.get("/").text  # the one that she owns
    for used in (other, workspace_id, other):
        owner.get(f"/workspace/{used}")
        elsewhere = new_reader(client, database, ann)
        assert f'"/workspace/{used}"' in elsewhere.get("/").text
    with database.transaction(other) as db:
        members.leave(db, other, ann.user_id)
    assert f'"/workspace/{workspace_id}"' in owner.get("/").text


def test_workspace_that_is_not_there_looks_like_another_tenants(owner, database_url):
    other = new_workspace(database_url).workspace_id
    pages = [owner.get(f"/workspace/{name}") for name in (other, 10**12, 10**30, "x", "٣", "-1")]
    assert {page.status_code for page in pages} == {404}
    assert len({page.text for page in pages}) == 1


def test_account_renames_person_and_ends_sessions(client, database, ann, owner):
    second = new_reader(client, database, ann)
    assert owner.post("/me/name", {"name": HOSTILE}).headers["location"] == "/me?done=renamed"
    shown = owner.get("/me?done=renamed").text
    assert "Your name was changed." in shown
    assert "<script>alert" not in shown
    assert "&lt;script&gt;" in shown
    refused = owner.post("/me/name", {"name": "x" * 201})
    assert (refused.status_code, "at most 200 characters" in refused.text) == (422, True)
    assert f'value="{"x" * 201}"' in refused.text
    assert owner.post("/me/name", {"name": "a\0b"}).status_code == 303  # as a space
    ids = re.findall(r'name="session_id" value="(\w+)"', shown)
    assert len(ids) == 2
    stranger = new_reader(client, database)
    for session_id in ids:
        assert stranger.post("/me/session/end", {"session_id": session_id}).status_code == 404
    assert owner.post("/me/session/end-others").status_code == 303
    assert second.get("/me").headers["location"].startswith("/sign-in")
    assert owner.get("/me").status_code == 200
    (own,) = re.findall(r'name="session_id" value="(\w+)"', owner.get("/me").text)
    assert owner.post("/me/session/end", {"session_id": own}).status_code == 303
    assert owner.get("/me").status_code == 303


def test_personal_token_is_shown_once_and_acts_for_person(client, database, workspace_id, owner):
    fields = {
        "workspace_id": workspace_id,
        "label": HOSTILE,
        "scope": ["read", "append"],
        "expires_days": "7",
    }
    made = owner.post("/me/token/new", fields)
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-store"
    (secret,) = set(re.findall(r"tbh_\w{38}", made.text))
    experiment = ApiClient(client, secret).new_experiment()
    listed = owner.get("/me").text
    assert secret not in listed
    assert "<script>alert" not in listed + made.text
    assert "in 7 days" in listed
    (token_id,) = re.findall(r'name="token_id" value="(\w+)"', listed)
    assert (
        new_reader(client, database).post("/me/token/revoke", {"token_id": token_id}).status_code
        == 404
    )
    assert owner.post("/me/token/revoke", {"token_id": token_id}).status_code == 303
    assert ApiClient(client, secret).request("GET", f"/experiments/{experiment}").status_code == 401
    assert "Revoked" in owner.get("/me").text


def test_api_page_gets_token_of_an_hour_in_the_answer_of_a_form(client, workspace_id, owner):
    assert "checked><span><strong>Read" in owner.get("/me/token/try").text
    assert "data-token" not in owner.get("/api/v1/docs").text
    fields = {"workspace_id": workspace_id, "scope": "read", "label": "x", "expires_days": "365"}
    made = owner.post("/me/token/try", fields)
    (secret,) = re.findall(r'data-token="(tbh_\w{38})"', made.text)
    assert (made.text.count(secret), made.headers["cache-control"]) == (1, "no-store")
    assert "frame-ancestors 'none'" in made.headers["content-security-policy"]
    me = ApiClient(client, secret).request("GET", "/me").json()
    assert (me["token"]["scopes"], me["token"]["label"]) == (["read"], "API page")
    ends_in = datetime.fromisoformat(me["token"]["expires_at"]) - datetime.now(UTC)
    assert timedelta() < ends_in <= timedelta(hours=1)
    (token_id,) = re.findall(r'name="token_id" value="(\w+)"', made.text)
    assert owner.post("/me/token/revoke", {"token_id": token_id}).status_code == 303
    assert ApiClient(client, secret).request("GET", "/me").status_code == 401
    for change in ({"scope": []}, {"workspace_id": "x"}):
        assert owner.post("/me/token/try", {**fields, **change}).status_code in {404, 422}


def test_token_form_says_what_is_wrong_and_keeps_values(owner, workspace_id):
    fields = {
        "workspace_id": workspace_id,
        "label": "kept label",
        "scope": "read",
        "expires_days": "7",
    }
    for change, status in (
        ({"scope": []}, 422),
        ({"scope": "all"}, 422),
        ({"label": "x" * 201}, 422),
        ({"expires_days": "0"}, 422),
        ({"expires_days": "1e3"}, 422),
        ({"expires_days": "9" * 100}, 422),
        ({"workspace_id": ""}, 404),
        ({"workspace_id": "9" * 100}, 404),
    ):
        refused = owner.post("/me/token/new", fields | change)
        assert refused.status_code == status, change
        assert 'role="alert"' in refused.text
        assert "label" in change or 'value="kept label"' in refused.text


def test_tokens_of_workspace_are_in_pages(database, workspace_id, owner, grant):
    with database.transaction(workspace_id) as db:
        for number in range(105):
            tokens.create_workspace_token(db, grant, [Scope.READ], f"token {number:03}")
    page = owner.get(f"/workspace/{workspace_id}/tokens").text
    (after,) = re.findall(r'href="\?after=([^"]+)"', page)
    rest = owner.get(f"/workspace/{workspace_id}/tokens?after={after}").text
    assert "Older tokens" not in rest
    listed = [set(re.findall(r"token \d{3}", each)) for each in (page, rest)]
    assert [len(each) for each in listed] == [100, 5]
    assert not listed[0] & listed[1]
    assert owner.get(f"/workspace/{workspace_id}/tokens?after=x").status_code == 400


def test_owner_changes_roles_but_workspace_keeps_owner(client, database, workspace_id, owner, ann):
    address = f"/workspace/{workspace_id}"
    bob = new_member(database, workspace_id, Role.VIEWER)
    refused = owner.post(f"{address}/member/role", {"user_id": ann.user_id, "role": "viewer"})
    assert (refused.status_code, "needs an owner" in refused.text) == (409, True)
    assert owner.post(f"{address}/member/remove", {"user_id": ann.user_id}).status_code == 409
    assert owner.post("/me/leave", {"workspace_id": workspace_id}).status_code == 409
    assert (
        owner.post(f"{address}/member/role", {"user_id": bob.user_id, "role": "x"}).status_code
        == 422
    )
    changed = owner.post(f"{address}/member/role", {"user_id": bob.user_id, "role": "owner"})
    assert changed.headers["location"] == f"{address}?done=role"
    left = owner.post("/me/leave", {"workspace_id": workspace_id})
    assert left.headers["location"] == "/me?done=left"
    assert owner.get(address).status_code == 404
    bobs = new_reader(client, database, bob)
    assert bobs.get(f"{address}/tokens").status_code == 200
    carol = new_member(database, workspace_id, Role.EDITOR)
    assert bobs.post(f"{address}/member/remove", {"user_id": carol.user_id}).status_code == 303
    assert new_reader(client, database, carol).get(address).status_code == 404


def test_invitation_that_makes_no_sense_is_refused(owner, workspace_id):
    for fields in (
        {"role": "viewer", "email": "not an address"},
        {"role": "admin", "email": ""},
        {"role": "viewer", "email": HOSTILE},
        {"role": "viewer", "expires_days": "365"},
        {"role": "viewer", "email": "x" * 10_000 + "@example.org"},
    ):
        refused = owner.post(f"/workspace/{workspace_id}/invitation", fields)
        assert refused.status_code == 422, fields
        assert 'role="alert"' in refused.text
        assert "<script>alert" not in refused.text


def test_workspace_is_created_and_renamed(owner):
    assert owner.post("/workspace/new", {"name": "  "}).status_code == 422
    assert owner.post("/workspace/new", {"name": "x" * 10_000}).status_code == 422
    created = owner.post("/workspace/new", {"name": HOSTILE})
    address = created.headers["location"].removesuffix("?done=created")
    shown = owner.get(f"{address}?done=created").text
    assert "The workspace was created" in shown
    assert "<script>alert" not in shown
    renamed = owner.post(f"{address}/name", {"name": "Vision"})
    assert renamed.headers["location"] == f"{address}/settings?done=renamed"
    assert "Vision" in owner.get("/me").text
    refused = owner.post(f"{address}/name", {"name": "y" * 10_000})
    assert (refused.status_code, 'role="alert"' in refused.text) == (422, True)


def test_notice_in_address_shows_no_other_text(owner, workspace_id):
    page = owner.get(f"/workspace/{workspace_id}?done=<b>you+won</b>").text
    assert "you won" not in page
    assert 'role="status"' not in page


MANY_PEOPLE = """
    INSERT INTO users (user_id, name, email)
    SELECT CAST(:prefix AS text) || number, repeat('n', 200), 'x@example.org'
    FROM generate_series(1, 500) AS number
"""
MANY_MEMBERS = """
    INSERT INTO members (workspace_id, user_id, role)
    SELECT :workspace_id, user_id, 'viewer' FROM users WHERE starts_with(user_id, :prefix)
"""


def test_workspace_of_500_members_is_one_page(database, workspace_id, owner):
    values = {"workspace_id": workspace_id, "prefix": f"{workspace_id}-"}
    with database.transaction(workspace_id) as db:
        db.execute(text(MANY_PEOPLE), values)
        db.execute(text(MANY_MEMBERS), values)
    page = owner.get(f"/workspace/{workspace_id}")
    assert page.text.count('name="user_id"') == 2 * 501
    assert len(page.content) < 2_000_000


def test_usage_counts_what_workspace_stores(client, workspace_id, owner, owner_token, database_url):
    api = ApiClient(client, owner_token)
    for name, steps in (("Small", 3), (HOSTILE, 9)):
        experiment = api.new_experiment(
            scalars("loss", range(steps)), images("cat", [0], [[b"png"]]), name=name
        )
    make_link(api, experiment, frozen=True)  # copies 10 points in 2 series
    deleted = api.new_experiment(scalars("loss", range(5)))
    api.request("DELETE", f"/experiments/{deleted}").raise_for_status()
    ApiClient(client, new_workspace(database_url).owner_token).new_experiment()
    page = owner.get(f"/workspace/{workspace_id}/usage").text.partition("</main>")[0]
    # A deleted experiment counts until it is erased. Then come requests, counted by seconds.
    assert re.findall(r"<dd>([^<]+)</dd>", page)[:5] == ["3", "29", "0 B", "3 B", "1"]
    assert page.index("&lt;script&gt;") < page.rindex("Small")
    largest = page[page.index('id="largest"') :]
    assert re.findall(r'"number">([0-9]+)</td>', largest) == ["1", "20", "0", "5", "0", "4"]
    assert "(deleted)" in largest
    assert "<script>alert" not in page


def test_person_of_no_workspace_is_told_what_to_do(client, database):
    reader = new_reader(client, database)
    page = reader.get("/me").text
    assert "You are in no workspace yet" in page
    assert 'href="/workspace/new"' in page


def test_only_administrator_creates_workspaces_if_so_set(settings, database):
    closed = settings.model_copy(update={"people_create_workspaces": False})
    with TestClient(application.create_app(closed)) as client:
        reader = new_reader(client, database)
        assert 'href="/workspace/new"' not in reader.get("/me").text
        refused = reader.post("/workspace/new", {"name": "x"})
        assert (refused.status_code, 'role="alert"' in refused.text) == (403, True)
