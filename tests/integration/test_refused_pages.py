"""Errors are pages for browsers, and JSON for programs, wherever they arise."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from support.page_forms import HTML, PageReader, new_reader
from support.people import SESSION_COOKIE
from tbservice.auth.secrets import SecretKind, generate_secret
from tbservice.local.embedded.ports import LOOPBACK, choose_ports
from tbservice.server.app import create_app


def is_page(answer):
    return answer.headers["content-type"].startswith("text/html") and "<h1" in answer.text


def test_unknown_address_is_page_for_browsers_alone(client):
    for path in ("/nothing", "/workspace/1/nothing", "/static/0/x", "/experiment"):
        shown = client.get(path, headers=HTML)
        assert (shown.status_code, is_page(shown)) == (404, True), path
        answer = client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


def test_error_of_api_stays_json_in_browser(client):
    answer = client.get("/api/v1/experiments", headers=HTML)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def test_error_page_says_nothing_of_what_was_asked(client):
    shown = client.get("/<script>alert(1)</script>?x=<b>", headers=HTML)
    assert "<script>alert" not in shown.text
    assert "<b>" not in shown.text
    assert "nosniff" in shown.headers["x-content-type-options"]
    assert "default-src 'none'" in shown.headers["content-security-policy"]


def test_method_that_page_does_not_have_is_page(client, database):
    answer = new_reader(client, database).post("/me")
    assert (answer.status_code, is_page(answer), answer.headers["allow"]) == (
        405,
        True,
        "GET, HEAD",
    )


def test_page_without_database_asks_for_moment(settings):
    port = choose_ports(["nobody"], {})["nobody"]
    url = f"postgresql://nobody:nothing@{LOOPBACK}:{port}/nothing"
    application = create_app(
        settings.model_copy(update={"database_url": type(settings.database_url)(url)})
    )
    application.state.is_prepared = True  # it went away after the start
    with TestClient(application) as client:
        shown = PageReader(client, generate_secret(SecretKind.SESSION)).get("/me")
        assert (shown.status_code, is_page(shown)) == (503, True)
        assert shown.headers["retry-after"].isdigit()
        assert "One moment" in shown.text
        assert client.get("/", headers=HTML).status_code == 200  # nobody is signed in


@pytest.mark.own_database
def test_failure_of_server_is_page_with_its_id(settings, database, rename_table):
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        reader = new_reader(client, database)
        rename_table("members", "gone")
        shown = reader.get("/me")
        assert (shown.status_code, is_page(shown)) == (500, True)
        assert re.search(r"error id [0-9a-f]+", shown.text)
        assert "nosniff" in shown.headers["x-content-type-options"]
        assert "gone" not in shown.text
        assert SESSION_COOKIE not in shown.text


def test_static_files_are_cached_by_their_digest(client):
    page = client.get("/", headers=HTML).text
    for path in set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page)):
        got = client.get(path)
        assert got.status_code == 200
        assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
        plain = client.get(path, headers={"accept-encoding": "identity"})
        assert plain.content == got.content
        other = client.get(re.sub(r"/static/\w+/", "/static/0000/", path))
        has_version = path.endswith(".woff2")  # in its name
        control = got.headers["cache-control"] if has_version else "no-cache"
        assert (other.status_code, other.headers["cache-control"]) == (200, control)
    for path in ("/static/0/../frame.py", "/static/0/..%2fframe.py", "/static/0/base.html"):
        assert client.get(path).status_code == 404


def test_icon_is_where_browsers_look_for_it(client):
    answer = client.get("/favicon.ico")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml")
    assert answer.text.startswith("<svg")
    shown = client.get("/nothing", headers=HTML)
    (icon,) = re.findall(r'<link rel="icon" [^>]*href="([^"]+)"', shown.text)
    assert client.get(icon).text == answer.text
