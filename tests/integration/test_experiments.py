"""Experiments over HTTP: create, list, rename, describe, delete, and read all that they contain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from support.batches import ApiClient, images, metadata, scalars, segment, stream, texts
from support.servers import new_owner
from support.uploading import wait_until
from tbservice.experiments import lifecycle
from tbservice.experiments.metadata import Metadata
from tbservice.objects.object_store import ObjectStore
from tbservice.types.grants import WorkspaceGrant
from tbwire import tensors, wire_pb2


def test_repeated_creation_makes_one_experiment(api):
    headers = {"Idempotency-Key": "one"}
    ids = {
        api.request("POST", "/experiments", json={}, headers=headers).json()["experiment_id"]
        for _ in range(3)
    }
    assert len(ids) == 1
    assert len(api.experiments()) == 1


def create_named(api, name="sweep", **fields):
    fields = {"name": name, "unique_name": True, **fields}
    return api.request("POST", "/experiments", json=fields)


def test_unique_name_returns_existing_experiment_unchanged(api):
    first = create_named(api, description="a try")
    again = create_named(api, description="other", visibility="link")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    path = f"/experiments/{first.json()['experiment_id']}"
    api.request("PATCH", path, json={"name": "renamed"}).raise_for_status()
    assert create_named(api).status_code == 201
    assert create_named(api, "renamed").json()["experiment_id"] in path
    assert create_named(api, "Sweep").status_code == 201
    api.request("DELETE", path).raise_for_status()
    assert create_named(api, "renamed").status_code == 201


def test_unique_name_that_several_have_is_refused(api):
    for _ in range(2):
        api.new_experiment(name="twice")
    refused = create_named(api, "twice")
    assert (refused.status_code, refused.json()["code"]) == (409, "ambiguous_name")
    assert create_named(api, "").status_code == 422


def test_unique_name_is_of_one_workspace(api, client, settings):
    other = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    mine, theirs = create_named(api), create_named(other)
    assert (mine.status_code, theirs.status_code) == (201, 201)


def test_unique_name_requested_at_once_is_created_once(database, workspace_id, count_waiting):
    grant = WorkspaceGrant(workspace_id)

    def create():
        with database.transaction(workspace_id) as db:
            return lifecycle.get_or_create_experiment(db, grant, Metadata("sweep"))

    with ThreadPoolExecutor(4) as threads:
        with database.transaction(workspace_id) as db:
            first, is_new = lifecycle.get_or_create_experiment(db, grant, Metadata("sweep"))
            others = [threads.submit(create) for _ in range(4)]
            wait_until(lambda: count_waiting() == len(others))
        answers = [other.result(timeout=60) for other in others]
    assert is_new
    assert [(each.experiment_id, is_new) for each, is_new in answers] == [
        (first.experiment_id, False)
    ] * 4


def test_body_that_is_no_json_or_too_large_is_refused(api):
    headers = {"Content-Type": "application/json"}
    answer = api.request("POST", "/experiments", content=b"{", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    answer = api.request("POST", "/experiments", content=b" " * 2_000_000, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_texts_that_no_database_can_keep_are_refused(api):
    experiment = api.new_experiment()
    for path, parameters in (
        ("plugins", {"plugin": "a\0b"}),
        ("scalars", {"run": "a\0b", "plugin": "a\0b"}),
    ):
        answer = api.request("GET", f"/experiments/{experiment}/{path}", params=parameters)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert api.request("DELETE", f"/experiments/{experiment}/tokens/a%00b").status_code == 422
    assert (
        api.request("DELETE", f"/experiments/{experiment}/runs", params={"run": "a\0b"}).status_code
        == 404
    )
    lone = b'{"run": ["\\ud800"]}'
    headers = {"Content-Type": "application/json"}
    answer = api.request(
        "POST", f"/experiments/{experiment}/scalars/data", content=lone, headers=headers
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


def test_runs_plugins_and_series_are_listed(api):
    experiment = api.new_experiment()
    first = segment(stream("b"), 0, 9, scalars("loss", [0, 7]), texts("note", [3], [b"t"]))
    first.run_start_time = 5.5
    api.write(experiment, first, segment(stream("a"), 0, 9, images("cat", [2], [[b"x", b"y"]])))
    assert {run["run"]: run["start_time"] for run in api.get(experiment, "runs")["runs"]} == {
        "b": 5.5,
        "a": None,
    }
    assert api.get(experiment, "plugins") == {"plugins": ["images", "scalars", "text"]}
    assert api.get(experiment, "plugins", plugin="text")["b"]["note"]["data_class"] == "tensor"
    assert api.get(experiment, "plugins", plugin="none") == {}
    loss = api.get(experiment, "scalars")["b"]["loss"]
    assert (loss["count"], loss["max_step"], loss["last_value"]) == (2, 7, 7 / 3)
    assert loss["summary_metadata"]["plugin"] == "scalars"
    assert api.get(experiment, "blob_sequences")["a"]["cat"]["max_length"] == 2
    assert api.get(experiment, "scalars", plugin="text") == {}
    assert api.get(experiment, "scalars", run="a") == {}
    assert list(api.get(experiment, "scalars", tag=["loss", "x"], run="b")) == ["b"]


def test_tensors_of_every_type_are_read_back(api):
    experiment = api.new_experiment()
    sent = []
    for dtype, name in tensors.NAMES.items():
        if dtype == tensors.STRING:
            data, shape = tensors.pack_strings([b"a", b"", "é".encode()]), [3]
        else:
            data, shape = (
                np.array([[0, 1], [1, 0]]).astype(tensors.numpy_dtype(dtype)).tobytes(),
                [2, 2],
            )
        points = wire_pb2.TensorPoints(
            steps=bytes(8),
            wall_times=bytes(8),
            tensors=[wire_pb2.Tensor(dtype=dtype, shape=shape, data=data)],
        )
        sent.append(wire_pb2.Series(tag=name, summary_metadata=metadata("x", 2), tensors=points))
    sent.append(texts("binary", [0], [b"\xff"]))
    api.write(experiment, segment(stream(), 0, 9, *sent))
    read = api.get(experiment, "tensors/data")["train"]
    assert read["string"]["values"][0]["data"] == ["a", "", "é"]
    assert read["binary"]["values"][0] == {
        "dtype": "string",
        "shape": [1],
        "data": ["/w=="],
        "encoding": "base64",
    }
    assert read["float16"]["values"][0] == {
        "dtype": "float16",
        "shape": [2, 2],
        "data": [0, 1, 1, 0],
    }
    assert read["complex64"]["values"][0]["data"] == [[0, 0], [1, 0], [1, 0], [0, 0]]
    assert read["bool"]["values"][0]["data"] == [False, True, True, False]
    assert set(read) == {*tensors.NAMES.values(), "binary"}


def test_blob_is_served_with_type_length_etag_and_ranges(api):
    experiment = api.new_experiment()
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
    api.write(experiment, segment(stream(), 0, 9, images("cat", [0], [[png, b"", b"<script>"]])))
    keys = [
        blob["key"]
        for blob in api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"][0]
    ]

    def get(key, path="/blobs", **headers):
        return api.request(
            "GET",
            f"{path}/{key}",
            headers={name.replace("_", "-"): v for name, v in headers.items()},
        )

    whole = get(keys[0])
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (
        200,
        png,
        "image/png",
    )
    assert whole.headers["content-length"] == str(len(png))
    assert api.client.get(f"/data/blob/{keys[0]}", headers=api.headers).content == png
    assert get(keys[1]).content == b""
    assert get(keys[2]).headers["content-type"] == "application/octet-stream"
    assert get(keys[0], If_None_Match=whole.headers["etag"]).status_code == 304
    ranges = (
        ("bytes=0-0", 0, 1),
        ("bytes=5-", 5, 208),
        ("bytes=-8", 200, 208),
        ("bytes=9-999", 9, 208),
    )
    for asked, start, end in ranges:
        part = get(keys[0], Range=asked)
        assert (part.status_code, part.content) == (206, png[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/208"
    assert get(keys[0], Range="bytes=208-").status_code == 416
    assert get(keys[0], Range="bytes=0-5", If_Range='"another"').status_code == 200
    elsewhere = keys[0].replace(".0.0.", ".0.9."), f"{experiment}.99.0.0.{'0' * 16}"
    for key in ("nonsense", "a.b.c.d.e", keys[0] + "0", *elsewhere):
        assert get(key).status_code == 404


def test_blob_copy_is_revalidated_until_revoked(api, monkeypatch):
    experiment = api.new_experiment(images("cat", [0], [[b"meow"]]))
    key = api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"][0][0]["key"]
    reader = ApiClient(api.client, api.new_token(experiment, "read"))
    first = reader.request("GET", f"/blobs/{key}")
    assert (first.headers["Cache-Control"], first.headers["Vary"]) == (
        "private, no-cache",
        "Authorization, Cookie",
    )
    monkeypatch.setattr(
        ObjectStore, "read", None
    )  # the object store is not asked for what the client has
    copy = {"If-None-Match": first.headers["ETag"]}
    again = reader.request("GET", f"/blobs/{key}", headers=copy)
    assert (again.status_code, again.content, again.headers["Cache-Control"]) == (
        304,
        b"",
        "private, no-cache",
    )
    (token,) = [
        each for each in api.get(experiment, "tokens")["tokens"] if each["scopes"] == ["read"]
    ]
    api.request("DELETE", f"/experiments/{experiment}/tokens/{token['id']}").raise_for_status()
    assert reader.request("GET", f"/blobs/{key}", headers=copy).status_code == 401


def test_empty_blob_has_no_range(api):
    experiment = api.new_experiment(images("none", [0], [[b""]]))
    key = api.get(experiment, "blob_sequences/data")["train"]["none"]["values"][0][0]["key"]
    for asked in ("bytes=0-", "bytes=0-0", "bytes=5-", "bytes=-5"):
        answer = api.request("GET", f"/blobs/{key}", headers={"Range": asked})
        assert (answer.status_code, answer.content, answer.headers["Content-Length"]) == (
            200,
            b"",
            "0",
        )


def test_blob_replaced_at_step_gets_another_key(api):
    experiment = api.new_experiment()

    def key_after(file_name, content, wall_time):
        api.write(
            experiment,
            segment(
                stream(file_name=file_name), 0, 9, images("cat", [0], [[content]], [wall_time])
            ),
        )
        return api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"][0][0]["key"]

    old, new = key_after("a", b"old", 1), key_after("b", b"new", 2)
    assert api.request("GET", f"/blobs/{old}").status_code == 404
    assert api.request("GET", f"/blobs/{new}").content == b"new"


def test_health_routes_report_running_and_ready(client):
    assert client.get("/healthz").status_code == 204
    assert client.get("/readyz").status_code == 200
    assert client.get("/nothing").json() == {"code": "not_found", "detail": "Not Found"}
    assert client.put("/healthz").json()["code"] == "method_not_allowed"
