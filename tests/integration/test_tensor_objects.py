"""Tensors whose bytes are objects in S3: every answer equals that for the same tensor in its row;
wrong references are refused.
"""

from __future__ import annotations

import hashlib
from contextlib import closing

import numpy as np
import pytest
from tensorboard.plugins.mesh import plugin_data_pb2

from support.batches import ApiClient, metadata, segment, stream
from support.servers import new_owner, s3_client
from tbservice import limits
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs as stored_blobs
from tbwire import frames, tensors, wire_pb2

FLOAT, STRING = 1, 7

ROWS = np.array([[0, 1, 3], [1, 2, 5], [2, 4, 1]], "<f4")
HISTOGRAM = wire_pb2.Tensor(dtype=FLOAT, shape=ROWS.shape, data=ROWS.tobytes())
MESH = wire_pb2.Tensor(dtype=FLOAT, shape=[1, 2, 3], data=np.arange(6, dtype="<f4").tobytes())
TEXT = wire_pb2.Tensor(
    dtype=STRING, shape=[2], data=tensors.pack_strings([b"a text", "zwölf".encode()])
)
LEGACY = wire_pb2.Tensor(
    dtype=FLOAT, shape=ROWS.shape, data=ROWS.tobytes(), histogram={"num": 9.0, "bucket": [1.0]}
)

MESH_CONTENT = plugin_data_pb2.MeshPluginData(
    version=0,
    name="cloud",
    content_type=plugin_data_pb2.MeshPluginData.VERTEX,
    json_config="{}",
    components=1,
).SerializeToString()

SERIES = {
    "histogram": ("histograms", HISTOGRAM),
    "legacy": ("histograms", LEGACY),
    "cloud_VERTEX": ("mesh", MESH),
    "note": ("text", TEXT),
}


def digest(content):
    return hashlib.sha256(content).digest()


def put(api, experiment, content):
    """Store the bytes as an object."""
    answer = api.request(
        "PUT", f"/experiments/{experiment}/blobs/{digest(content).hex()}", content=content
    )
    assert answer.status_code == 204, answer.text


def referenced(tensor, **changed):
    """Return the tensor with a reference instead of its data; fields of the reference may be
    changed.
    """
    reference = {"sha256": digest(tensor.data), "size": len(tensor.data)} | changed
    moved = wire_pb2.Tensor(dtype=tensor.dtype, shape=tensor.shape, reference=reference)
    if tensor.HasField("histogram"):
        moved.histogram.CopyFrom(tensor.histogram)
    return moved


def series(tag, plugin, *sent, wall_time=1.7e9):
    """Return a series of these tensors, one per step."""
    steps = np.arange(len(sent), dtype="<i8")
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=metadata(plugin, 2, content=MESH_CONTENT if plugin == "mesh" else b""),
        tensors=wire_pb2.TensorPoints(
            steps=steps.tobytes(),
            wall_times=(wall_time + steps).astype("<f8").tobytes(),
            tensors=sent,
        ),
    )


@pytest.fixture(scope="module")
def in_row(shared_api):
    """An experiment whose tensors are in their rows: two points of each series."""
    experiment = shared_api.new_experiment()
    every = [series(tag, plugin, tensor, tensor) for tag, (plugin, tensor) in SERIES.items()]
    shared_api.write(experiment, segment(stream(), 0, 9, *every))
    return experiment


@pytest.fixture(scope="module")
def both(shared_api, in_row):
    """That experiment, and one with the bytes of each second point in objects."""
    return in_row, write_objects(shared_api)


@pytest.fixture
def in_objects(api):
    """An experiment as `write_objects` makes it, in the workspace of the test, which may damage it."""
    return write_objects(api)


def write_objects(api):
    """Write the same series, but the second point of each has its bytes in an object."""
    experiment = api.new_experiment()
    for _, tensor in SERIES.values():
        put(api, experiment, tensor.data)
    every = [
        series(tag, plugin, tensor, referenced(tensor)) for tag, (plugin, tensor) in SERIES.items()
    ]
    assert api.write(experiment, segment(stream(), 0, 9, *every)).tensors == 2 * len(SERIES)
    return experiment


FORMATS = ("json", "csv", "parquet", "arrow", "points")
QUERIES = ({}, {"sampling": "all"}, {"last": 1}, {"sampling": "linear"})


def test_tensor_object_reads_as_one_in_its_row(shared_api, both):
    for params in ({"format": format_, **query} for format_ in FORMATS for query in QUERIES):
        answers = [
            shared_api.request("GET", f"/experiments/{each}/tensors/data", params=params)
            for each in both
        ]
        assert answers[0].status_code == 200, answers[0].text
        assert answers[0].content == answers[1].content, params


def test_tensor_object_is_in_sample_sent_in_pieces(shared_api, both, monkeypatch):
    monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", 1)
    answers = [shared_api.get(experiment, "tensors/data") for experiment in both]
    assert answers[0] == answers[1]
    assert answers[0]["train"]["note"]["values"][1]["data"] == ["a text", "zwölf"]


def test_tensor_object_is_in_what_is_new(shared_api, both):
    answers = [shared_api.get(experiment, "tensors/new")["points"] for experiment in both]
    for tags in (points["train"] for points in answers):
        for columns in tags.values():
            del columns["series_id"]
    assert answers[0] == answers[1]


def test_tensor_object_has_digest_of_one_in_its_row(shared_api, both):
    answers = [shared_api.get(experiment, "digests")["series"] for experiment in both]
    assert len(answers[0]) == len(SERIES)
    assert answers[0] == answers[1]


PAGES = [
    "data/plugin/histograms/histograms?run=train&tag=histogram",
    "data/plugin/distributions/distributions?run=train&tag=histogram",
    "data/plugin/text/text?run=train&tag=note&markdown=false",
    "data/plugin/mesh/meshes?run=train&tag=cloud&sample=0",
]


def test_tensor_object_shows_on_page(client, shared_api, both):
    for path in PAGES:
        answers = [
            client.get(f"/experiment/{each}/{path}", headers=shared_api.headers) for each in both
        ]
        assert answers[0].status_code == 200, answers[0].text
        assert answers[0].content == answers[1].content, path
        assert answers[0].content not in (b"", b"[]"), path


def test_tensor_object_is_in_classic_api(client, shared_api, both):
    for name in ("histograms", "compressedHistograms"):
        query = {"run": "train", "tag": "histogram"}
        answers = [
            client.get(
                f"/api/v0/experiments/{each}/data/{name}", params=query, headers=shared_api.headers
            )
            for each in both
        ]
        assert answers[0].status_code == 200, answers[0].text
        assert answers[0].json() == answers[1].json()


def test_point_moves_between_row_and_object(api, experiment):
    put(api, experiment, MESH.data)
    other = wire_pb2.Tensor(dtype=FLOAT, shape=[1], data=b"\0\0\x80?")
    sent = [(other, 1.0), (referenced(MESH), 2.0), (other, 3.0)]
    for index, (tensor, wall_time) in enumerate(sent):
        api.write(
            experiment,
            segment(
                stream(), index, index + 1, series("mesh", "mesh", tensor, wall_time=wall_time)
            ),
        )
        (value,) = api.get(experiment, "tensors/data")["train"]["mesh"]["values"]
        assert value["data"] == ([1.0] if tensor is other else list(range(6)))


def key_of_mesh(settings, workspace_id):
    prefix = stored_blobs.object_key(workspace_id, digest(MESH.data))
    with closing(s3_client(settings)) as plain:
        (listed,) = plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=prefix)["Contents"]
    return listed["Key"]


def test_objects_of_tensors_are_checked(api, in_objects, workspace_id, settings):
    path = f"/experiments/{in_objects}/digests/objects"
    sizes = {digest(tensor.data): len(tensor.data) for _, tensor in SERIES.values()}.values()
    answer = api.request("GET", path).json()
    assert (answer["objects"], answer["bytes"], answer["faults"]) == (len(sizes), sum(sizes), [])
    key = key_of_mesh(settings, workspace_id)
    with closing(s3_client(settings)) as plain:
        plain.delete_object(Bucket=settings.s3_bucket, Key=key)
    (fault,) = api.request("GET", path).json()["faults"]
    assert (fault["tag"], fault["first_step"], fault["problem"]) == ("cloud_VERTEX", 1, "missing")
    put(api, in_objects, MESH.data)
    assert api.request("GET", path).json()["faults"] == []


def changed(tensor, **fields):
    """Return a copy of the tensor with other fields."""
    other = wire_pb2.Tensor()
    other.CopyFrom(tensor)
    for name in fields:
        other.ClearField(name)
    other.MergeFrom(wire_pb2.Tensor(**fields))
    return other


LIES = {
    "absent": (referenced(MESH, sha256=digest(b"absent")), 409, "blob_missing"),
    "size": (referenced(TEXT, size=len(TEXT.data) - 1), 409, "blob_missing"),
    "size and shape": (changed(referenced(MESH, size=20), shape=[5]), 409, "blob_missing"),
    "shape": (changed(referenced(MESH), shape=[5]), 422, "invalid"),
    "negative shape": (changed(referenced(MESH), shape=[-6]), 422, "invalid"),
    "type": (changed(referenced(MESH), dtype=20), 422, "invalid"),
    "table": (changed(referenced(TEXT), shape=[1]), 422, "invalid"),
    "long table": (changed(referenced(TEXT), shape=[10**9]), 422, "invalid"),
    "digest": (referenced(MESH, sha256=b"short"), 422, "invalid"),
    "both": (changed(referenced(MESH), data=b"1234"), 422, "invalid"),
    "too large": (
        changed(referenced(MESH, size=limits.TENSOR_OBJECT_BYTES_MAX + 4), shape=[1]),
        413,
        "too_large",
    ),
}


def test_tensor_reference_that_is_wrong_is_refused(api, experiment):
    put(api, experiment, MESH.data)
    put(api, experiment, TEXT.data)
    for name, (sent, *refusal) in LIES.items():
        answer = api.send(experiment, segment(stream(), 0, 9, series("mesh", "mesh", sent)))
        assert [answer.status_code, answer.json()["code"]] == refusal, name
    assert api.get(experiment, "tensors/data") == {}


def test_tensor_reference_wrong_beside_right_one_is_refused(api, experiment):
    put(api, experiment, MESH.data)
    lie = changed(referenced(MESH, size=20), shape=[5])
    answer = api.send(
        experiment, segment(stream(), 0, 9, series("mesh", "mesh", lie, referenced(MESH)))
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "blob_missing")


def test_reference_to_another_workspaces_object_is_refused(client, api, experiment, settings):
    other = ApiClient(client, new_owner(settings.database_url.get_secret_value()))
    put(other, other.new_experiment(), MESH.data)
    answer = api.send(experiment, segment(stream(), 0, 9, series("mesh", "mesh", referenced(MESH))))
    assert (answer.status_code, answer.json()["code"]) == (409, "blob_missing")


def test_batch_of_too_many_objects_is_refused(api, experiment, monkeypatch):
    sent = segment(stream(), 0, 9, series("note", "text", referenced(TEXT), referenced(TEXT)))
    monkeypatch.setattr("tbservice.ingest.string_lengths.BATCH_TENSOR_TABLES_BYTES_MAX", 7)
    assert api.send(experiment, sent).status_code == 413
    monkeypatch.setattr("tbservice.ingest.decode.BATCH_TENSOR_OBJECTS_MAX", 1)
    assert api.send(experiment, sent).status_code == 413


def test_answer_over_limit_fetches_no_object(api, in_objects, monkeypatch):
    monkeypatch.setattr("tbservice.reading.catalog.READ_BYTES_MAX", 100)
    monkeypatch.setattr(ObjectStore, "read", None)
    answer = api.request(
        "GET", f"/experiments/{in_objects}/tensors/data", params={"last": 1}
    )  # objects alone
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_object_that_was_lost_is_error(api, in_objects, workspace_id, settings):
    key = key_of_mesh(settings, workspace_id)
    path, tag = f"/experiments/{in_objects}/tensors/data", {"tag": "cloud_VERTEX"}
    with closing(s3_client(settings)) as plain:
        for damage in ("other bytes", "fewer bytes", "gone"):
            if damage == "gone":
                plain.delete_object(Bucket=settings.s3_bucket, Key=key)
            else:
                size = len(MESH.data) - (damage == "fewer bytes")
                plain.put_object(Bucket=settings.s3_bucket, Key=key, Body=bytes(size))
            for query in ({}, {"sampling": "all"}):
                answer = api.request("GET", path, params={**tag, **query})
                assert (answer.status_code, answer.json()["code"]) == (410, "object_missing"), (
                    damage
                )
                assert digest(MESH.data).hex() in answer.json()["detail"]


def read_frames(api, experiment, **query):
    """Read points and the names of lost ones; return the bytes of the table, the lost points, the
    parts and the end frame.
    """
    body = {"sampling": "all", "lost": "name", **query}
    answer = api.request("POST", f"/experiments/{experiment}/tensors/data", json=body)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, frames.MEDIA_TYPE), (
        answer.text
    )
    begin, *between, end = frames.decode_frames([answer.content])
    assert (begin.begin.sampling, end.WhichOneof("frame")) == ("all", "end")
    lost = {
        (frame.lost.run, frame.lost.tag, frame.lost.step)
        for frame in between
        if frame.HasField("lost")
    }
    parts = [frame.part for frame in between if frame.HasField("part")]
    return b"".join(frame.table for frame in between), lost, parts, end.end


@pytest.mark.parametrize("format_", FORMATS)
def test_points_with_lost_objects_are_left_out_and_named(
    api, in_objects, settings, workspace_id, format_
):
    first_points = api.new_experiment()
    every = [series(tag, plugin, tensor) for tag, (plugin, tensor) in SERIES.items()]
    api.write(first_points, segment(stream(), 0, 9, *every))
    with closing(s3_client(settings)) as plain:
        listed = plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=f"{workspace_id}/")
        for item in listed["Contents"]:
            plain.delete_object(Bucket=settings.s3_bucket, Key=item["Key"])
    body = {"sampling": "all", "format": format_}
    refused = api.request("POST", f"/experiments/{in_objects}/tensors/data", json=body)
    assert (refused.status_code, refused.json()["code"]) == (410, "object_missing")
    table, lost, parts, end = read_frames(api, in_objects, format=format_)
    assert lost == {("train", tag, 1) for tag in SERIES}
    assert (end.series, end.points) == (len(SERIES), len(SERIES))
    if format_ == "points":
        assert [len(part.tensors.tensors) for part in parts] == [1] * len(SERIES)
        return
    intact = api.request("POST", f"/experiments/{first_points}/tensors/data", json=body).content
    if format_ == "json":  # it says how many points there are
        table = table.replace(b'"total":2', b'"total":1')
    assert table == intact


def test_lost_points_are_named_of_all_points_only(api, in_objects):
    for query in ({"sampling": "uniform"}, {"last": 1}, {"lost": "forget"}):
        body = {"sampling": "all", "lost": "name", **query}
        answer = api.request("POST", f"/experiments/{in_objects}/tensors/data", json=body)
        assert answer.status_code == 422, query
