"""Tensors and blobs of every real writer's files, uploaded and read back, compared with
TensorBoard's reader.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import types_pb2
from tensorboard.util.tensor_util import make_ndarray

from support.uploading import Reader, Uploader

DATA = Path(__file__).parent.parent / "data"
SCALAR, TENSOR, BLOB_SEQUENCE = 1, 2, 3
NOT_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


@pytest.fixture(scope="module")
def uploaded(live_service, tmp_path_factory):
    """The read API, and the experiment with all files of tests/data."""
    uploader = Uploader(
        live_service.url, live_service.new_owner(), tmp_path_factory.mktemp("uploader")
    )
    experiment_id = uploader.run("--logdir", DATA, "--one-shot").experiment_id
    reader = Reader(uploader.server, uploader.token)
    yield reader, experiment_id
    reader.http.close()


@pytest.fixture(scope="module")
def expected():
    """{(run, tag): (plugin, data class, {step: (wall time, tensor)})}, the newest point of a step."""
    by_key = {}
    for path in sorted(DATA.rglob("*.tfevents.*")):
        run = path.parent.relative_to(DATA).as_posix()
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                plugin, data_class = (
                    value.metadata.plugin_data.plugin_name,
                    value.metadata.data_class,
                )
                points = by_key.setdefault(
                    (run, value.tag or value.node_name), (plugin, data_class or TENSOR, {})
                )[2]
                if event.step not in points or points[event.step][0] <= event.wall_time:
                    points[event.step] = (event.wall_time, value.tensor)
    return by_key


def of_class(expected, data_class):
    return {key: points for key, (_, known, points) in expected.items() if known == data_class}


def read(uploaded, path):
    reader, experiment_id = uploaded
    by_key = reader.get(experiment_id, f"{path}/data", downsample=10_000)
    return {(run, tag): columns for run, tags in by_key.items() for tag, columns in tags.items()}


def to_array(tensor):
    """Return the array of a tensor in the API's JSON."""
    if tensor["dtype"] == "string":
        return np.array([text.encode() for text in tensor["data"]], object).reshape(tensor["shape"])
    data = [
        NOT_FINITE.get(number, number) if isinstance(number, str) else number
        for number in tensor["data"]
    ]
    if tensor["dtype"].startswith("complex"):
        data = [complex(*pair) for pair in data]
    return np.array(data, tensor["dtype"]).reshape(tensor["shape"])


def test_upload_lists_series_with_plugin_and_data_class(uploaded, expected):
    reader, experiment_id = uploaded
    listed = {}
    for data_class, path in (
        (SCALAR, "scalars"),
        (TENSOR, "tensors"),
        (BLOB_SEQUENCE, "blob_sequences"),
    ):
        for run, tags in reader.get(experiment_id, path).items():
            listed |= {(run, tag): (series["plugin"], data_class) for tag, series in tags.items()}
    assert listed == {
        key: (plugin, data_class) for key, (plugin, data_class, _) in expected.items()
    }


def test_tensors_arrive_bit_by_bit(uploaded, expected):
    by_key = read(uploaded, "tensors")
    assert by_key.keys() == of_class(expected, TENSOR).keys()
    for key, points in of_class(expected, TENSOR).items():
        columns = by_key[key]
        assert columns["steps"] == sorted(points), key
        for step, wall_time, value in zip(
            columns["steps"], columns["wall_times"], columns["values"], strict=True
        ):
            known_wall_time, tensor = points[step]
            assert wall_time == known_wall_time
            if tensor.dtype == types_pb2.DT_BFLOAT16:  # numpy has no such type
                assert (value["dtype"], value["data"]) == ("bfloat16", [0, 1, 1])
            else:
                np.testing.assert_array_equal(
                    to_array(value), make_ndarray(tensor), str(key), strict=True
                )


def test_blobs_arrive_byte_by_byte(uploaded, expected):
    reader, _ = uploaded
    by_key = read(uploaded, "blob_sequences")
    assert by_key.keys() == of_class(expected, BLOB_SEQUENCE).keys()
    for key, points in of_class(expected, BLOB_SEQUENCE).items():
        assert by_key[key]["steps"] == sorted(points), key
        for step, wall_time, blobs in zip(
            *(by_key[key][column] for column in ("steps", "wall_times", "values")), strict=True
        ):
            known_wall_time, tensor = points[step]
            assert wall_time == known_wall_time
            contents = [reader.http.get(f"/api/v1/blobs/{blob['key']}").content for blob in blobs]
            assert contents == make_ndarray(tensor).ravel().tolist(), key


def test_legacy_histograms_keep_fields_they_were_written_with(uploaded):
    by_key = read(uploaded, "tensors")
    for run in ("pytorch/media", "tensorboardx/media", "tensorflow1/run"):
        for value in by_key[run, "weights"]["values"]:
            histogram = value["histogram"]
            assert len(histogram["limits"]) == len(histogram["counts"])
            assert histogram["min"] < histogram["max"]
            assert sum(histogram["counts"]) == histogram["num"]
    raw = by_key["pytorch/media", "raw"]["values"][0]["histogram"]
    assert raw == {
        "min": 0,
        "max": 2,
        "num": 3,
        "sum": 4,
        "sum_squares": 6,
        "limits": [0, 1, 2],
        "counts": [0, 1, 2],
    }
