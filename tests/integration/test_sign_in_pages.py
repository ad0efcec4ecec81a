"""Pages to sign in and out: one-time links, cookies, redirects, and forms that other sites send."""

from __future__ import annotations

from sqlalchemy import text
from starlette.testclient import TestClient

from support.page_forms import PageReader, new_link, new_reader, session_of
from support.people import new_person, sign_in
from tbservice.auth import people
from tbservice.db.database import set_local
from tbservice.pages.base.csrf import csrf_token
from tbservice.pages.base.forms import FORM_BYTES_MAX
from tbservice.server.app import create_app


def test_link_signs_in_once_and_looking_at_it_uses_nothing(client, database):
    reader = PageReader(client)
    ann = new_person(database, name="Ann <b>Example</b>")
    token = new_link(database, ann)
    for _ in range(3):  # scanners of e-mail open links
        shown = reader.get(f"/sign-in/link?token={token}")
        assert (shown.status_code, session_of(shown)) == (200, None)
        assert "Ann &lt;b&gt;Example&lt;/b&gt;" in shown.text
        assert "data-submit-now" not in shown.text
        assert shown.headers["cache-control"] == "no-store"
    fields = {"token": token, "next": "/me"}
    used = reader.post("/sign-in/link", fields)
    assert (used.status_code, used.headers["location"]) == (303, "/me")
    assert "HttpOnly" in used.headers["set-cookie"]
    assert "SameSite=lax" in used.headers["set-cookie"]
    assert "Path=/;" in used.headers["set-cookie"]
    assert token not in used.text
    signed_in = PageReader(client, session_of(used))
    assert signed_in.get("/sign-in").status_code == 303
    for again in (reader.post("/sign-in/link", fields), reader.get(f"/sign-in/link?token={token}")):
        assert (again.status_code, session_of(again)) == (404, None)
        assert "does not work any more" in again.text


def test_dead_links_look_the_same(client, database):
    ann = new_person(database)
    expired, of_disabled = new_link(database, ann), new_link(database, new_person(database))
    with database.transaction() as db:
        set_local(db, "user_id", ann.user_id)
        db.execute(text("UPDATE sign_in_links SET expires_at = now()"))
    bob = new_person(database)
    of_disabled = new_link(database, bob)
    with database.transaction() as db:
        people.disable(db, bob.user_id)
    pages = {
        PageReader(client).get(f"/sign-in/link?token={token}").text
        for token in (expired, of_disabled, "", "x", "tbl_" + "0" * 38, "é", "x" * 5_000)
    }
    assert len(pages) == 1
    answer = PageReader(client).post("/sign-in/link", {"token": expired})
    assert (answer.status_code, session_of(answer)) == (404, None)


def test_link_is_sent_at_once_on_this_machine_alone(client, database):
    ann = new_person(database)
    address = f"/sign-in/link?token={new_link(database, ann)}"
    opened = {"host": "127.0.0.1:6060", "sec_fetch_site": "none"}
    assert "data-submit-now" in PageReader(client).get(address, **opened).text
    signed_in = new_reader(client, database, new_person(database))
    for reader, headers in (
        (PageReader(client), opened | {"sec_fetch_site": "cross-site"}),
        (PageReader(client), opened | {"host": "tbhub.example.org"}),
        (PageReader(client), opened | {"host": "127.0.0.1.example.org"}),
        (signed_in, opened),
    ):
        assert "data-submit-now" not in reader.get(address, **headers).text


def test_new_sign_in_ends_session_of_browser_before(client, database):
    before = new_reader(client, database)
    used = before.post("/sign-in/link", {"token": new_link(database, new_person(database))})
    assert used.status_code == 303
    assert session_of(used) not in {None, before.secret}
    assert before.get("/me").headers["location"].startswith("/sign-in")


def test_sign_out_ends_session_on_server(client, database):
    reader = new_reader(client, database)
    assert reader.post("/sign-out", csrf=False).status_code == 403
    assert reader.get("/sign-out").headers["location"] == "/"
    assert reader.get("/sign-in").status_code == 303
    left = reader.post("/sign-out")
    assert (left.status_code, left.headers["location"]) == (303, "/")
    assert 'tbhub_session=""' in left.headers["set-cookie"]
    assert reader.get("/sign-in").status_code == 200
    assert reader.post("/sign-out").headers["location"] == "/sign-in"


def test_page_of_person_leads_through_sign_in_and_back(client, database):
    for path, target in (
        ("/me", "/sign-in?next=%2Fme"),
        ("/me?a=b&c=%2Fd", "/sign-in?next=%2Fme%3Fa%3Db%26c%3D%252Fd"),
    ):
        answer = PageReader(client).get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, target), path
        signed_in = new_reader(client, database)
        assert signed_in.get(target).headers["location"] == path, path


def test_sign_in_never_leads_to_other_site(client, database):
    for hostile in (
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
        "/\t/evil.example",
        "x",
    ):
        ann = new_person(database)
        shown = PageReader(client).client.get("/sign-in", params={"next": hostile})
        assert "evil" not in shown.text, hostile
        signed_in = new_reader(client, database, ann)
        address = client.build_request("GET", "/sign-in", params={"next": hostile}).url.raw_path
        assert signed_in.get(address.decode()).headers["location"] == "/", hostile
        fields = {"token": new_link(database, ann), "next": hostile}
        assert PageReader(client).post("/sign-in/link", fields).headers["location"] == "/", hostile


def test_form_of_other_site_signs_nobody_in_or_out(client, database):
    ann = new_person(database)
    token, reader = new_link(database, ann), new_reader(client, database, ann)
    for headers in (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "", "origin": "https://evil.example"},
    ):
        refused = PageReader(client).post("/sign-in/link", {"token": token}, **headers)
        assert (refused.status_code, session_of(refused)) == (403, None)
        assert "You may not do this" in refused.text
        assert reader.post("/sign-out", **headers).status_code == 403
    assert reader.get("/sign-in").status_code == 303
    assert PageReader(client).post("/sign-in/link", {"token": token}).status_code == 303


def test_form_needs_csrf_token_of_its_own_session(client, database):
    reader = new_reader(client, database)
    for forged in (False, "", "x", "0" * 64, csrf_token("tbs_" + "0" * 38), "é"):
        assert reader.post("/sign-out", csrf=forged).status_code == 403
    other = new_reader(client, database)
    assert reader.post("/sign-out", csrf=csrf_token(other.secret)).status_code == 403
    assert reader.get("/sign-in").status_code == 303


def test_body_that_is_no_form_is_refused(client, database):
    reader = new_reader(client, database)
    for content, media_type, status in (
        (b"csrf=x", "application/json", 400),
        (b"csrf=x", "text/plain", 400),
        (b"\xff=%ff", "application/x-www-form-urlencoded", 400),
        (b"a=%ff", "application/x-www-form-urlencoded", 400),
        (b"&".join([b"a=1"] * 2_000), "application/x-www-form-urlencoded", 400),
        (b"a=" + b"x" * FORM_BYTES_MAX, "application/x-www-form-urlencoded", 413),
        (b"", "application/x-www-form-urlencoded", 403),
    ):
        answer = client.post(
            "/sign-out", content=content, headers=reader.headers(content_type=media_type)
        )
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")


def test_cookie_over_https_is_bound_to_host(settings, database):
    secure = settings.model_copy(update={"public_url": "https://tbhub.example.org"})
    with TestClient(create_app(secure)) as client:
        ann = new_person(database)
        used = PageReader(client).post("/sign-in/link", {"token": new_link(database, ann)})
        cookie = used.headers["set-cookie"]
        assert cookie.startswith("__Host-tbhub_session=tbs_")
        assert "Secure" in cookie
        assert "Path=/;" in cookie
        assert "Domain" not in cookie
        planted = PageReader(client, sign_in(database, ann))  # a cookie without the prefix
        assert planted.get("/me").status_code == 303
