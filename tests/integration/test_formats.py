"""Full and sampled reads in every format: equal points, in chunks of any size, truncated or
refused.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.admission import used_up
from support.batches import images, scalars, segment, stream, texts
from tbservice import limits
from tbservice.admission.worker_shares import FULL_SCAN_STREAMS_MAX
from tbservice.errors import NotFound
from tbservice.reading.full_scan import stream_all
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbupload.export import points
from tbwire import frames, tensors, wire_pb2
from tbwire.points import DataClass

FORMATS = ("json", "csv", "parquet", "arrow", "points")
ODD = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1 / 3, 1e300]
NAME = '=cmd|"a", b\n'


def tensor_series(tag):
    """A legacy histogram, and a tensor of another type and shape."""
    histogram = wire_pb2.LegacyHistogram(
        min=-1, max=2, num=3, sum=1, sum_squares=5, bucket_limit=[0, 2], bucket=[1, 2]
    )
    data = np.arange(6, dtype="<f4").tobytes()
    return wire_pb2.Series(
        tag=tag,
        summary_metadata=texts("x", [1], [b""]).summary_metadata,
        tensors=wire_pb2.TensorPoints(
            steps=np.array([3, 4], "<i8").tobytes(),
            wall_times=np.array([1.5, 2.5], "<f8").tobytes(),
            tensors=[
                wire_pb2.Tensor(dtype=1, shape=[2, 3], data=data, histogram=histogram),
                wire_pb2.Tensor(dtype=10, shape=[], data=b"\1"),
            ],
        ),
    )


@pytest.fixture
def api(shared_api):
    return shared_api


@pytest.fixture(scope="module")
def experiment_id(shared_api):
    return new_experiment(shared_api)


def new_experiment(api):
    """Three runs, one with a hostile name, with series of each class; steps of `long` arrive twice."""
    experiment_id = api.new_experiment()
    steps = np.arange(300) * 7 - 50
    odd = scalars("odd", range(len(ODD)), ODD, np.arange(len(ODD)) / 3)
    for run in ("a", "b", NAME):
        of = stream(run)
        api.write(
            experiment_id,
            segment(
                of,
                0,
                1,
                scalars("long", steps[::-1]),
                odd,
                texts("text", [1, 2, 9], [b"x", b"\xff", "é,".encode()]),
            ),
            segment(
                of,
                1,
                2,
                scalars("long", steps[100:110], np.zeros(10), np.full(10, 2e9)),
                tensor_series("t"),
            ),
            segment(of, 2, 3, images("image", [1, 5, 6], [[b"1", b"2", b"png"], [], [b"3"]])),
        )
    return experiment_id


@pytest.fixture(params=[None, 40], ids=["at once", "in small parts"])
def _parts_of(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", request.param)
        monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", 1)


def read(api, experiment_id, kind, **query):
    """Read in each format; return {format: {(run, tag): [(step, wall time, value)]}} and the JSON."""
    path = f"/experiments/{experiment_id}/{kind}/data"
    answers = {name: api.request("POST", path, json={"format": name, **query}) for name in FORMATS}
    assert {answer.status_code for answer in answers.values()} == {200}
    columnar = answers["json"].json()
    by_format = {
        "json": {
            (run, tag): list(
                zip(
                    columns["steps"],
                    columns["wall_times"],
                    map(plain, columns["values"]),
                    strict=True,
                )
            )
            for run, tags in columnar.items()
            for tag, columns in tags.items()
        },
        "csv": by_series(csv_rows(answers["csv"].text)),
        "parquet": by_series(table_rows(pq.read_table(io.BytesIO(answers["parquet"].content)))),
        "arrow": by_series(table_rows(pa.ipc.open_stream(answers["arrow"].content).read_all())),
        "points": by_series(
            (part.series.run, part.series.tag, *point)
            for part in points._decode_parts(frames.decode_frames(cut(answers["points"].content)))
            for point in points_of(part.columns)
        ),
    }
    return by_format, columnar


def cut(content):
    return [content[at : at + 7] for at in range(0, len(content), 7)]


def by_series(rows):
    series = {}
    for run, tag, *point in rows:
        series.setdefault((run, tag), []).append(tuple(point))
    return series


def plain(value):
    """Convert a JSON value to comparable form: a number's bits, a tensor's fields, or blob keys."""
    if isinstance(value, list):
        return [blob["key"] for blob in value]
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return np.float64(value).tobytes()


def csv_rows(text):
    for row in list(csv.reader(io.StringIO(text, newline="")))[1:]:
        run, tag, step, wall_time, *rest = row
        if len(rest) == 1 and not rest[0].startswith("["):
            value = plain(float(rest[0]))
        elif len(rest) == 2:
            value = json.loads(rest[0])
        else:
            dtype, shape, data, encoding, histogram = rest
            fields = {"dtype": dtype, "shape": json.loads(shape), "data": json.loads(data)}
            fields |= {"encoding": encoding} if encoding else {}
            value = plain(fields | ({"histogram": json.loads(histogram)} if histogram else {}))
        yield run, tag, int(step), float(wall_time), value


def table_rows(table):
    for row in table.to_pylist():
        head = [row.pop(name) for name in ("run", "tag", "step", "wall_time")]
        if "value" in row:
            yield *head, plain(row["value"])
        elif "keys" in row:
            yield *head, row["keys"]
        else:
            packed = row["data"] if row["strings"] is None else tensors.pack_strings(row["strings"])
            yield *head, tensor_fields(row["dtype"], row["shape"], packed, row["histogram"])


def tensor_fields(dtype, shape, packed, histogram):
    number = next(number for number, name in tensors.NAMES.items() if name == dtype)
    elements = tensors.to_numpy(number, shape, packed).reshape(-1).tolist()
    fields = {"dtype": dtype, "shape": list(shape), "data": elements}
    if dtype == "string":
        try:
            fields["data"] = [element.decode() for element in elements]
        except UnicodeDecodeError:
            fields |= {
                "data": [base64.b64encode(element).decode() for element in elements],
                "encoding": "base64",
            }
    return plain(fields | ({"histogram": histogram} if histogram else {}))


def points_of(columns):
    if hasattr(columns, "values"):
        values = [plain(value) for value in columns.values]
    elif hasattr(columns, "tensors"):
        values = [
            tensor_fields(
                tensors.NAMES[tensor.dtype],
                tensor.shape,
                tensor.data,
                tensor.histogram and legacy(tensor.histogram),
            )
            for tensor in columns.tensors
        ]
    else:
        values = [[blob.key for blob in blobs] for blobs in columns.sequences]
    return list(zip(columns.steps.tolist(), columns.wall_times.tolist(), values, strict=True))


def legacy(histogram):
    names = ("min", "max", "num", "sum", "sum_squares")
    written = {name: getattr(histogram, name) for name in names}
    limits, counts = list(histogram.bucket_limit), list(histogram.bucket)
    return written | {"limits": limits, "counts": counts}


@pytest.mark.usefixtures("_parts_of")
@pytest.mark.parametrize("kind", ["scalars", "tensors", "blob_sequences"])
def test_every_format_says_same_at_full_resolution_and_sampled(api, experiment_id, kind):
    tags = {"scalars": ["long", "odd"], "tensors": ["t", "text"], "blob_sequences": ["image"]}[kind]
    full, columnar = read(api, experiment_id, kind, sampling="all")
    assert full["json"].keys() == {(run, tag) for run in ("a", "b", NAME) for tag in tags}
    for name in FORMATS:
        assert full[name] == full["json"], name
    for of_run in columnar.values():
        for tag, columns in of_run.items():
            assert (columns["kept"], columns["total"], columns["sampling"]) == (
                len(columns["steps"]),
                len(columns["steps"]),
                "all",
            ), tag
            assert columns["steps"] == sorted(set(columns["steps"]))
    sampled, _ = read(api, experiment_id, kind, downsample=1, run=["a", NAME])
    assert sampled["json"] == {
        key: points[-1:] for key, points in full["json"].items() if key[0] != "b"
    }
    for name in FORMATS:
        assert sampled[name] == sampled["json"], name
    some, said = read(api, experiment_id, kind, downsample=2)
    for name in FORMATS:
        assert some[name] == {
            key: [*points[:1], points[-1]] for key, points in full["json"].items()
        }, name
    for run, of_run in said.items():
        for tag, columns in of_run.items():
            assert (columns["kept"], columns["total"], columns["sampling"]) == (
                2,
                columnar[run][tag]["total"],
                "uniform",
            )


@pytest.mark.usefixtures("_parts_of")
def test_step_range_gives_newest_point_of_each_step(api, experiment_id):
    every, _ = read(api, experiment_id, "scalars", sampling="all", tag=["long"])
    long = every["json"]["a", "long"]
    assert len(long) == 300
    assert {point[2] for point in long if point[1] == 2e9} == {plain(0.0)}
    ranged, columnar = read(
        api, experiment_id, "scalars", sampling="all", tag=["long"], step_min=20, step_max=1000
    )
    for name in FORMATS:
        assert ranged[name]["a", "long"] == [point for point in long if 20 <= point[0] <= 1000], (
            name
        )
    assert columnar["a"]["long"]["total"] == len(ranged["json"]["a", "long"])


ACCEPTED = {
    "*/*": "application/json",
    "text/html,application/xhtml+xml,*/*;q=0.8": "application/json",
    "text/csv": "text/csv; charset=utf-8; header=present",
    "text/*": "text/csv; charset=utf-8; header=present",
    "application/json;q=0.1, application/vnd.apache.parquet": "application/vnd.apache.parquet",
    "application/vnd.apache.arrow.stream": "application/vnd.apache.arrow.stream",
    "application/vnd.tbhub.points, */*;q=0": "application/vnd.tbhub.points",
}


def test_header_accept_chooses_format(api, experiment_id):
    path = f"/experiments/{experiment_id}/scalars/data"
    for accept, media_type in ACCEPTED.items():
        for sampling in ("uniform", "all"):
            answer = api.request(
                "GET", path, params={"sampling": sampling}, headers={"Accept": accept}
            )
            assert (answer.status_code, answer.headers["content-type"]) == (200, media_type), accept


def test_answers_name_rule_kept_and_total(api, experiment_id, monkeypatch):
    path = f"/experiments/{experiment_id}/scalars/data"
    for piece_bytes in (limits.SCAN_CHUNK_BYTES, 100):
        monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", piece_bytes)
        for name in FORMATS:
            for asked, said in (
                ({"downsample": 4}, "uniform; kept=24; total=921"),
                ({"last": 5, "run": "a"}, "last; kept=10; total=307"),
                ({"run": "nowhere"}, "uniform; kept=0; total=0"),
                ({"sampling": "all"}, "all"),
            ):
                answer = api.request("GET", path, params={"format": name, **asked})
                assert answer.headers["Tbhub-Sampling"] == said, (name, asked)


def test_format_that_there_is_not_is_refused(api, experiment_id):
    path = f"/experiments/{experiment_id}/scalars/data"
    assert (
        api.request("GET", path, headers={"Accept": "image/png, text/html"}).json()["code"]
        == "not_acceptable"
    )
    assert api.request("GET", path, params={"format": "xlsx"}).status_code == 422
    assert (
        api.request(
            "GET", path, params={"format": "csv"}, headers={"Accept": "image/png"}
        ).status_code
        == 200
    )


def test_experiment_without_series_is_empty_in_every_format(api):
    by_format, columnar = read(api, api.new_experiment(), "scalars", sampling="all")
    assert columnar == {}
    assert list(by_format.values()) == [{}] * len(FORMATS)


def test_blobs_come_with_what_is_needed_to_ask_for_them(api, experiment_id):
    for query in ({"sampling": "all"}, {}):
        path = f"/experiments/{experiment_id}/blob_sequences/data"
        answer = api.request("POST", path, json={"format": "points", "run": ["a"], **query})
        (part,) = points._decode_parts(frames.decode_frames([answer.content]))
        blob = part.columns.sequences[0][2]
        assert (blob.size, blob.content_type) == (3, "application/octet-stream")
        assert api.request("GET", f"/blobs/{blob.key}").content == b"png"


def test_streams_are_bounded_and_free_room_at_end(api, client, experiment_id, monkeypatch):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.5)
    path = f"/experiments/{experiment_id}/scalars/data"
    for _ in range(3):
        assert api.request("GET", path, params={"sampling": "all"}).status_code == 200
    with used_up(client.app.state.shares.streams, FULL_SCAN_STREAMS_MAX):
        refused = api.request("GET", path, params={"sampling": "all"})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["Retry-After"]
    assert api.request("GET", path, params={"sampling": "all"}).status_code == 200


def test_stream_omits_deleted_series_but_fails_without_parent(api, database, monkeypatch):
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 40)
    experiment_id = new_experiment(api)
    workspace_id = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    query = ReadGrant(workspace_id, experiment_id), Selection(), DataClass.SCALAR
    parts = stream_all(database, *query)
    assert next(parts).series.run == "a"
    api.request(
        "DELETE", f"/experiments/{experiment_id}/runs", params={"run": "b"}
    ).raise_for_status()
    assert {part.series.run for part in parts} == {"a", NAME}
    parts = stream_all(database, *query)
    next(parts)
    api.request("DELETE", f"/experiments/{experiment_id}").raise_for_status()
    with pytest.raises(NotFound):
        list(parts)
    with pytest.raises(NotFound):  # after a wait for its turn
        stream_all(database, *query)


def test_large_sample_takes_stream_s_place_and_small_one_none(
    api, client, experiment_id, monkeypatch
):
    monkeypatch.setattr(limits, "QUEUE_WAIT_SECONDS_MAX", 0.5)
    path = f"/experiments/{experiment_id}/tensors/data"
    with used_up(client.app.state.shares.streams, FULL_SCAN_STREAMS_MAX):
        assert api.request("GET", path).status_code == 200
        monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", 100)
        other = f"{path}?downsample=999"  # the answer of before is kept
        assert api.request("GET", other).json()["code"] == "too_many_requests"
    assert api.request("GET", other).status_code == 200


def test_frames_that_were_cut_off_are_never_taken_for_whole(api, experiment_id):
    path = f"/experiments/{experiment_id}/scalars/data"
    content = api.request("POST", path, json={"format": "points", "sampling": "all"}).content
    for end in range(0, len(content) - 1, 13):
        with pytest.raises(ValueError, match=r"no begin frame|no end frame|the bytes end"):
            list(points._decode_parts(frames.decode_frames([content[:end]])))
