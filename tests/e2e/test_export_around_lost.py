"""`tbupload export` after the object store lost objects: all other points are exported, and each
loss is named.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from support.batches import ApiClient, metadata, scalars, segment, stream
from support.lazy import LazyModule
from support.uploading import SECONDS_MAX, wait_until
from tbwire import wire_pb2

pd = LazyModule("pandas")

FORMATS = ("parquet", "events")
SHORT = ("--retry-timeout", "0.01")


@pytest.fixture
def api(reader, uploader):
    return ApiClient(reader.http, uploader.token)


def lost_of(ended):
    """Return the points that an export names as left out."""
    return sorted(
        (point["run"], point["tag"], point["step"]) for point in ended.done["lost_points"]
    )


def tensor_series(api, experiment, tag, contents, in_row=()):
    """A series of byte tensors, one per step; each is an object, except at the steps `in_row`."""
    sent = []
    for step, content in enumerate(contents):
        tensor = wire_pb2.Tensor(dtype=4, shape=[len(content)])
        if step in in_row:
            tensor.data = content
        else:
            sha256 = hashlib.sha256(content)
            path = f"/experiments/{experiment}/blobs/{sha256.hexdigest()}"
            assert api.request("PUT", path, content=content).status_code == 204
            tensor.reference.sha256, tensor.reference.size = sha256.digest(), len(content)
        sent.append(tensor)
    steps = np.arange(len(sent), dtype="<i8")
    points = wire_pb2.TensorPoints(
        steps=steps.tobytes(), wall_times=(1.7e9 + steps).astype("<f8").tobytes(), tensors=sent
    )
    return wire_pb2.Series(tag=tag, summary_metadata=metadata("other", 2), tensors=points)


def tables(directory):
    """Return {(run, tag, step): bytes} of the tensors in a directory of tables."""
    (path,) = (directory / "tensors").iterdir()
    rows = pd.read_parquet(path).to_dict("records")
    return {(row["run"], row["tag"], row["step"]): bytes(row["data"]) for row in rows}


@pytest.mark.parametrize("format_", FORMATS)
def test_export_leaves_out_lost_tensors_and_names_them(
    uploader, reader, api, export, bucket, format_
):
    contents = [os.urandom(size) for size in (1_000, 2_000, 3_000, 4_000, 1_500_000, 5_000)]
    gone = [os.urandom(600)]
    experiment = api.new_experiment()
    for run in ("a", "b"):
        mesh = tensor_series(api, experiment, "mesh", contents, in_row=(3,))
        more = [tensor_series(api, experiment, "gone", gone)] if run == "a" else []
        api.write(experiment, segment(stream(run), 0, 9, mesh, *more, scalars("loss", range(5))))
    bucket.delete(contents[0], contents[5], *gone)
    bucket.replace(contents[1], contents[1][::-1])
    bucket.replace(contents[2], b"short")
    lost = sorted(
        [("a", "gone", 0), *((run, "mesh", step) for run in "ab" for step in (0, 1, 2, 5))]
    )
    for _ in range(2):  # the second finds all of it there
        ended, directory = export(experiment, format_)
        assert (ended.code, lost_of(ended)) == (1, lost), ended.err
        assert "left out: a  mesh  step 0: the object of a tensor (SHA-256 " in ended.err
    assert ended.done["was_complete"]
    if format_ == "events":
        again = uploader.run("--logdir", directory, "--one-shot", "--json")
        assert (again.code, again.done["scalars"], again.done["tensors"]) == (0, 10, 4)
    else:
        intact = {(run, "mesh", step): contents[step] for run in "ab" for step in (3, 4)}
        assert tables(directory) == intact
    body = {"sampling": "all", "tag": ["gone"]}
    plain = reader.http.post(f"/api/v1/experiments/{experiment}/tensors/data", json=body)
    assert (plain.status_code, plain.json()["code"]) == (410, "object_missing")


def test_export_ends_without_tensors_that_cannot_be_read(api, export, bucket):
    contents = [os.urandom(size) for size in (700_000, 1_000, 700_000, 2_000)]
    experiment = api.new_experiment()
    api.write(
        experiment, segment(stream("a"), 0, 9, tensor_series(api, experiment, "mesh", contents))
    )
    bucket.spoil(contents[1])
    bucket.spoil(contents[2])
    ended, directory = export(experiment, "parquet", *SHORT)
    assert (ended.code, lost_of(ended)) == (1, [("a", "mesh", 1), ("a", "mesh", 2)]), ended.err
    assert "the object store fails to read this object" in ended.err
    assert tables(directory) == {("a", "mesh", step): contents[step] for step in (0, 3)}


def test_export_waits_for_objects_that_come_back(uploader, api, tmp_path, bucket):
    content = os.urandom(3_000)
    experiment = api.new_experiment()
    api.write(
        experiment, segment(stream("a"), 0, 9, tensor_series(api, experiment, "mesh", [content]))
    )
    heal = bucket.spoil(content)
    command = [
        sys.executable,
        "-m",
        "tbupload",
        "export",
        "--experiment",
        experiment,
        "--format",
        "events",
    ]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        to = ("--output", str(tmp_path / "exported"))
        process = subprocess.Popen([*command, *to], env=uploader.environment(), stderr=stderr)
    wait_until(lambda: "trying again" in errors.read_text() or process.poll() is not None)
    heal()
    assert process.wait(SECONDS_MAX) == 0, errors.read_text()
    assert "left out" not in errors.read_text()
