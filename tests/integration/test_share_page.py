"""The page with the share links of an experiment, without a browser."""

from __future__ import annotations

import html
import re

import pytest

from support.batches import ApiClient, scalars
from support.share_links import list_links, make_link, reader_of, target_of

HOSTILE = '"><script>alert(1)</script>{{ 7 * 7 }}\u202e'


@pytest.fixture
def experiment(api):
    return api.new_experiment(scalars("loss", [1]), name=HOSTILE)


def link_in(page):
    """Return the link that a page shows in its field."""
    return html.unescape(re.search(r'<input id="link" value="([^"]+)" readonly', page.text)[1])


def test_page_makes_links_that_open(client, api, experiment, editor):
    page = editor.post(f"/experiment/{experiment}/links", {"label": "Ann", "expires_days": "30"})
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-store"
    address = link_in(page)
    (link,) = list_links(api, experiment)
    assert (link["label"], link["runs"], link["frozen"]) == ("Ann", None, False)
    assert link["expires_at"] is not None
    token = address.partition("?token=")[2]
    assert ApiClient(client, token).get(experiment, "runs")["runs"]
    shown = editor.get(f"/experiment/{experiment}/links")
    assert token not in shown.text


def test_page_sends_what_link_shows(client, api, experiment, editor):
    fields = {"label": "", "runs": "none", "tags": " loss ", "anonymous": "1", "frozen": "1"}
    page = editor.post(f"/experiment/{experiment}/links", fields)
    (link,) = list_links(api, experiment)
    assert (link["runs"], link["tags"]) == ("none", "loss")
    assert (link["anonymous"], link["frozen"], link["expires_at"]) == (True, True, None)
    made = {"url": link_in(page), "token": link_in(page).partition("?token=")[2]}
    assert reader_of(client, made).get(target_of(made), "runs")["runs"] == []
    listed = editor.get(f"/experiment/{experiment}/links").text
    for word in ("frozen", "anonymous", "slice", "used", "no expiry"):
        assert word in listed


def test_page_says_what_is_wrong_and_keeps_form(api, experiment, editor):
    for fields, text in (
        ({"runs": "("}, "not a valid RE2"),
        ({"label": "x" * 201}, "at most 200 characters"),
        ({"expires_days": "0"}, "days from now"),
        ({"expires_days": "x"}, "number of days"),
        ({"tags": "a\0"}, "none of them NUL"),
    ):
        page = editor.post(f"/experiment/{experiment}/links", {"label": "kept", **fields})
        assert (page.status_code, text in page.text) == (422, True), fields
        assert "label" in fields or 'value="kept"' in page.text, fields
        assert list_links(api, experiment) == [], fields


def test_page_renames_and_revokes(api, experiment, editor):
    link = make_link(api, experiment, label="old")
    base = f"/experiment/{experiment}/links"
    renamed = editor.post(f"{base}/rename", {"link_id": link["id"], "label": HOSTILE})
    assert renamed.headers["location"] == f"{base}?done=link-renamed"
    page = editor.get(renamed.headers["location"]).text
    assert "The link was renamed." in page
    assert "<script>alert" not in page
    assert "49" not in re.sub(r"tbh_\w+|\w{22}", "", page.partition("New label")[2])[:200]
    revoked = editor.post(f"{base}/revoke", {"link_id": link["id"]})
    assert revoked.headers["location"] == f"{base}?done=link-revoked"
    assert list_links(api, experiment)[0]["revoked_at"] is not None
    assert "Revoked" in editor.get(base).text


def test_page_has_older_links(api, experiment, editor, monkeypatch):
    monkeypatch.setattr("tbservice.pages.sharing.share_page._PAGE_ITEMS", 2)
    for number in range(3):
        make_link(api, experiment, label=f"link {number}")
    page = editor.get(f"/experiment/{experiment}/links").text
    assert "link 0" not in page
    older = html.unescape(re.search(r'href="([^"]+\?after=[^"]+)"', page)[1])
    assert "link 0" in editor.get(older).text
