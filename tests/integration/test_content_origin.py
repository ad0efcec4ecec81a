"""The content origin: what it serves, who gets there from the public one, and when that ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from support.batches import ApiClient, scalars
from support.page_forms import PageReader
from support.people import SESSION_COOKIE, new_member, new_person, sign_in
from support.servers import new_owner
from tbservice.auth import people, sessions
from tbservice.db.database import Database
from tbservice.server.app import create_app
from tbservice.settings import Settings
from tbservice.types.people import Person, Role

CONTENT = "http://localhost:6071"
HERE = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
SCRIPT = {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
FRAME = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}


@pytest.fixture(scope="module")
def two_origins(shared_settings):
    """A client of an application with a content origin."""
    settings = shared_settings.model_copy(update={"content_url": CONTENT})
    with TestClient(create_app(settings)) as client:
        yield client


@pytest.fixture
def client(two_origins):
    two_origins.cookies.clear()
    return two_origins


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", range(3)), name="Shown")


class Browser:
    """A browser: it keeps the cookies of each origin, and the path of each cookie, apart."""

    def __init__(self, client, session=None):
        self.client, self.session, self.content = client, session, {}

    def get(self, address, **headers):
        sent = HERE | {name.replace("_", "-"): value for name, value in headers.items()}
        if address.startswith(CONTENT):
            path = address.removeprefix(CONTENT)
            kept = [value for start, value in self.content.items() if path.startswith(start)]
            cookie = "; ".join(f"tbhub_read={value}" for value in kept)
        else:
            cookie = f"{SESSION_COOKIE}={self.session}" if self.session else ""
        answer = self.client.get(
            address, headers=sent | {"cookie": cookie} if cookie else sent, follow_redirects=False
        )
        if match := re.match(
            r"tbhub_read=([^;]*);.*Path=([^;]*);", answer.headers.get("set-cookie", "")
        ):
            assert address.startswith(CONTENT)
            self.content[match[2]] = match[1]
        return answer

    def open(self, address, **headers):
        """Follow redirects; return all addresses and the last answer."""
        seen = [address]
        while (answer := self.get(seen[-1], **headers)).is_redirect:
            seen.append(str(answer.url.join(answer.headers["location"])))
            assert len(seen) < 6, seen
        return seen, answer


@pytest.fixture
def member(database, workspace_id):
    return new_member(database, workspace_id, Role.VIEWER)


@pytest.fixture
def browser(client, database, member):
    return Browser(client, sign_in(database, member))


def page_of(experiment, origin="http://testserver"):
    return f"{origin}/experiment/{experiment}/"


def test_member_gets_to_content_origin_with_token_of_session(
    browser, experiment, database, workspace_id
):
    seen, answer = browser.open(page_of(experiment) + "?darkMode=true")
    assert answer.status_code == 200
    page = page_of(experiment, CONTENT)
    assert [re.sub(r"tbh_\w+", "TOKEN", address) for address in seen] == [
        page_of(experiment) + "?darkMode=true",
        f"{page}?darkMode=true&token=TOKEN",
        f"{page}?darkMode=true",
    ]
    assert browser.get(f"{page}data/runs", **SCRIPT).json() == ["train"]
    assert browser.get(f"{page}download/scalars.csv").status_code == 200
    with database.transaction(workspace_id) as db:
        made = db.exec_driver_sql(
            "SELECT scopes, experiment_id, user_id IS NOT NULL, browser_session_id IS NOT NULL, "
            "expires_at < now() + interval '13 hours' FROM tokens WHERE is_session"
        ).one()
    assert tuple(made) == (["read"], experiment, True, True, True)
    api = ApiClient(browser.client, re.search(r"tbh_\w+", seen[1])[0])
    assert api.request("PATCH", f"/experiments/{experiment}", json={}).status_code == 403


def test_page_opened_again_has_the_same_token(
    browser, experiment, api, database, workspace_id, member
):
    data = page_of(experiment, CONTENT) + "data/runs"

    def list_rows():
        with database.transaction(workspace_id) as db:
            return db.exec_driver_sql(
                "SELECT token_id, revoked_at IS NOT NULL FROM tokens WHERE is_session"
            ).all()

    addresses = {browser.open(page_of(experiment))[0][1] for _ in range(3)}
    assert (len(addresses), len(list_rows())) == (1, 1)
    another = Browser(browser.client, sign_in(database, member))
    assert another.open(page_of(experiment))[0][1] not in addresses

    for token_id, _ in list_rows():
        api.request("DELETE", f"/experiments/{experiment}/tokens/{token_id}").raise_for_status()
    assert browser.get(data, **SCRIPT).status_code == 401
    assert browser.open(page_of(experiment))[0][1] not in addresses
    assert browser.get(data, **SCRIPT).status_code == 200
    assert sorted(is_revoked for _, is_revoked in list_rows()) == [False, True, True]


def test_bar_on_content_origin_leads_back_to_public_one(browser, experiment, workspace_id):
    _, answer = browser.open(page_of(experiment))
    assert f'href="http://testserver/?workspace={workspace_id}"' in answer.text
    assert f'href="http://testserver/experiment/{experiment}/about"' in answer.text
    _, answer = browser.open(f"http://testserver/compare/a:{experiment},b:{experiment}/")
    assert f'href="http://testserver/?workspace={workspace_id}"' in answer.text


def test_content_address_leads_member_through_public_origin(browser, experiment):
    seen, answer = browser.open(page_of(experiment, CONTENT))
    assert (answer.status_code, seen[1]) == (200, page_of(experiment))


def test_download_from_public_origin_leads_to_file(browser, experiment):
    seen, answer = browser.open(page_of(experiment) + "download/scalars.csv")
    assert (answer.status_code, seen[-1]) == (
        200,
        page_of(experiment, CONTENT) + "download/scalars.csv",
    )
    assert answer.text.startswith("run,tag,step")


@pytest.mark.parametrize("path", ["attempt/1/", "attempt/1/download/scalars.csv"])
def test_attempt_opens_with_token_of_session(browser, experiment, path):
    seen, answer = browser.open(page_of(experiment) + path)
    assert (answer.status_code, seen[-1]) == (200, page_of(experiment, CONTENT) + path)


def test_comparison_opens_with_token_of_each_experiment(browser, experiment, api):
    other = api.new_experiment(scalars("loss", range(3)))
    path = f"/compare/before:{experiment},after:{other}/"
    seen, answer = browser.open(f"http://testserver{path}")
    assert (answer.status_code, seen[-1]) == (200, CONTENT + path)
    assert len(re.findall("token=tbh_", seen[1])) == 2
    runs = browser.get(f"{CONTENT}{path}data/runs", **SCRIPT).json()
    assert runs == ["before/train", "after/train"]


@pytest.mark.parametrize("path", ["experiment/{}", "compare/a:{},b:{}"])
def test_stranger_gets_form_that_says_nothing(client, database, experiment, path):
    for session in (None, sign_in(database, new_person(database)), "tbs_" + "0" * 38):
        for missing in (experiment, "A" * 22):
            address = f"/{path.format(missing, missing)}/"
            for origin in ("http://testserver", CONTENT):
                seen, answer = Browser(client, session).open(f"{origin}{address}")
                assert answer.status_code == 401, seen
                assert seen[-1] == f"{CONTENT}{address}?token="
                assert "Your access has ended" not in answer.text
                assert "does not open" not in answer.text
                assert 'href="http://testserver/sign-in?next=' in answer.text


def test_share_link_and_visibility_link_work_as_before(client, experiment, api, browser):
    token = api.new_token(experiment, "read")
    for reader in (Browser(client), browser):
        _, answer = reader.open(f"{page_of(experiment)}?token={token}")
        assert (answer.status_code, list(reader.content.values())) == (200, [token])
    api.request("PATCH", f"/experiments/{experiment}", json={"visibility": "link"})
    reader = Browser(client)
    for origin in ("http://testserver", CONTENT):
        assert reader.open(page_of(experiment, origin))[1].status_code == 200
    assert reader.content == {}
    assert reader.get(page_of(experiment, CONTENT) + "data/runs", **SCRIPT).status_code == 200


def test_token_that_is_pasted_opens_page_on_content_origin(client, experiment, owner_token):
    reader = Browser(client)
    answer = client.post(
        page_of(experiment, CONTENT),
        data={"token": owner_token},
        headers=HERE,
        follow_redirects=False,
    )
    assert answer.status_code == 303
    reader.content[f"/experiment/{experiment}/"] = answer.cookies["tbhub_read"]
    assert reader.get(page_of(experiment, CONTENT)).status_code == 200
    assert owner_token not in answer.headers["set-cookie"]


def test_public_origin_serves_nothing_of_experiments(browser, client, experiment, api):
    script = client.get(
        page_of(experiment, CONTENT) + "index.js", headers=api.headers, follow_redirects=False
    ).headers["location"]
    for method, path in (
        ("GET", f"/experiment/{experiment}/data/runs"),
        ("POST", f"/experiment/{experiment}/data/plugin/hparams/experiment"),
        ("HEAD", f"/experiment/{experiment}/"),
        ("GET", f"/experiment/{experiment}"),
        ("GET", f"/compare/a:{experiment},b:{experiment}/data/runs"),
        ("GET", script),
        ("GET", f"/experiment/{experiment}/data/blob/x"),
    ):
        headers = {"cookie": f"{SESSION_COOKIE}={browser.session}"} | api.headers
        answer = client.request(method, path, headers=headers, follow_redirects=False)
        assert answer.headers["location"].startswith(CONTENT + path), path
        assert answer.content == b""
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"


@pytest.mark.parametrize("headers", [SCRIPT, FRAME])
def test_scripts_and_frames_get_no_token(browser, experiment, headers):
    for path in ("", "download/scalars.csv"):
        answer = browser.get(page_of(experiment) + path, **headers)
        assert answer.headers["location"] == f"{page_of(experiment, CONTENT)}{path}?token="


def test_reader_of_link_gets_to_own_page_on_public_origin(client, api, experiment):
    link = api.request("POST", f"/experiments/{experiment}/links", json={}).json()["token"]
    stranger = Browser(client)
    _, answer = stranger.open(f"{page_of(experiment)}?token={link}")
    own_page = f"http://testserver/experiment/{experiment}/about"
    assert f'href="{own_page}?token={link}"' in answer.text
    answer = client.get(f"{own_page}?token={link}", headers=HERE, follow_redirects=False)
    assert answer.headers["location"] == f"/experiment/{experiment}/about"
    assert f"tbhub_read={link}; " in answer.headers["set-cookie"]
    read = {"cookie": f"tbhub_read={link}"}
    assert client.get(own_page, headers=HERE | read, follow_redirects=False).status_code == 200


PUBLIC_PATHS = (
    *("/", "/me", "/sign-in", "/sign-in/link?token=x", "/device", "/invitation?token=x"),
    *("/experiment/{experiment}/about", "/experiment/{experiment}/edit"),
    *("/workspace/{workspace}", "/workspace/new", "/experiment/{experiment}/links/x"),
    *("/api/v1/experiments", "/api/v1/experiments/{experiment}", "/api/v1/docs", "/metrics"),
    *(
        "/api/v0/experiments/{experiment}/data/runs",
        "/static/0/style.css",
        "/data/blob/x",
        "/healthz",
    ),
)


def test_content_origin_has_no_other_address(client, api, browser, experiment, workspace_id):
    headers = HERE | api.headers | {"cookie": f"{SESSION_COOKIE}={browser.session}"}
    for template in PUBLIC_PATHS:
        path = template.format(workspace=workspace_id, experiment=experiment)
        for method in ("GET", "POST"):
            answer = client.request(
                method, f"{CONTENT}{path}", headers=headers, follow_redirects=False
            )
            assert answer.status_code in {404, 405}, path
            assert "set-cookie" not in answer.headers


def test_session_means_nothing_on_content_origin(client, browser, experiment):
    for host in (
        "localhost",
        "localhost:6071",
        "localhost:80",
        "LOCALHOST:6071",
        "user@localhost",
        "localhost.:6071",
    ):
        headers = {"cookie": f"a=b; {SESSION_COOKIE}={browser.session}", "host": host}
        path = f"/experiment/{experiment}/data/runs"
        assert client.get(path, headers=headers).status_code == 401, host
        assert client.get("/me", headers=headers | HERE).status_code == 404, host


@dataclass(frozen=True)
class Opened:
    """A page that a member has opened in a browser."""

    database: Database
    workspace_id: int
    member: Person
    browser: Browser


def end_by_signing_out(opened):
    answer = PageReader(opened.browser.client, opened.browser.session).post("/sign-out")
    assert answer.status_code == 303


def end_by_revoking_session(opened):
    with opened.database.transaction() as db:
        (session,) = sessions.list_sessions(db, opened.member.user_id)
        sessions.revoke_session(db, opened.member.user_id, session.session_id)


def end_by_disabling(opened):
    with opened.database.transaction() as db:
        people.disable(db, opened.member.user_id)


@pytest.mark.parametrize(
    "end",
    [end_by_signing_out, end_by_revoking_session, end_by_disabling],
)
def test_what_was_opened_ends_at_once(
    database, workspace_id, member, browser, experiment, api, end
):
    link = Browser(browser.client)
    link.open(f"{page_of(experiment)}?token={api.new_token(experiment, 'read')}")
    elsewhere = Browser(browser.client, sign_in(database, new_member(database, workspace_id)))
    data = page_of(experiment, CONTENT) + "data/runs"
    for reader in (browser, elsewhere):
        reader.open(page_of(experiment))
    assert browser.get(data, **SCRIPT).status_code == 200
    end(Opened(database, workspace_id, member, browser))
    assert browser.get(data, **SCRIPT).status_code == 401
    assert [reader.get(data, **SCRIPT).status_code for reader in (elsewhere, link)] == [200, 200]


def test_other_tenants_experiment_gives_no_token(browser, database_url):
    stranger = ApiClient(browser.client, new_owner(database_url))
    theirs = stranger.new_experiment()
    stranger.request("PATCH", f"/experiments/{theirs}", json={"visibility": "link"})
    answer = browser.get(page_of(theirs))
    assert answer.headers["location"] == f"{page_of(theirs, CONTENT)}?token="
    assert browser.open(page_of(theirs))[1].status_code == 200
    assert browser.content == {}


def test_forms_may_lead_to_content_origin(browser):
    answer = PageReader(browser.client, browser.session).get("/me")
    assert f"form-action 'self' {CONTENT};" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("content", "public"),
    [
        ("http://content.example.org", "https://example.org"),
        ("https://example.org:8443", "https://example.org"),
        ("https://EXAMPLE.org", "https://example.org"),
        ("http://127.0.0.1:6061", "http://127.0.0.1:6060"),
        ("https://content.example.org/path", "https://example.org"),
        ("https://content.example.org?a=b", "https://example.org"),
        ("https://user@content.example.org", "https://example.org"),
        ("content.example.org", "https://example.org"),
    ],
)
def test_content_url_that_does_not_isolate_is_refused(content, public):
    with pytest.raises(ValidationError, match="content_url"):
        Settings(database_url="x", content_url=content, public_url=public)


def test_content_url_may_be_name_of_this_machine():
    for content, kept in (
        ("https://C.example.org/", "https://c.example.org"),
        (CONTENT, CONTENT),
    ):
        assert Settings(database_url="x", content_url=content).content_url == kept
