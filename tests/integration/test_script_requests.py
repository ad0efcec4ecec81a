"""Pages of people are for windows and forms: not for scripts and frames of the same origin, as which
a script in an upload would ask.
"""

from __future__ import annotations

import pytest

from support.batches import scalars
from support.page_forms import new_link, new_reader, session_of
from support.people import new_member

REQUESTS = [
    {"sec_fetch_mode": mode, "sec_fetch_dest": destination}
    for mode, destination in (
        ("cors", "empty"),
        ("no-cors", "empty"),
        ("same-origin", "empty"),
        ("no-cors", "script"),
        ("no-cors", "image"),
        ("navigate", "iframe"),
        ("navigate", "frame"),
        ("navigate", "embed"),
        ("navigate", "object"),
    )
]
WINDOW = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def test_scripts_and_frames_read_no_page_of_person(browser, workspace_id):
    for headers in REQUESTS:
        for path in (
            "/",
            "/me",
            "/sign-in",
            "/workspace/new",
            f"/workspace/{workspace_id}",
            "/device",
        ):
            answer = browser.get(path, **headers)
            assert answer.status_code == 403, path
            assert "csrf" not in answer.text, headers
            assert browser.get(path, **WINDOW).status_code in {200, 303}, headers


@pytest.mark.parametrize("headers", REQUESTS[::4], ids=lambda headers: "-".join(headers.values()))
def test_scripts_and_frames_send_no_form(client, database, browser, headers):
    assert browser.post("/me/name", {"name": "Eve"}, **headers).status_code == 403
    assert browser.post("/sign-out", **headers).status_code == 403
    fields = {"token": new_link(database, new_member(database, _workspace(browser)))}
    stranger = new_reader(client, database)
    stranger.secret = None
    refused = stranger.post("/sign-in/link", fields, **headers)
    assert (refused.status_code, session_of(refused)) == (403, None)
    assert browser.get("/me", **WINDOW).text.count("Eve") == 0
    assert browser.post("/me/name", {"name": "Eve"}, **WINDOW).status_code == 303


def _workspace(browser):
    listed = browser.get("/me", **WINDOW).text
    return int(listed.partition("?workspace=")[2].partition('"')[0])


def test_data_of_page_are_for_its_script(api, browser):
    experiment = api.new_experiment(scalars("loss", range(3)))
    page = f"/experiment/{experiment}/"
    for path in ("", "data/runs"):
        for headers in (*REQUESTS[:1], WINDOW):
            assert browser.get(page + path, **headers).status_code == 200
