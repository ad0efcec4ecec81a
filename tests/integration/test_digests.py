"""Digests equal those of the points that reads return, wherever these are stored and however few
are held in memory.
"""

from __future__ import annotations

import base64
import hashlib
from contextlib import closing

import numpy as np
import pytest
from sqlalchemy import text

from support.batches import images, metadata, scalars, segment, stream, texts
from support.servers import s3_client
from tbservice import limits
from tbservice.errors import ObjectUnreadable, Unavailable
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import object_checks
from tbwire import wire_pb2
from tbwire.digests import (
    SCALAR_RECORD,
    VALUE_RECORD,
    blob_sequence_digest,
    scalar_records,
    tensor_digest,
    value_records,
)


def digest_of(api, experiment):
    (series,) = api.get(experiment, "digests")["series"]
    return series


def check(api, experiment, expected):
    digest = digest_of(api, experiment)
    assert digest["count"] == len(expected)
    assert (digest["first_step"], digest["last_step"]) == (
        int(expected["step"][0]),
        int(expected["step"][-1]),
    )
    assert digest["sha256"] == hashlib.sha256(expected.tobytes()).hexdigest()


def read_records(api, experiment, run, tag, dtype, limit):
    pieces, after = [], ""
    while after is not None:
        page = api.get(experiment, "digests/records", run=run, tag=tag, after=after, limit=limit)
        piece = np.frombuffer(base64.b64decode(page["records"]), dtype)
        assert len(piece) == page["count"] <= limit
        pieces.append(piece)
        after = page["next"]
    return np.concatenate(pieces)


def test_digest_stays_same_while_points_move_from_tail_to_blocks(api, experiment, writer):
    for start in range(0, 12_000, 1_500):
        writer.write(range(start, start + 1_500))
    before = digest_of(api, experiment)
    check(api, experiment, writer.expected())
    writer.merge()
    assert writer.levels()[0] == 1
    assert digest_of(api, experiment) == before
    writer.write([3, 13_000])  # a later wall time for one that is sealed
    check(api, experiment, writer.expected())
    assert digest_of(api, experiment)["sha256"] != before["sha256"]


def test_digest_of_scalar_covers_every_bit(api, experiment, writer):
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0], np.uint64).view(
        np.float64
    )
    steps = [-(2**63), -1, 0, 2**63 - 1]
    writer.write(steps, odd, [0.0, -0.0, 1e-300, -5.0])
    check(api, experiment, writer.expected())
    assert writer.expected()["value"].tobytes() == odd.tobytes()


def test_digest_of_signalling_nan_equals_quiet_nan(api, experiment):
    signalling = np.array([0x7F800001, 0x3F800000], np.uint32)
    column = wire_pb2.ScalarPoints(
        steps=np.arange(2).tobytes(), wall_times=np.ones(2).tobytes(), values32=signalling.tobytes()
    )
    sent = wire_pb2.Series(tag="loss", summary_metadata=metadata(), scalars=column)
    api.write(experiment, segment(stream(), 0, 1, sent))
    expected = scalar_records(np.arange(2), np.ones(2), signalling.view(np.float32))
    check(api, experiment, expected)
    assert np.isnan(expected["value"][0])
    assert expected["value"].view(np.uint64)[0] == 0x7FF8000020000000


@pytest.mark.parametrize("window", [1, 7, 10**6])
def test_digest_finds_newest_of_step_with_few_points_held(
    api, experiment, writer, monkeypatch, window
):
    monkeypatch.setattr(limits, "BLOCK_POINTS_MAX", 16)
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", window)
    random = np.random.default_rng(0)
    for number in range(12):
        count = int(random.integers(1, 15))
        steps = random.choice(np.arange(-12, 100), count, replace=False)
        writer.write(steps, wall_times=random.integers(0, 4, count).astype(float))
        if number in {5, 8}:
            writer.merge()
    assert {0, "tail"} <= {level for level, rows in writer.levels().items() if rows}
    check(api, experiment, writer.expected())
    expected = writer.expected()
    for limit in (9, len(expected), 5_000):
        records = read_records(api, experiment, "train", "loss", SCALAR_RECORD, limit)
        assert records.tobytes() == expected.tobytes()


def test_digest_includes_blocks_that_stay_open(api, experiment, writer, monkeypatch):
    monkeypatch.setattr(limits, "BLOCK_POINTS_MAX", 16)
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 5)
    writer.write(range(16 * 40))
    writer.merge()
    for number in range(5):
        writer.write([number, 16 * 39 + number])  # far apart: too much to rewrite for two points
    writer.merge()
    assert writer.levels()[-1] > 0
    writer.write([2, 600])
    check(api, experiment, writer.expected())
    records = read_records(api, experiment, "train", "loss", SCALAR_RECORD, 100)
    assert records.tobytes() == writer.expected().tobytes()


def test_row_whose_bytes_are_damaged_is_missing_and_no_failure(
    api, experiment, writer, database, workspace_id
):
    writer.write(range(40_000))
    writer.write([50_000])
    whole = digest_of(api, experiment)["count"]
    with database.transaction(workspace_id) as db:
        damaged = """
            UPDATE scalar_blocks SET data = 'x'
            WHERE block_id = (SELECT min(block_id) FROM scalar_blocks WHERE level <= 0) RETURNING count AS points
        """
        points = db.execute(text(damaged)).scalar()
    assert digest_of(api, experiment)["count"] == whole - points == 40_001 - points


def test_tensors_and_blob_sequences_have_digests_of_their_values(api, experiment):
    of = stream()
    api.write(
        experiment,
        segment(
            of,
            0,
            1,
            texts("note", [5, -2, 5], [b"old", b"x", b"new"], [1.0, 2.0, 3.0]),
            images("cat", [1, 0], [[b"a", b"b"], []]),
        ),
    )
    histogram = wire_pb2.LegacyHistogram(min=1, max=2, bucket=[1.0], bucket_limit=[2.0])
    tensor = wire_pb2.Tensor(dtype=1, shape=[1, 3], data=bytes(12), histogram=histogram)
    points = wire_pb2.TensorPoints(
        steps=np.zeros(1, "<i8").tobytes(), wall_times=bytes(8), tensors=[tensor]
    )
    sent = wire_pb2.Series(
        tag="weights", summary_metadata=metadata("histograms", 2), tensors=points
    )
    api.write(experiment, segment(of, 1, 2, sent))
    sha256 = lambda content: hashlib.sha256(content).digest()  # noqa: E731 - short here

    def word(content):
        return tensor_digest(7, [1], sha256(len(content).to_bytes(4, "little") + content), None)

    expected = {
        "note": value_records([-2, 5], [2.0, 3.0], [word(b"x"), word(b"new")]),
        "cat": value_records(
            [0, 1],
            [1.7e9, 1.7e9 + 1],
            [blob_sequence_digest([]), blob_sequence_digest([sha256(b"a"), sha256(b"b")])],
        ),
        "weights": value_records(
            [0],
            [0.0],
            [tensor_digest(1, [1, 3], sha256(bytes(12)), sha256(histogram.SerializeToString()))],
        ),
    }
    digests = {series["tag"]: series for series in api.get(experiment, "digests")["series"]}
    assert digests.keys() == expected.keys()
    for tag, records in expected.items():
        assert digests[tag]["sha256"] == sha256(records.tobytes()).hex(), tag
        assert digests[tag]["count"] == len(records)
        stored = read_records(api, experiment, "train", tag, VALUE_RECORD, 1)
        assert stored.tobytes() == records.tobytes()
    assert digests["cat"]["metadata_sha256"] == sha256(metadata("images", 3)).hex()
    assert (digests["note"]["plugin"], digests["note"]["data_class"]) == ("text", "tensor")


def test_digest_pages_list_each_series_once_within_time(api, experiment, monkeypatch):
    for number, run in enumerate(("a", "b", "c")):
        sent = [scalars(f"s{n}", range(n + 1)) for n in range(4)]
        sent += [texts("note", [number], [b"t"]), images("cat", [0], [[b"x"]])]
        api.write(experiment, segment(stream(run), 0, 1, *sent))
    whole = api.get(experiment, "digests")
    assert whole["next"] is None
    assert whole["limits"]["tensor_bytes_max"] == limits.TENSOR_BYTES_MAX
    assert len({(series["run"], series["tag"]) for series in whole["series"]}) == 18

    def pages(**query):
        after = ""
        while after is not None:
            page = api.get(experiment, "digests", after=after, **query)
            yield page["series"]
            after = page["next"]

    for limit in (1, 5, 18):
        assert [series for page in pages(limit=limit) for series in page] == whole["series"]
    monkeypatch.setattr(limits, "DIGEST_PAGE_SECONDS", 0)
    short_pages = list(pages())
    assert [len(page) for page in short_pages] == [1] * 18
    assert [series for page in short_pages for series in page] == whole["series"]
    assert {series["run"] for page in pages(run=["a", "c"]) for series in page} == {"a", "c"}
    assert {series["tag"] for page in pages(plugin="text") for series in page} == {"note"}
    by_post = api.request("POST", f"/experiments/{experiment}/digests", json={"run": []}).json()
    assert (by_post["series"], by_post["next"]) == ([], None)


def test_digest_queries_malformed_are_refused(api, experiment):
    def ask(path, **query):
        answer = api.request("GET", f"/experiments/{experiment}/{path}", params=query)
        return answer.status_code, answer.json()["code"]

    for after in ("x", "1", "1.2.3", "1.99999999999999999999"):
        assert ask("digests", after=after) == (400, "malformed")
    assert ask("digests", limit=0) == (422, "invalid")
    assert ask("digests", limit=1_001) == (422, "invalid")
    assert ask("digests", runs="x") == (422, "invalid")
    assert ask("digests/records", run="no", tag="such") == (404, "not_found")
    assert ask("digests/records", run="no") == (422, "invalid")
    assert ask("digests/records", run="a", tag="b", after="1.1") == (400, "malformed")
    assert ask("digests/records", run="a", tag="b", limit=100_001) == (422, "invalid")


def put_images(api, experiment, count):
    """Write images of 1 byte to 1 kB, one per step; return their contents by step."""
    contents = {step: bytes([step % 256]) * (step + 1) for step in range(count)}
    sent = images("cat", list(contents), [[content] for content in contents.values()])
    api.write(experiment, segment(stream(), 0, 9, sent))
    return contents


def checked(api, experiment, **query):
    """Read all pages of an object check; return the numbers of objects and bytes, and the faults by
    step and SHA-256.
    """
    objects = size = 0
    faults, after = {}, ""
    while after is not None:
        page = api.get(experiment, "digests/objects", after=after, **query)
        objects, size, after = objects + page["objects"], size + page["bytes"], page["next"]
        assert page["objects"] or page["next"] is None
        for fault in page["faults"]:
            assert (fault["run"], fault["tag"], fault["plugin"], fault["points"]) == (
                "train",
                "cat",
                "images",
                1,
            )
            faults[fault["first_step"], fault["sha256"]] = fault["problem"]
    return objects, size, faults


@pytest.mark.parametrize("listed_min", [1, 10, 1_000_000], ids=["listed", "mixed", "asked"])
def test_objects_that_are_lost_or_damaged_are_named(
    api, experiment, settings, workspace_id, monkeypatch, listed_min
):
    monkeypatch.setattr(object_checks, "_LISTED_MIN", listed_min)
    contents = put_images(api, experiment, 24)
    whole = 24, sum(map(len, contents.values())), {}
    for query in ({}, {"limit": 10}, {"deep": True}):
        assert checked(api, experiment, **query) == whole
    digests = {step: hashlib.sha256(content).hexdigest() for step, content in contents.items()}
    with closing(s3_client(settings)) as plain:
        listed = plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=f"{workspace_id}/")
        keys = {each["Key"].partition("/")[2][:64]: each["Key"] for each in listed["Contents"]}
        plain.delete_object(Bucket=settings.s3_bucket, Key=keys[digests[7]])
        for step, content in ((20, b"short"), (21, bytes(22))):
            plain.put_object(Bucket=settings.s3_bucket, Key=keys[digests[step]], Body=content)
    expected = {(7, digests[7]): "missing", (20, digests[20]): "wrong_size"}
    assert checked(api, experiment, limit=10)[2] == expected
    assert checked(api, experiment, deep=True)[2] == expected | {(21, digests[21]): "damaged"}
    assert checked(api, experiment, run="another") == (0, 0, {})


def test_objects_check_pages_end_in_time_and_at_faults(
    api, experiment, settings, workspace_id, monkeypatch
):
    monkeypatch.setattr(object_checks, "_CHUNK_OBJECTS", 10)
    put_images(api, experiment, 40)
    monkeypatch.setattr(limits, "DIGEST_PAGE_SECONDS", 0)
    assert api.get(experiment, "digests/objects")["objects"] == 10
    assert checked(api, experiment)[0] == 40
    monkeypatch.undo()
    monkeypatch.setattr(object_checks, "_CHUNK_OBJECTS", 10)
    monkeypatch.setattr("tbservice.reading.object_checks.OBJECT_FAULTS_PAGE_ITEMS_MAX", 15)
    delete_all_objects(settings, workspace_id)
    page = api.get(experiment, "digests/objects")
    assert (page["objects"], len(page["faults"])) == (20, 20)
    assert len(checked(api, experiment)[2]) == 40


def test_objects_listed_but_unreadable_are_named(api, experiment, monkeypatch):
    put_images(api, experiment, 3)

    def fail(*_arguments):
        raise ObjectUnreadable("as of a volume that was lost")

    monkeypatch.setattr(ObjectStore, "read", fail)
    for deep in (False, True):
        assert set(checked(api, experiment, deep=deep)[2].values()) == {"unreadable"}


def test_objects_check_with_object_store_away_is_503(api, experiment, monkeypatch):
    put_images(api, experiment, 3)

    def fail(*_arguments):
        raise Unavailable("the object store is away")

    monkeypatch.setattr(ObjectStore, "read", fail)
    answer = api.request("GET", f"/experiments/{experiment}/digests/objects")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    answer = api.request("GET", f"/experiments/{experiment}/digests/objects", params={"after": "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_blob_whose_object_is_lost_is_410(api, experiment, settings, workspace_id):
    put_images(api, experiment, 2)
    delete_all_objects(settings, workspace_id)
    for key in (
        blob["key"]
        for (blob,) in api.get(experiment, "blob_sequences/data")["train"]["cat"]["values"]
    ):
        answer = api.request("GET", f"/blobs/{key}")
        assert (answer.status_code, answer.json()["code"]) == (410, "object_missing")
        assert answer.headers["Cache-Control"] == "no-store"


def delete_all_objects(settings, workspace_id):
    with closing(s3_client(settings)) as plain:
        listed = plain.list_objects_v2(Bucket=settings.s3_bucket, Prefix=f"{workspace_id}/")
        for item in listed["Contents"]:
            plain.delete_object(Bucket=settings.s3_bucket, Key=item["Key"])
