"""Deletion of single runs: nothing of them is left, and what still writes to them is told so."""

from __future__ import annotations

import hashlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import text

from support.batches import batch, images, scalars, segment, stream, texts
from support.uploading import wait_until
from tbservice import limits
from tbservice.experiments import run_deletion
from tbservice.experiments.eraser import erase_due
from tbservice.ingest import commit
from tbservice.ingest.decode import decode_batch
from tbservice.ingest.door import PointWriter
from tbservice.series import compaction
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AdminGrant, AppendGrant
from tbwire import wire_pb2

TABLES = (
    *("scalar_tail", "scalar_blocks", "tensor_points", "blob_points", "runs", "tags"),
    *("superseded_blocks", "superseded_tensors", "superseded_blobs"),
    *("time_series", "upload_streams", "experiment_blobs", "katib_trials", "katib_observations"),
    "erased_series",
)
RUN = "a/b run\n%"


def data(run, *, shared=True, attempt=1):
    """A segment of a run with data of each kind; of tags and a blob of its own without `shared`.

    Attempt 2 supersedes all points.
    """
    name = "" if shared else "own-"
    began = 1e9 * attempt

    def times(count):
        return began + 1 + np.arange(count)

    return segment(
        stream(run, f"events.{attempt}"),
        0,
        9,
        scalars(f"{name}loss", range(3_000), wall_times=times(3_000)),
        scalars(f"{name}few", [1], wall_times=times(1)),
        texts(f"{name}text", [0, 1], [b"t", b"u"], times(2)),
        images(f"{name}image", [0], [[b"png", f"{name}{attempt}".encode()]], times(1)),
        start_time=began,
    )


@pytest.fixture
def delete(api, experiment):
    """Deletes runs of the experiment; returns the response."""

    def request(*names, path="runs", by=api, of=experiment):
        return by.request("DELETE", f"/experiments/{of}/{path}", params={"run": names})

    return request


@pytest.fixture
def rows(database, workspace_id):
    """Returns the rows of the test's workspace, in all tables of an experiment's data."""

    def read():
        with database.transaction(workspace_id) as db:
            statements = (f"SELECT * FROM {table}" for table in TABLES)  # noqa: S608 - constants
            read = (map(repr, db.execute(text(statement))) for statement in statements)
            return dict(zip(TABLES, map(sorted, read), strict=True))

    return read


def compact(database, workspace_id, experiment):
    grant = AppendGrant(workspace_id, experiment)
    with database.transaction(workspace_id) as db:
        for run_id in runs_tags.list_run_names(db, experiment):
            compaction.compact_run(db, grant, run_id, compact_idle=True)


def code_of(answer):
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_deleted_run_leaves_no_row(
    api, experiment, delete, rows, database, workspace_id, is_compacted
):
    api.write(experiment, data("kept"))
    before = rows(), api.get(experiment, "scalars/data", sampling="all")
    size = api.experiments()[0]
    for attempt in (1, 2):
        api.write(
            experiment,
            data(RUN, attempt=attempt),
            data("third", shared=False, attempt=attempt),
        )
    api.request(
        "PUT",
        f"/experiments/{experiment}/runs/hparams",
        params={"run": RUN},
        json={"hparams": {"lr": 1}},
    ).raise_for_status()
    if is_compacted:
        compact(database, workspace_id, experiment)
        before = None, before[1]
        assert {len(rows()[f"superseded_{kind}"]) for kind in ("tensors", "blobs")} == {2, 4}
        assert rows()["superseded_blocks"]
    assert delete(RUN, "third").status_code == 204

    assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == ["kept"]
    assert api.get(experiment, "scalars/data", sampling="all") == before[1]
    after = rows()
    if is_compacted:
        assert {len(each) for table, each in after.items() if "katib" not in table} != {0}
        assert not any("third" in row or "own-" in row for each in after.values() for row in each)
        assert all(len(after[table]) == 1 for table in ("runs", "upload_streams"))
        assert (len(after["tags"]), len(after["time_series"])) == (4, 4)
    else:
        assert after == before[0]
    listed = api.experiments()[0]
    assert {key: listed[key] for key in ("points", "bytes")} == {
        key: size[key] for key in ("points", "bytes")
    }


def test_deletion_ends_right_to_blobs_that_nothing_else_has(api, experiment, delete, rows):
    contents = [b"of both", b"of the deleted run", b"of none yet"]
    digests = [hashlib.sha256(content).digest() for content in contents]
    for content, digest in zip(contents, digests, strict=True):
        path = f"/experiments/{experiment}/blobs/{digest.hex()}"
        api.request("PUT", path, content=content).raise_for_status()
    blobs = [
        wire_pb2.BlobReference(sha256=digest, size=len(content))
        for content, digest in zip(contents, digests, strict=True)
    ]
    api.write(experiment, segment(stream("kept"), 0, 9, images("i", [0], [blobs[:1]])))
    api.write(experiment, segment(stream("a"), 0, 9, images("i", [0], [blobs[:2]])))
    delete("a").raise_for_status()
    left = "".join(rows()["experiment_blobs"])
    assert [repr(digest) in left for digest in digests] == [True, False, True]


def test_writes_to_deleted_run_are_refused_until_allowed(api, experiment, delete):
    sent = data(RUN)
    api.write(experiment, sent, data("kept"))
    assert delete(RUN).status_code == 204
    longer = segment(stream(RUN), 9, 19, scalars("loss", [1]))
    assert (
        api.send(experiment, longer).json()["offset"] == 0
    )  # the stream is unknown: from its start
    other = segment(stream("new"), 0, 9, scalars("loss", [1]))
    answer = api.send(experiment, other, sent, segment(stream(RUN, "second"), 0, 9))
    assert code_of(answer) == (409, "run_deleted")
    assert (answer.json()["segment"], answer.json()["segments"]) == (1, [1, 2])
    assert repr(RUN) in answer.json()["detail"]
    hparams = {"params": {"run": RUN}, "json": {"hparams": {"lr": 1}}}
    path = f"/experiments/{experiment}/runs/hparams"
    assert code_of(api.request("PUT", path, **hparams)) == (409, "run_deleted")
    assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == ["kept"]

    assert delete(RUN, "unknown", path="runs/deleted").status_code == 204
    assert api.get(experiment, "runs/deleted") == {"runs": [], "next": None}
    assert api.write(experiment, sent).scalars == 3_001
    assert api.get(experiment, "scalars")[RUN].keys() == {"loss", "few"}


def test_repeated_deletion_is_noop_and_unknown_run_is_404(api, experiment, delete):
    api.write(experiment, data("a"), data("b"))
    answer = delete("a", "unknown", "b")
    assert code_of(answer) == (404, "not_found")
    assert "'unknown'" in answer.json()["detail"]
    assert len(api.get(experiment, "runs")["runs"]) == 2
    for _ in range(2):
        assert delete("a", "a").status_code == 204
    assert [run["run"] for run in api.get(experiment, "runs")["runs"]] == ["b"]
    for names in ((), [f"{n}" for n in range(limits.DELETED_RUNS_ITEMS_MAX + 1)]):
        assert code_of(delete(*names)) == (422, "invalid")


def test_batch_that_waits_for_deletion_does_not_restore_run(
    api, experiment, database, workspace_id, count_waiting
):
    """A file that is new to a run waits for its deletion, and would then create the run again."""
    api.write(experiment, data("train"))
    sent = segment(stream("train", "another"), 0, 9, scalars("loss", [1]))
    with ThreadPoolExecutor(1) as thread:
        with database.transaction(workspace_id) as db:
            assert run_deletion.delete_run(db, AdminGrant(workspace_id, experiment), "train")
            sending = thread.submit(api.send, experiment, sent)
            wait_until(count_waiting)
        assert code_of(sending.result(60)) == (409, "run_deleted")
    assert api.get(experiment, "runs")["runs"] == []


def test_tag_that_another_batch_is_about_to_use_is_kept(
    api, experiment, database, workspace_id, count_waiting
):
    api.write(experiment, data("a"))
    others = decode_batch(batch(segment(stream("b"), 0, 9, scalars("loss", [1]))))
    grant = AppendGrant(workspace_id, experiment)
    with ThreadPoolExecutor(1) as thread:
        with database.transaction(workspace_id) as db:
            runs_tags.resolve_tags(db, grant, ["loss"])  # as the batch does, then waits for others
            deleting = thread.submit(
                api.request, "DELETE", f"/experiments/{experiment}/runs", params={"run": "a"}
            )
            wait_until(count_waiting)
            commit.write_batch(PointWriter(db), grant, others)
        assert deleting.result(60).status_code == 204
    assert api.get(experiment, "names") == {"b": ["loss"]}


def test_deleted_runs_are_listed_in_pages_by_hash(api, experiment, delete):
    names = [f"run {number}" for number in range(5)]
    api.write(experiment, *map(data, names))
    delete(*names).raise_for_status()
    seen, after = [], ""
    while after is not None:
        page = api.get(experiment, "runs/deleted", limit=2, after=after)
        seen += [run["name_sha256"] for run in page["runs"]]
        after = page["next"]
    assert seen == sorted(hashlib.sha256(name.encode()).hexdigest() for name in names)
    answer = api.request("GET", f"/experiments/{experiment}/runs/deleted", params={"after": "x"})
    assert code_of(answer) == (400, "malformed")


def test_deletion_among_writes_and_compaction_leaves_no_orphan(
    api, experiment, delete, rows, database, workspace_id
):
    """Two clients delete while others write and compaction runs: all rows belong to a run."""
    chance, ended = random.Random(0), threading.Event()  # noqa: S311 - a test's
    names = [f"{number}" for number in range(4)]

    def write(name):
        codes, offset = set(), 0
        while not ended.is_set():
            tag = chance.choice(("x", "y", f"of {name}"))
            steps = range(offset, offset + chance.choice((1, 2_000)))
            sent = segment(stream(name), offset, offset + 9, scalars(tag, steps))
            answer = api.send(experiment, sent)
            codes.add(answer.status_code if answer.status_code != 409 else answer.json()["code"])
            offset = offset + 9 if answer.status_code == 200 else 0
            if answer.status_code == 409 and answer.json()["code"] == "cursor_conflict":
                offset = answer.json()["offset"]
        return codes

    def remove():
        while not ended.is_set():
            two = chance.sample(names, 2)
            codes.add(delete(*two).status_code)
            delete(two[0], path="runs/deleted").raise_for_status()

    codes = set()
    with ThreadPoolExecutor(8) as threads:
        works = [threads.submit(write, name) for name in names]
        works += [threads.submit(remove) for _ in range(2)]
        for _ in range(8):
            compact(database, workspace_id, experiment)
            api.get(experiment, "scalars/data", sampling="all")
        ended.set()
        told = set.union(*[work.result() or set() for work in works])
    assert told <= {200, "cursor_conflict", "run_deleted", "try_again", 503}
    assert {200, "run_deleted"} <= told
    assert codes <= {204, 404, 503}  # 404: the run was not written yet

    with database.transaction(workspace_id) as db:
        for table, key, owner in (
            *(("time_series", "run_id", "runs"), ("time_series", "tag_id", "tags")),
            *(("scalar_tail", "series_id", "time_series"), ("upload_streams", "run_id", "runs")),
            ("scalar_blocks", "series_id", "time_series"),
            ("tags", "tag_id", "time_series"),
        ):
            orphans = f"SELECT count(*) FROM {table} WHERE {key} NOT IN (SELECT {key} FROM {owner})"  # noqa: S608 - constants
            assert db.execute(text(orphans)).scalar() == 0, table
    api.request("DELETE", f"/experiments/{experiment}/runs", params={"run": names})
    names = [run["run"] for run in api.get(experiment, "runs")["runs"]]
    if names:
        delete(*names).raise_for_status()
    assert {table for table, left in rows().items() if left} == set()


def test_points_of_large_run_are_erased_in_background(
    api, experiment, delete, rows, database, monkeypatch
):
    monkeypatch.setattr("tbservice.experiments.run_deletion.ERASE_REQUEST_SECONDS", 0)
    monkeypatch.setattr("tbservice.experiments.eraser.ERASE_TRANSACTION_ITEMS_MAX", 1)
    api.write(experiment, data("kept"))
    before, size = rows(), api.experiments()[0]
    api.write(experiment, data("a", shared=False), data("b"))
    delete("a").raise_for_status()
    series = {"params": {"run": "b", "tag": "image"}}
    api.request("DELETE", f"/experiments/{experiment}/series", **series).raise_for_status()
    assert api.get(experiment, "scalars").keys() == {"kept", "b"}
    assert len(rows()["blob_points"]) == 3  # hidden, not erased yet
    delete("b").raise_for_status()
    listed = api.experiments()[0]
    assert [listed[key] for key in ("points", "bytes")] == [
        size[key] for key in ("points", "bytes")
    ]

    erase_due(database, threading.Event())
    assert rows() == before
