"""Parts of pages, without a server: checks of forms, texts, escaping."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request

from tbservice import limits
from tbservice.errors import Forbidden, Invalid, TooManyRequests
from tbservice.pages.base import csrf, errors, static_files
from tbservice.pages.base.forms import FormFields
from tbservice.pages.base.frame import render, set_person_session
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.templates import (
    clip,
    format_browser,
    format_bytes,
    format_figure,
    format_moment,
    format_number,
)
from tbservice.pages.experiments.plotting import format_ticks
from tbservice.pages.people.workspace_runs import show_value
from tbservice.pages.sign_in.next_page import safe_next
from tbservice.settings import Settings
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Membership, Person, Role

HOSTILE = '"><img src=x onerror=alert(1)><script>alert(1)</script>{{ 7 * 7 }}'
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
PUBLIC = "https://tbhub.example.org"


APPLICATION = Starlette()
APPLICATION.state.settings = Settings(database_url="postgresql://unused/unused", public_url=PUBLIC)


def make_request(path="/", **headers):
    sent = {"accept": "text/html", "host": "tbhub.example.org", **headers}
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()
        ],
        "server": ("tbhub.example.org", 443),
        "scheme": "https",
        "root_path": "",
        "app": APPLICATION,
    }
    return Request(scope)


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": PUBLIC}, False),
        ({"origin": PUBLIC}, True),
        ({"origin": "http://inner:6060"}, True),
        ({"origin": "https://tbhub.example.org.evil.example"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": ""}, False),
        ({}, True),
    ],
)
def test_form_of_other_origin_is_refused(headers, is_own):
    sent = Headers({"host": "inner:6060", **headers})
    if is_own:
        csrf.check_origin(sent, PUBLIC)
    else:
        with pytest.raises(Forbidden):
            csrf.check_origin(sent, PUBLIC)


def test_csrf_token_is_bound_to_its_session():
    token = csrf.csrf_token("tbs_one")
    csrf.check_token("tbs_one", token)
    assert token in csrf.csrf_field("tbs_one")
    for sent in ("", "x", token[:-1], token.upper(), csrf.csrf_token("tbs_two"), "é" * 64):
        with pytest.raises(Forbidden):
            csrf.check_token("tbs_one", sent)


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        ("/me", "/me"),
        ("/?workspace=1&q=a%20b#x", "/?workspace=1&q=a%20b#x"),
        ("/compare/a:1,b:2/", "/compare/a:1,b:2/"),
        *[
            (hostile, "/")
            for hostile in (
                "",
                "me",
                "//evil.example",
                "///evil.example",
                "/\\evil.example",
                "\\\\evil.example",
                "/\t/evil.example",
                "\t//evil.example",
                "/\n/evil.example",
                " //evil.example",
                "https://evil.example/",
                "https:evil.example",
                "javascript:alert(1)",
                "/x\r\nSet-Cookie: a=b",
                "/é",
                "/\0",
                "/" + "x" * 5_000,
                "/sign-in?next=/sign-in",
                "/sign-out",
            )
        ],
    ],
)
def test_next_page_is_path_of_this_service(sent, path):
    assert safe_next(sent) == path


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (44, "just now"),
        (-1, "in a moment"),
        (50, "a minute ago"),
        (120, "2 minutes ago"),
        (3600, "1 hour ago"),
        (-86400 * 6, "in 6 days"),
        (-86400 * 6.9999, "in 7 days"),
        (-86400 * 0.9999, "in 1 day"),
        (86400 * 800, "2 years ago"),
    ],
)
def test_moment_is_told_by_its_distance(seconds, text):
    shown = format_moment(NOW - timedelta(seconds=seconds), NOW)
    assert shown.endswith(f">{text}</time>")
    assert 'datetime="20' in shown


def test_numbers_and_texts_are_short():
    assert [format_bytes(size) for size in (0, 1023, 1024, 1_600_000, 12 << 30, 9 << 50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "12 GiB",
        "9,216 TiB",
    ]
    assert format_number(1234567) == "1,234,567"
    figures = (0.123456, 12345.0, 999999.5, 1234567.0, -50000.0, float("nan"), None)
    assert [format_figure(each) for each in figures] == [
        *("0.1235", "12345", "1e+06", "1.235e+06", "-50000", "nan", ""),
    ]
    assert show_value("seed", 12345678.0) == "12345678"
    assert show_value("duration", 5.607531) == "5.60753 s"
    assert format_ticks([0.0, 0.5]) == ["0", "0.5"]
    assert format_ticks([0.99991, 0.999911]) == ["0.99991", "0.999911"]
    assert (clip("abc", 3), clip("abcd", 3), len(clip("x" * 10_000, 100))) == ("abc", "ab…", 100)
    assert [clip(name, 9) for name in ("", "  ", "\u202e\u200b\n", " a")] == ["", "", "", " a"]


def test_form_fields_are_checked():
    fields = FormFields({"days": ["30"], "scope": ["read", "append"], "role": ["admin"]})
    assert (fields.text("days"), fields.text("absent", "x")) == ("30", "x")
    assert fields.texts("scope") == ["read", "append"]
    ahead = fields.expiry("days") - datetime.now(UTC)
    assert timedelta(days=29) < ahead < timedelta(days=31)
    assert fields.expiry("absent") is None
    with pytest.raises(Invalid):
        fields.choice("role", {"owner", "viewer"})
    for days in ("0", "-1", "1.5", "٣", str(limits.EXPIRY_DAYS_MAX + 1), "9" * 5_000, "x"):
        with pytest.raises(Invalid):
            FormFields({"days": [days]}).expiry("days")


def test_page_escapes_names_and_forbids_what_it_does_not_need():
    request = make_request()
    reader = Person(UserId("u"), HOSTILE, HOSTILE)
    membership = Membership(WorkspaceId(1), HOSTILE, Role.VIEWER)
    set_person_session(request, PersonSession(reader, "id", "tbs_secret", (membership,)))
    response = render(request, "error.html", heading=HOSTILE, detail=HOSTILE, advice="", number=422)
    page = response.body.decode()
    assert "<img" not in page
    assert page.count("<script") == page.count('<script src="/static/') == 3
    assert "{{ 7 * 7 }}" in page
    assert "tbs_secret" not in page
    policy = response.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["referrer-policy"] == "same-origin"


def test_errors_are_pages_for_browsers_alone():
    assert errors.wants_page(make_request("/workspace/1"))
    assert not errors.wants_page(make_request("/api/v1/experiments"))
    assert not errors.wants_page(make_request("/workspace/1", accept="*/*"))
    response = errors.show_error(
        make_request("/x"), 503, "the database is away", {"Retry-After": "2"}
    )
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert "The database is away." in response.body.decode()
    quota = errors.show_error(make_request("/x"), 507, "the workspace may store 10 points")
    assert "A quota is used up" in quota.body.decode()


def test_static_files_are_named_by_their_content():
    addresses = {name: static_files.static_url(name) for name in static_files._FILES}
    assert {"style.css", "site.js", "icon.svg"} <= set(addresses)
    assert len(set(addresses.values())) == len(addresses)


def test_refusal_of_admission_is_page_for_browsers_alone():
    error = TooManyRequests("too many requests of this caller are queued")
    shown = errors.refuse(make_request("/me").scope, error)
    assert (shown.status_code, shown.headers["retry-after"]) == (429, "2")
    assert "Wait a few seconds" in shown.body.decode()
    answer = errors.refuse(make_request("/me", accept="*/*").scope, error)
    assert (answer.status_code, json.loads(answer.body)["code"]) == (429, "too_many_requests")


@pytest.mark.parametrize(
    ("user_agent", "text"),
    [
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Firefox on Linux",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/18.0 Safari/605.1.15",
            "Safari on macOS",
        ),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/156.0 Safari/537.36 Edg/156.0", "Edge on Windows"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/156.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.5", "curl/8.5"),
        ("", "Unknown browser"),
    ],
)
def test_browser_is_told_by_its_user_agent(user_agent, text):
    assert format_browser(user_agent) == text
