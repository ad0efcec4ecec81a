"""Lists of experiments over HTTP: search, filters, orders and pages; and that a search of many rows
takes the other ways that the planner has.
"""

from __future__ import annotations

import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.servers import new_workspace
from tbservice.experiment_values import ExperimentOrder
from tbservice.experiments.listing import Search, count_experiments
from tbservice.experiments.tables import search_plan
from tbservice.types.grants import WorkspaceGrant


@pytest.fixture
def names(api):
    """Lists the names of the experiments that parameters select, over all pages."""

    def list_names(limit=100, **parameters):
        listed, after = [], None
        while True:
            page = api.request(
                "GET",
                "/experiments",
                params={**parameters, "limit": limit} | ({"after": after} if after else {}),
            )
            assert page.status_code == 200, page.text
            listed += [each["name"] for each in page.json()["experiments"]]
            after = page.json()["next"]
            if after is None:
                return listed

    return list_names


FEW = {}
MANY = {"RARE_ROWS_MAX": 1, "SORTED_ROWS_MAX": 1, "HASHED_ROWS_MAX": 1}
HASHED = {"RARE_ROWS_MAX": 1, "SORTED_ROWS_MAX": 1}
WIDE = {"MERGED_WORDS_MAX": 1}


@pytest.fixture(
    params=[FEW, MANY, HASHED, WIDE, MANY | WIDE], ids=["few", "many", "hashed", "wide", "both"]
)
def rows_max(request, monkeypatch):
    """The limits by which a search is planned: few rows count as many."""
    for name, rows in request.param.items():
        monkeypatch.setattr(search_plan, name, rows)


@pytest.fixture
def made(api):
    texts = {
        "b resnet50": {"description": "a first try", "tags": ["baseline", "Vision"]},
        "a resnet18": {"notes": "# It diverged", "tags": ["baseline"], "visibility": "link"},
        "C bert": {"properties": {"optimizer": "AdamW"}, "tags": ["Text"]},
        "d bert-resnet": {"tags": ["vision", "best"], "notes": "to repeat"},
    }
    return {name: api.new_experiment(name=name, **fields) for name, fields in texts.items()}


@pytest.mark.usefixtures("made", "rows_max")
def test_list_finds_what_matches(names):
    def initials(**parameters):
        return [name[0] for name in names(limit=2, **parameters)]

    assert initials() == list("dCab")
    assert initials(q="res") == initials(q="RESNET") == list("dab")
    assert initials(q="resnet5") == ["b"]
    assert initials(q="bert res") == initials(q="res bert") == ["d"]
    assert initials(q="r") == list("dab")
    assert initials(q="diverged") == initials(q="it") == ["a"]
    assert initials(q="adamw optim") == ["C"]
    assert initials(q="esnet") == initials(q="bert diverged") == initials(q="%") == []
    assert initials(tag="baseline") == list("ab")
    assert initials(tag="VISION") == list("db")
    assert initials(tag=["vision", "best"], q="bert") == ["d"]
    assert initials(tag="base") == []
    assert initials(visibility="link") == ["a"]
    assert initials(visibility="private", q="resnet") == list("db")
    assert initials(created_by="nobody") == []


@pytest.mark.usefixtures("made", "rows_max")
def test_count_is_length_of_list_up_to_maximum(names, database, workspace_id):
    grant = WorkspaceGrant(workspace_id)
    with database.snapshot(grant) as db:
        for words in ("", "res", "resnet", "bert res", "%"):
            for order in ExperimentOrder:
                search = Search(words, order=order)
                length = len(names(q=words))
                assert count_experiments(db, grant, search, 100) == length
                assert count_experiments(db, grant, search, 2) == min(length, 2)


@pytest.mark.usefixtures("rows_max")
def test_list_has_orders(api, names, made):
    for number, name in enumerate(("C bert", "a resnet18", "b resnet50")):
        api.write(made[name], segment(stream(), 0, 9, scalars("loss", range(10 ** (3 - number)))))
    by_size = ["C bert", "a resnet18", "b resnet50", "d bert-resnet"]
    assert names(2, sort="size") == by_size
    assert names(2, sort="size", reverse=True) == by_size[::-1]
    assert names(2, sort="updated") == [*by_size[2::-1], "d bert-resnet"]
    assert names(2, sort="updated", reverse=True) == by_size
    assert names(2, sort="updated", q="resnet", reverse=True) == by_size[1:]
    assert names(2, sort="name") == sorted(made, key=str.casefold)
    assert names(2, sort="name", reverse=True) == sorted(made, key=str.casefold)[::-1]
    assert names(2, reverse=True) == list(made)
    assert names(2, sort="size", q="res") == [name for name in by_size if "res" in name]
    assert names(2, sort="name", tag="vision", q="bert") == ["d bert-resnet"]


def test_list_shows_size_and_time_of_data(api, experiment):
    (empty,) = api.request("GET", "/experiments").json()["experiments"]
    assert (empty["points"], empty["bytes"], empty["data_at"]) == (0, 0, None)
    api.write(experiment, segment(stream(), 0, 9, scalars("a", range(9)), scalars("b", [1])))
    api.write(experiment, segment(stream(), 9, 19, scalars("a", [9, 10])))
    (listed,) = api.request("GET", "/experiments").json()["experiments"]
    assert (listed["points"], listed["bytes"]) == (12, 144)
    assert listed["data_at"] > empty["created_at"]
    api.request("DELETE", f"/experiments/{experiment}/series", params={"run": "train", "tag": "a"})
    (listed,) = api.request("GET", "/experiments").json()["experiments"]
    assert (listed["points"], listed["bytes"]) == (1, 12)
    api.request("DELETE", f"/experiments/{experiment}/runs", params={"run": "train"})
    (listed,) = api.request("GET", "/experiments").json()["experiments"]
    assert (listed["points"], listed["bytes"]) == (0, 0)


@pytest.mark.usefixtures("made")
def test_search_finds_nothing_of_other_workspaces(client, database_url):
    other = ApiClient(client, new_workspace(database_url).owner_token)
    for parameters in ({}, {"q": "resnet"}, {"tag": "baseline"}, {"sort": "name", "q": "bert"}):
        answer = other.request("GET", "/experiments", params=parameters)
        assert answer.json() == {"experiments": [], "next": None}


@pytest.mark.usefixtures("made")
def test_page_token_of_other_order_is_refused(api):
    token = api.request("GET", "/experiments", params={"limit": 1}).json()["next"]
    for sort in ("size", "name", "updated"):
        answer = api.request("GET", "/experiments", params={"after": token, "sort": sort})
        assert answer.status_code == 400
    for wrong in ("W10=", "bnVsbA==", "WyJzaXplIiwxLDJd", "WyJuYW1lIiwiXHUwMDAwIiwiYSJd"):
        for sort in ("size", "name", "created", "updated"):
            answer = api.request("GET", "/experiments", params={"after": wrong, "sort": sort})
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
