"""Content types logged with audio are stored with the points, returned as data, and never sent as a
header.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json

import numpy as np
import pyarrow as pa

from support.batches import images, metadata, segment, stream
from tbservice import limits
from tbupload.export import points
from tbwire import frames
from tbwire.digests import VALUE_RECORD, blob_sequence_digest

WAV = b"RIFF\x04\0\0\0WAVE"
ODD = {
    1: "audio/x-my",
    2: "audio/flac",  # of the same bytes
    3: "text/html",
    4: "ж" * 255,
    5: 'audio/wav\r\nSet-Cookie: a="b"\x1b\x7f\u202e',
    6: " ",
    7: "",
}
"""By step what is logged with one and the same clip."""


def clips(logged, contents=None, wall_times=None):
    """Return an audio series with a clip and a logged content type per step of `logged`."""
    contents = contents or [[WAV]] * len(logged)
    series = images("clip", list(logged), contents, wall_times)
    series.summary_metadata = metadata("audio", 3)
    for sequence, content_type in zip(
        series.blob_sequences.sequences, logged.values(), strict=True
    ):
        sequence.logged_content_type = content_type
    return series


def read_logged(api, experiment, **query):
    """Return {step: content type logged with the one blob} from the data API's JSON; a missing one
    is empty.
    """
    columns = api.get(experiment, "blob_sequences/data", run="train", tag="clip", **query)["train"][
        "clip"
    ]
    values = [blob for (blob,) in columns["values"]]
    return dict(
        zip(columns["steps"], [blob.get("logged_content_type", "") for blob in values], strict=True)
    )


def test_logged_content_types_come_back_for_same_clip(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, clips(ODD)))
    assert read_logged(api, experiment) == read_logged(api, experiment, sampling="all") == ODD
    answer = api.get(experiment, "blob_sequences/new")
    columns = answer["points"]["train"]["clip"]
    assert [blob.get("logged_content_type", "") for (blob,) in columns["values"]] == list(
        ODD.values()
    )
    for query in ({"sampling": "all"}, {}):
        path = f"/experiments/{experiment}/blob_sequences/data"
        sent = api.request("POST", path, json={"format": "points", **query}).content
        (part,) = points._decode_parts(frames.decode_frames([sent]))
        assert part.columns.logged_content_types == list(ODD.values())
        assert {blob.content_type for (blob,) in part.columns.sequences} == {"audio/wav"}


def test_logged_content_types_come_with_series_in_pieces(api, experiment, monkeypatch):
    api.write(experiment, segment(stream(), 0, 9, clips(ODD)))
    monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", 1)
    for sampling in ("all", "uniform"):
        assert read_logged(api, experiment, sampling=sampling) == ODD
        path = f"/experiments/{experiment}/blob_sequences/data"
        sent = api.request("POST", path, json={"format": "points", "sampling": sampling}).content
        parts = points._decode_parts(frames.decode_frames([sent]))
        types = [each for part in parts for each in part.columns.logged_content_types]
        assert types == list(ODD.values())


def test_answer_is_bounded_by_its_content_types(api, experiment, monkeypatch):
    api.write(experiment, segment(stream(), 0, 9, clips(dict.fromkeys(range(10), "ж" * 255))))
    monkeypatch.setattr("tbservice.reading.catalog.READ_BYTES_MAX", 10 * 510)
    assert len(read_logged(api, experiment)) == 10
    monkeypatch.setattr("tbservice.reading.catalog.READ_BYTES_MAX", 10 * 510 - 1)
    answer = api.request("GET", f"/experiments/{experiment}/blob_sequences/data")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "bytes of content types (read_bytes_max)" in answer.json()["detail"]
    assert len(read_logged(api, experiment, sampling="all")) == 10


def test_tables_of_clips_have_keys_and_content_types(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, clips(ODD)))
    path = f"/experiments/{experiment}/blob_sequences/data"
    answer = api.request("GET", path, params={"format": "csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert list(rows[0]) == ["run", "tag", "step", "wall_time", "keys", "logged_content_type"]
    assert len(rows) == len(ODD)
    table = pa.ipc.open_stream(
        api.request("GET", path, params={"format": "arrow"}).content
    ).read_all()
    assert [json.loads(row["keys"]) for row in rows] == table["keys"].to_pylist()
    logged = [row["logged_content_type"] for row in rows]
    assert logged == table["logged_content_type"].to_pylist()


def test_classic_audio_tells_logged_content_type(api, client, experiment):
    api.write(experiment, segment(stream(), 0, 9, clips(ODD)))
    query = {"run": "train", "tag": "clip"}
    listed = client.get(
        f"/api/v0/experiments/{experiment}/audio", params=query, headers=api.headers
    ).json()
    assert {clip["step"]: clip["content_type"] for clip in listed} == ODD | {7: "audio/wav"}


def test_logged_content_type_is_never_header(api, client, experiment):
    contents = [[b"<script>alert(1)</script>"], *[[WAV]] * len(ODD)]
    api.write(
        experiment, segment(stream(), 0, 9, clips({0: "text/html", **ODD}, contents=contents))
    )
    base = f"/api/v0/experiments/{experiment}"
    query = {"run": "train", "tag": "clip"}
    listed = client.get(f"{base}/audio", params=query, headers=api.headers).json()
    columns = api.get(experiment, "blob_sequences/data")["train"]["clip"]
    keys = [blob["key"] for (blob,) in columns["values"]]
    addresses = [f"{base}/individualAudio?{clip['query']}" for clip in listed]
    for step, (address, key) in enumerate(zip(addresses, keys, strict=True)):
        served = "audio/wav" if step else "application/octet-stream"
        for each in (address, f"/api/v1/blobs/{key}", f"/data/blob/{key}"):
            answer = client.get(each, headers=api.headers)
            assert (answer.status_code, answer.headers["Content-Type"]) == (200, served)
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "Set-Cookie" not in answer.headers


def test_logged_content_type_that_cannot_be_kept_is_refused(api, experiment):
    for blobs, logged, status, words in (
        ([WAV], "x" * 256, 413, "a logged content type has at most 255 characters; this has 256"),
        ([WAV], "audio/\0", 422, "a logged content type contains a NUL"),
        ([], "audio/wav", 422, "logged with one blob; this step has 0"),
        ([WAV, WAV], "audio/wav", 422, "logged with one blob; this step has 2"),
    ):
        answer = api.send(experiment, segment(stream(), 0, 9, clips({1: logged}, contents=[blobs])))
        assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
        assert api.get(experiment, "blob_sequences") == {}, blobs


def test_point_that_replaces_another_brings_its_content_type(api, experiment):
    older = clips({1: "audio/old", 2: "audio/kept", 3: ""}, wall_times=[5, 5, 5])
    api.write(experiment, segment(stream(), 0, 9, older))
    newer = clips({1: "audio/new", 2: "audio/early", 3: "audio/late"}, wall_times=[6, 4, 5])
    api.write(experiment, segment(stream(file_name="restart"), 0, 9, newer))
    assert read_logged(api, experiment) == {1: "audio/new", 2: "audio/kept", 3: "audio/late"}
    untyped = clips({1: ""}, wall_times=[7])
    api.write(experiment, segment(stream(file_name="again"), 0, 9, untyped))
    assert read_logged(api, experiment)[1] == ""
    pieces = [({1: "audio/a", 4: "audio/d"}, [9, 9]), ({5: "audio/e", 1: "audio/b"}, [8, 8])]
    series = [clips(logged, wall_times=wall_times) for logged, wall_times in pieces]
    together = [
        segment(stream(file_name=f"piece {place}"), 0, 9, each) for place, each in enumerate(series)
    ]
    api.write(experiment, *together)
    content_types = read_logged(api, experiment)
    assert (content_types[1], content_types[4], content_types[5]) == (
        "audio/a",
        "audio/d",
        "audio/e",
    )


def test_digest_differs_by_logged_content_type(api, experiment):
    api.write(experiment, segment(stream(), 0, 9, clips({1: "audio/x-my", 2: ""})))
    page = api.get(experiment, "digests/records", run="train", tag="clip")
    digests = np.frombuffer(base64.b64decode(page["records"]), VALUE_RECORD)["value"].tolist()
    sha256 = hashlib.sha256(WAV).digest()
    assert digests == [blob_sequence_digest([sha256], "audio/x-my"), blob_sequence_digest([sha256])]
    assert digests[0] != digests[1]
    (series,) = api.get(experiment, "digests")["series"]
    assert series["count"] == 2


def test_uploader_learns_how_long_content_type_may_be(api, experiment):
    result = api.write(experiment, segment(stream(), 0, 9, clips({1: ""})))
    assert (
        result.limits.logged_content_type_chars_max == limits.LOGGED_CONTENT_TYPE_CHARS_MAX == 255
    )
