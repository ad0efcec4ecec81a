"""Tags, notes, properties and origin of experiments over HTTP."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from support.servers import new_owner
from support.uploading import wait_until
from tbservice.experiments import lifecycle
from tbservice.experiments.metadata import Metadata
from tbservice.types.grants import AdminGrant


def test_metadata_is_stored_and_changed(api):
    sent = {
        "name": "n",
        "tags": ["b", "A ", "B"],
        "notes": "*so*",
        "properties": {"lr": "0.1", "data": "x"},
        "origin": {"host": "gpu7"},
    }
    made = api.request("POST", "/experiments", json=sent).json()
    path = f"/experiments/{made['experiment_id']}"
    assert made["tags"] == ["A", "b"]
    for name in ("notes", "properties", "origin"):
        assert made[name] == sent[name]
    assert api.request("GET", path).json() == made

    change = {"tags": ["c"], "properties": {"lr": None, "seed": "7"}, "notes": ""}
    changed = api.request("PATCH", path, json=change).json()
    assert (changed["tags"], changed["notes"]) == (["c"], "")
    assert changed["properties"] == {"data": "x", "seed": "7"}
    assert changed["origin"] == sent["origin"]
    assert changed["updated_at"] > made["updated_at"]
    assert api.request("PATCH", path, json={"origin": {}}).json()["origin"] == {}
    assert api.request("PATCH", path, json={}).json()["tags"] == ["c"]


def test_change_is_found_by_new_words_alone(api):
    experiment = api.new_experiment(name="before", tags=["old"], notes="same")
    api.request(
        "PATCH", f"/experiments/{experiment}", json={"name": "after", "tags": ["new"]}
    ).raise_for_status()

    def count(**parameters):
        answer = api.request("GET", "/experiments", params=parameters)
        return len(answer.json()["experiments"])

    assert (count(q="before"), count(tag="old"), count(q="old")) == (0, 0, 0)
    assert (count(q="after"), count(tag="new"), count(q="same")) == (1, 1, 1)


def test_metadata_over_limits_is_422(api, experiment):
    for body in (
        {"name": "x" * 201},
        {"name": "a\0b"},
        {"description": "x" * 100_001},
        {"visibility": "public"},
        {"nom": "x"},
        [],
        {"tags": ["x" * 65]},
        {"tags": ["a,b"]},
        {"tags": [""]},
        {"tags": [str(n) for n in range(51)]},
        {"tags": "abc"},
        {"notes": "x" * 100_001},
        {"notes": "\0"},
        {"properties": {"": "x"}},
        {"properties": {"k" * 65: "x"}},
        {"properties": {"k": "x" * 2_001}},
        {"properties": {"k": "\0"}},
        {"properties": {"k": 1}},
        {"properties": {str(n): "x" for n in range(101)}},
        {"origin": {"command": "x" * 2_001}},
        {"origin": ["x"]},
    ):
        for method, path in (("POST", "/experiments"), ("PATCH", f"/experiments/{experiment}")):
            answer = api.request(method, path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), body


def test_properties_set_at_once_are_all_kept(
    api, experiment, database, workspace_id, count_waiting
):
    path = f"/experiments/{experiment}"
    grant = AdminGrant(workspace_id, experiment)

    def set_other():
        return api.request("PATCH", path, json={"properties": {"b": "2"}})

    with ThreadPoolExecutor(1) as threads:
        with database.transaction(grant) as db:
            lifecycle.update_experiment(db, grant, Metadata(properties={"a": "1"}))
            other = threads.submit(set_other)
            wait_until(count_waiting)
        assert other.result().json()["properties"] == {"a": "1", "b": "2"}


def test_limit_is_of_all_properties(api, experiment):
    for number in range(2):
        more = {f"{number} {key}": "" for key in range(60)}
        answer = api.request("PATCH", f"/experiments/{experiment}", json={"properties": more})
    assert answer.status_code == 422


def test_strangers_learn_no_origin_of_visible_experiment(api, client, database_url):
    origin = {"host": "gpu7", "user": "ann"}
    experiment = api.new_experiment(visibility="link", origin=origin)
    stranger = {"Authorization": f"Bearer {new_owner(database_url)}"}
    for headers, seen in (({}, {}), (stranger, {}), (api.headers, origin)):
        path = f"/api/v1/experiments/{experiment}"
        assert client.get(path, headers=headers).json()["origin"] == seen
        table = client.get(f"{path}/tables/properties?format=csv", headers=headers).text
        assert ("gpu7" in table) == bool(seen)
