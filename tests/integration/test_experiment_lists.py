"""Lists of experiments over HTTP: search, filters, orders and pages; and that a search of many rows
takes the other ways that the planner has.
"""

from __future__ import annotations

import base64

import pytest
from sqlalchemy import text

from support.batches import ApiClient, scalars, segment, stream
from support.people import new_member, new_personal_token
from support.servers import new_workspace
from tbservice.experiment_values import ExperimentOrder, UploadStatus
from tbservice.experiments.listing import Search, count_experiments
from tbservice.experiments.tables import search_plan
from tbservice.types.grants import Scope, WorkspaceGrant


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
SORTED = {"SORTED_ROWS_MAX": 1}
WIDE = {"MERGED_WORDS_MAX": 1}


@pytest.fixture(
    params=[FEW, MANY, HASHED, SORTED, WIDE, MANY | WIDE],
    ids=["few", "many", "hashed", "sorted", "wide", "both"],
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


@pytest.fixture
def with_statuses(api, database, workspace_id):
    """Experiments by name with uploads: pairs of a status, and the minutes since it was told."""
    uploads = {
        "new": [("finished", 9)],
        "again": [("finished", 30), ("failed", 20)],
        "alive": [("running", 5), ("failed", 1)],
        "ended late": [("running", 60), ("killed", 30)],
        "silent": [("running", 16)],
        "without": [],
    }
    for name, told in uploads.items():
        id_ = api.new_experiment(name=name, tags=["odd"] if len(name) % 2 else [])
        for number, (status, minutes) in enumerate(told):
            path = f"/experiments/{id_}/uploads/{number:016}"
            api.request("PUT", path, json={"started_at": "2026-01-31T12:00:00Z"}).raise_for_status()
            with database.transaction(workspace_id) as db:
                db.execute(
                    text(
                        "UPDATE uploads SET status = :status,"
                        " seen_at = now() - make_interval(secs => CAST(:minutes AS float8) * 60)"
                        " WHERE experiment_id = :id AND upload_id = :upload"
                    ),
                    {"status": status, "minutes": minutes, "id": id_, "upload": f"{number:016}"},
                )


@pytest.mark.usefixtures("with_statuses", "rows_max")
def test_list_has_statuses(api, names):
    shown = {each["name"]: each["status"] for each in api.experiments()}
    for status in UploadStatus:
        of_status = [name for name, each in shown.items() if each == status]
        for parameters in ({}, {"sort": "name"}, {"sort": "status"}):
            assert sorted(names(1, status=status, **parameters)) == sorted(of_status)
    assert names(1, status=["failed", "running"]) == ["alive", "again"]
    assert names(1, status="failed", q="again", tag="odd") == ["again"]
    assert names(status="failed", q="again", visibility="link") == []
    by_status = ["alive", "silent", "again", "ended late", "new", "without"]
    assert names(1, sort="status") == by_status
    assert names(2, sort="status", reverse=True) == by_status[::-1]
    assert names(1, sort="status", tag="odd") == [name for name in by_status if len(name) % 2]


@pytest.mark.usefixtures("rows_max")
def test_archived_experiments_have_a_list_of_their_own(api, names, made):
    def archive(name, archived=True):
        answer = api.request("PATCH", f"/experiments/{made[name]}", json={"archived": archived})
        assert answer.json()["archived"] is archived
        return answer.json()

    archive("d bert-resnet")
    archive("a resnet18")
    assert names() == ["C bert", "b resnet50"]
    assert names(sort="name") == ["b resnet50", "C bert"]
    assert names(q="resnet", tag="vision") == ["b resnet50"]
    archived = ["d bert-resnet", "a resnet18"]
    for parameters in ({}, {"sort": "status"}, {"q": "resnet"}, {"sort": "name", "reverse": True}):
        assert names(1, archived=True, **parameters) == archived
    assert names(1, archived=True, sort="size", tag="vision") == archived[:1]
    assert names(archived=True, visibility="link") == archived[1:]
    assert names(archived=True, q="bert", tag="baseline") == []
    same = {"name": "a resnet18", "unique_name": True}
    for _ in range(2):  # uploads to it go on
        answer = api.request("POST", "/experiments", json=same)
        assert (answer.status_code, answer.json()["experiment_id"]) == (200, made["a resnet18"])
    api.request("PATCH", f"/experiments/{made['a resnet18']}", json={"name": "renamed"})
    assert names(archived=True, q="renam") == ["renamed"]
    assert api.request("POST", "/experiments", json=same).status_code == 201
    archive("d bert-resnet", archived=False)
    assert names(q="bert") == ["d bert-resnet", "C bert"]


def test_machine_stars_nothing(api):
    answer = api.request("GET", "/experiments", params={"starred": True})
    assert answer.status_code == 422


def test_star_by_token_of_person(client, database, database_url):
    workspace_id = new_workspace(database_url).workspace_id
    ann, bob = (
        ApiClient(client, new_personal_token(database, workspace_id, member, Scope.ADMIN))
        for member in (new_member(database, workspace_id), new_member(database, workspace_id))
    )
    experiment = ann.new_experiment(name="liked")

    def starred(api):
        listed = api.request("GET", "/experiments", params={"starred": True}).json()
        return [each["name"] for each in listed["experiments"]]

    for _ in range(2):
        assert ann.request("PUT", f"/me/stars/{experiment}").status_code == 204
        assert (starred(ann), starred(bob)) == (["liked"], [])
    for _ in range(2):
        assert ann.request("DELETE", f"/me/stars/{experiment}").status_code == 204
        assert starred(ann) == []
    for unknown in ("a" * 22, "%00", "x"):
        assert ann.request("PUT", f"/me/stars/{unknown}").status_code == 404


def test_list_shows_size_and_time_of_data(api, experiment):
    (empty,) = api.experiments()
    assert (empty["points"], empty["bytes"], empty["data_at"]) == (0, 0, None)
    api.write(experiment, segment(stream(), 0, 9, scalars("a", range(9)), scalars("b", [1])))
    api.write(experiment, segment(stream(), 9, 19, scalars("a", [9, 10])))
    (listed,) = api.experiments()
    assert (listed["points"], listed["bytes"]) == (12, 144)
    assert listed["data_at"] > empty["created_at"]
    api.request("DELETE", f"/experiments/{experiment}/series", params={"run": "train", "tag": "a"})
    (listed,) = api.experiments()
    assert (listed["points"], listed["bytes"]) == (1, 12)
    api.request("DELETE", f"/experiments/{experiment}/runs", params={"run": "train"})
    (listed,) = api.experiments()
    assert (listed["points"], listed["bytes"]) == (0, 0)


@pytest.mark.usefixtures("made")
def test_search_finds_nothing_of_other_workspaces(client, database_url):
    other = ApiClient(client, new_workspace(database_url).owner_token)
    for parameters in ({}, {"q": "resnet"}, {"tag": "baseline"}, {"sort": "name", "q": "bert"}):
        answer = other.request("GET", "/experiments", params=parameters)
        assert answer.json() == {"experiments": [], "next": None}


STATUS_TOKEN = base64.b64encode(b'["status", "finished x", "a"]').decode()


@pytest.mark.usefixtures("made")
def test_page_token_of_other_order_is_refused(api):
    token = api.request("GET", "/experiments", params={"limit": 1}).json()["next"]
    for sort in ("size", "name", "updated", "status"):
        answer = api.request("GET", "/experiments", params={"after": token, "sort": sort})
        assert answer.status_code == 400
    for wrong in (
        "W10=",
        "bnVsbA==",
        "WyJzaXplIiwxLDJd",
        "WyJuYW1lIiwiXHUwMDAwIiwiYSJd",
        STATUS_TOKEN,
    ):
        for sort in ExperimentOrder:
            answer = api.request("GET", "/experiments", params={"after": wrong, "sort": sort})
            assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
