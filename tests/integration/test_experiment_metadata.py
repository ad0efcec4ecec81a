"""Tags, notes, properties and origin of experiments over HTTP."""

from __future__ import annotations

import threading

import pytest


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


@pytest.mark.parametrize(
    "body",
    [
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
    ],
    ids=lambda body: str(body)[:40],
)
def test_metadata_over_limits_is_422(api, experiment, body):
    for method, path in (("POST", "/experiments"), ("PATCH", f"/experiments/{experiment}")):
        answer = api.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_properties_set_at_once_are_all_kept(api, experiment):
    path = f"/experiments/{experiment}"

    def set_property(number):
        body = {"properties": {f"key {number}": str(number)}}
        api.request("PATCH", path, json=body).raise_for_status()

    threads = [threading.Thread(target=set_property, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(api.request("GET", path).json()["properties"]) == 8
    for number in range(100):
        answer = api.request("PATCH", path, json={"properties": {f"more {number}": ""}})
    assert answer.status_code == 422  # the limit is that of all of them
