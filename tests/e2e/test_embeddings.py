"""Projector files through the uploader to our projector routes: complete, live, sent once, for
readers only.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from support.batches import images, metadata, segment, stream
from support.event_files import scalar_event, version_event, write_records
from support.projector import IN_CHECKPOINT, ROWS, write_projector_run
from support.servers import http_client, live_api
from support.uploading import wait_until


@pytest.fixture
def run(tmp_path):
    run = tmp_path / "runs" / "train"
    write_records(
        run / "events.out.tfevents.1.host", [version_event(), scalar_event("loss", 1, 0.5)]
    )
    return run


class Projector:
    """The addresses that the projector's page requests."""

    def __init__(self, uploader, experiment):
        headers = {"Authorization": f"Bearer {uploader.token}"}
        base = f"{uploader.server}/experiment/{experiment}/data/plugin/projector/"
        self.http = http_client(base, headers=headers)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.http.close()

    def get(self, path, **query):
        return self.http.get(path, params=query)

    def tensor(self, name="words", **query):
        content = self.get("tensor", run="train", name=name, **query).content
        return np.frombuffer(content, "<f4")


def test_embeddings_are_served_and_sent_once(uploader, run):
    words, points = write_projector_run(run, more=IN_CHECKPOINT)
    ended = uploader.run("--logdir", run.parent, "--one-shot")
    assert ended.code == 1
    assert "'layer/kernel' is in a checkpoint, which only TensorFlow can read" in ended.err
    with Projector(uploader, ended.experiment_id) as projector:
        assert projector.get("runs").json() == ["train"]
        info = {
            embedding["tensorName"]: embedding
            for embedding in projector.get("info", run="train").json()["embeddings"]
        }
        assert info["words"]["sprite"]["singleImageDim"] == [8, 8]
        assert info["points"]["tensorShape"] == [ROWS, 3]
        np.testing.assert_array_equal(projector.tensor().reshape(words.shape), words)
        np.testing.assert_array_equal(projector.tensor(num_rows=5), words[:5].ravel())
        np.testing.assert_array_equal(projector.tensor("points"), points.ravel())
        metadata = projector.get("metadata", run="train", name="words", num_rows=2).text
        assert metadata == "word\tkind\nword 0\t0\nword 1\t1\n"
        assert (
            projector.get("sprite_image", run="train", name="words").headers["content-type"]
            == "image/png"
        )
        assert projector.get("bookmarks", run="train", name="points").json() == []
        again = uploader.run(
            "--logdir", run.parent, "--one-shot", "--experiment", ended.experiment_id, "--json"
        )
        assert again.done["blobs"] == 0
        for path, status in (
            *(
                ("metadata?run=train&name=points", 404),
                ("tensor?run=train&name=none", 404),
                ("tensor?run=train", 400),
            ),
            *(
                ("info", 400),
                ("tensor?run=train&name=words&num_rows=-1", 400),
                ("../../etc", 404),
                ("index.js", 404),
            ),
        ):
            assert projector.http.get(path).status_code == status, path
        verified = uploader.run(
            "verify", "--logdir", run.parent, "--experiment", ended.experiment_id
        )
        assert verified.code == 1, verified.err
        for line in (
            "3 series: 3 matching\n",
            "projector embeddings, compared without wall time: 2\n",
            "'layer/kernel' is in a checkpoint",
        ):
            assert line in verified.out
        projector.http.headers.pop("Authorization")
        for path in (
            "runs",
            "info?run=train",
            "tensor?run=train&name=words",
            "projector_binary.html",
            "../../plugin_entry.html",
        ):
            assert projector.http.get(path).status_code == 401, path


def test_projector_config_changed_back_is_sent_again(uploader, run):
    (run / "events.out.tfevents.1.host").unlink()  # a run of the projector's alone
    write_projector_run(run)
    with (
        uploader.follow(run.parent) as following,
        Projector(uploader, following.wait_for_experiment()) as projector,
    ):
        for seed, rows in ((0, ROWS), (1, 40), (0, ROWS)):
            sent = write_projector_run(run, seed, rows)[0].tobytes()
            for path in run.rglob("*.*"):
                os.utime(path, (seed, seed))  # so that the third state is the first one again
            wait_until(
                lambda sent=sent: projector.get("tensor", run="train", name="words").content == sent
            )
        assert "no event files" not in following.err()


def test_config_that_cannot_be_sent_stops_nothing_else(uploader, run, reader):
    write_projector_run(
        run,
        more="""embeddings { tensor_name: "points" tensor_path: "points.bytes" }
                embeddings { tensor_name: "a\\000b" tensor_path: "points.bytes" }""",
    )
    long = run.parent / "long"
    long.mkdir()
    (long / "t.tsv").write_text("1\t2\n")
    (long / "projector_config.pbtxt").write_text(
        f'embeddings {{ tensor_name: "{"x" * 10_001}" tensor_path: "t.tsv" }}'
    )
    unnameable = run.parent / os.fsdecode(b"bad\xff")
    unnameable.mkdir()
    (unnameable / "projector_config.pbtxt").write_text(
        'embeddings { tensor_name: "a" tensor_path: "t.tsv" }'
    )
    with uploader.follow(run.parent) as following:
        experiment = following.wait_for_experiment()
        wait_until(lambda: "long/projector_config.pbtxt" in following.err())
        write_records(
            run / "events.out.tfevents.1.host", [scalar_event("loss", 2, 0.25)], append=True
        )
        wait_until(lambda: len(reader.scalars(experiment).get("train", {}).get("loss", {})) == 2)
        ended = following.stop()
    assert ended.code == 1
    for said in (
        "'points' occurs twice",
        "'a\\x00b' contains a NUL",
        "its name is not valid UTF-8",
    ):
        assert said in ended.err
    assert "Traceback" not in ended.err
    with Projector(uploader, experiment) as projector:
        embeddings = projector.get("info", run="train").json()["embeddings"]
    assert [embedding["tensorName"] for embedding in embeddings] == ["words", "points"]


def test_description_that_is_none_hides_nothing_else(uploader, run):
    write_projector_run(run)
    experiment = uploader.run("--logdir", run.parent, "--one-shot").experiment_id
    hostile = [
        b"",
        b"[]",
        b"{}",
        b'{"shape": [1e999, 1], "parts": []}',
        b'{"shape": [1, 1], "parts": ["x"], "sprite_size": []}',
    ]
    series = [
        images(f"_projector_/{number}", [0], [[text, b"1234"]])
        for number, text in enumerate(hostile)
    ]
    for embedding in series:
        embedding.summary_metadata = metadata("projector", 3)
    with live_api(uploader.server, uploader.token) as api:
        api.write(experiment, segment(stream("train", "other"), 0, 9, *series))
    with Projector(uploader, experiment) as projector:
        embeddings = projector.get("info", run="train").json()["embeddings"]
    assert [embedding["tensorName"] for embedding in embeddings] == ["words", "points"]
