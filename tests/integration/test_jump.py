"""Ctrl-K: what is found while one types, and that the script of our own pages alone is answered."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest

from support.batches import scalars, segment, stream
from support.page_forms import new_reader
from support.people import new_member
from support.servers import new_workspace
from tbservice.types.people import Role

HOSTILE = "</script>\u202e\"&' jump"
SCRIPT = {"sec_fetch_mode": "cors", "sec_fetch_dest": "empty"}


class JumpReader:
    """A browser on one of our own pages, whose script asks."""

    def __init__(self, reader, workspace_id):
        self.reader = reader
        self.workspace_id = workspace_id
        self.key = key_of(reader)

    def ask(self, typed, experiment="", **headers):
        query = urlencode(
            {"q": typed, "experiment": experiment, "workspace": str(self.workspace_id)}
        )
        headers = {"x_tbhub_page": self.key, **SCRIPT, **headers}
        return self.reader.get(f"/jump?{query}", **headers)

    def find(self, typed, experiment=""):
        """Return the texts of each group, and check that each place is there."""
        answer = self.ask(typed, experiment)
        assert answer.status_code == 200, answer.text
        groups = {}
        for group in answer.json()["groups"]:
            groups[group["label"]] = [item["text"] for item in group["items"]]
            for item in group["items"]:
                # A view redirects to the state that it names.
                assert self.reader.get(item["href"]).status_code in {200, 303}, item
        del groups["Search"]
        return groups


def key_of(reader):
    return re.search(r'data-key="(\w+)"', reader.get("/me").text)[1]


@pytest.fixture
def jump(client, database, workspace_id):
    reader = new_reader(client, database, new_member(database, workspace_id, Role.EDITOR))
    return JumpReader(reader, workspace_id)


@pytest.fixture
def experiment(api):
    experiment = api.new_experiment(name="Vision model", tags=["visible"])
    points = scalars("loss/vision", range(3)), scalars("a vision", range(3))
    api.write(experiment, segment(stream("sweep/VISION-7"), 0, 9, *points))
    return experiment


def test_jump_finds_names_of_everything(api, jump, experiment, workspace_id):
    other = api.new_experiment(name="about the vision model", description="x")
    api.new_experiment(name="neither", notes="vision")
    list_fields = {"workspace": workspace_id, "list": "q=a", "name": "my vision"}
    jump.reader.post("/experiments/searches", list_fields)
    view = {"name": "vision runs", "page": "runs", "query": "where=run+~+%22vision%22"}
    jump.reader.post(f"/workspace/{workspace_id}/views", view)
    assert jump.find("vis") == {
        "Experiments": ["Vision model", "about the vision model", "neither"],
        "Runs": ["sweep/VISION-7"],
        "Tags of experiments": ["visible"],
        "Saved searches": ["my vision"],
        "Views": ["vision runs"],
    }
    assert jump.find("VISION loss", experiment) == {"Tags of this experiment": ["loss/vision"]}
    assert jump.find("vision", experiment)["Tags of this experiment"] == ["a vision", "loss/vision"]
    assert jump.find(other) == {"Experiments": ["about the vision model"]}
    assert "Workspaces" in jump.find(workspace_name(jump))


def workspace_name(jump):
    page = jump.reader.get("/me").text
    return unescape(re.search(r'href="/\?workspace=\d+" dir="auto">([^<]+)<', page)[1])


@pytest.mark.usefixtures("experiment")
def test_jump_begins_with_two_characters(jump):
    assert jump.ask("v").json() == jump.ask(" v\0").json() == {"groups": []}
    assert jump.ask("vi" * 5_000).status_code == 200


def test_jump_takes_hostile_names(api, jump):
    experiment = api.new_experiment(name=HOSTILE)
    long_name = f"jump {'x' * 9_000}"
    api.write(experiment, segment(stream(HOSTILE), 0, 9, scalars(long_name, range(3))))
    places = jump.find(HOSTILE, experiment)
    assert places["Experiments"] == places["Runs"] == [HOSTILE]
    (tag,) = jump.find("jump", experiment)["Tags of this experiment"]
    assert tag == long_name[:199] + "…"
    for typed in ("%_\\", "[(*", "''\"`", "\u202e\u202e"):
        jump.find(typed, experiment)


@pytest.mark.usefixtures("experiment")
def test_jump_answers_the_script_of_our_pages_alone(client, database, jump):
    answer = jump.ask("vision", sec_fetch_site="same-origin")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    other = key_of(new_reader(client, database, new_member(database, jump.workspace_id)))
    # The same origin is not enough: TensorBoard's page may be there.
    for key in ("", "x", other):
        refused = jump.ask("vision", x_tbhub_page=key, sec_fetch_site="same-origin")
        assert (refused.status_code, "Vision" in refused.text) == (403, False), key
    for site in ("cross-site", "same-site", "none"):
        assert jump.ask("vision", sec_fetch_site=site).status_code == 403
    jump.reader.secret = None
    assert jump.ask("vision").status_code == 401


def test_jump_finds_nothing_of_other_tenants(client, database, database_url, jump, experiment):
    other = new_workspace(database_url).workspace_id
    stranger = JumpReader(new_reader(client, database, new_member(database, other)), other)
    assert stranger.find("vision", experiment) == {}
    assert stranger.find(experiment) == {}
    stranger.workspace_id = jump.workspace_id
    assert stranger.ask("vision").status_code == 404
