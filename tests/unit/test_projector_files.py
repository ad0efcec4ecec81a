"""Which files of a projector config are read, and that none outside the log directory is."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest

from support.projector import IN_CHECKPOINT, write_projector_run
from tbupload.errors import ReadError
from tbupload.events import projector_files
from tbupload.events.projector_files import CONFIG_NAME, ProjectorFiles

BLOB_BYTES_MAX = 1 << 30


@pytest.fixture
def logdir(tmp_path):
    (tmp_path / "secret.tsv").write_text("1\t2\n")
    (tmp_path / "logdir" / "run").mkdir(parents=True)
    (tmp_path / "logdir" / "inside.tsv").write_text("1\t2\n3\t4\n")
    return tmp_path / "logdir"


def files(logdir, config=None):
    path = logdir / "run" / CONFIG_NAME
    if config is not None:
        path.write_text(config)
    return ProjectorFiles(logdir, path, BLOB_BYTES_MAX)


def read_tensor(logdir, path):
    tensors, troubles = files(
        logdir, f"embeddings {{ tensor_name: 'a' tensor_path: {json.dumps(str(path))} }}"
    ).embeddings()
    return tensors[0].blobs[1] if tensors else str(troubles[0])


def test_projector_text_and_binary_tensors_become_float32(logdir):
    words, points = write_projector_run(logdir / "run", more=IN_CHECKPOINT)
    (text, binary), troubles = files(logdir).embeddings()
    about, tensor, metadata, sprite = text.blobs
    described = {
        "name": "words",
        "shape": [60, 8],
        "parts": ["tensor", "metadata", "sprite"],
        "sprite_size": [8, 8],
    }
    assert json.loads(about) == described
    assert tensor == words.tobytes()
    assert metadata == (logdir / "run/00000/words/metadata.tsv").read_bytes()
    assert sprite[:4] == b"\x89PNG"
    assert (binary.name, binary.blobs[1:]) == ("points", [points.tobytes(), b"[]"])
    assert ["only TensorFlow can read" in str(trouble) for trouble in troubles] == [True]


def test_projector_files_within_logdir_are_read(logdir):
    expected = np.array([1, 2, 3, 4], "<f4").tobytes()
    (logdir / "run" / "link.tsv").symlink_to(logdir / "inside.tsv")
    for path in ("../inside.tsv", logdir / "inside.tsv", "link.tsv"):
        assert read_tensor(logdir, path) == expected


def test_nothing_is_read_outside_logdir(logdir):
    (logdir / "run" / "link.tsv").symlink_to(logdir.parent / "secret.tsv")
    (logdir / "up").symlink_to(logdir.parent)
    secret = logdir.parent / "secret.tsv"
    for path in (
        "../../secret.tsv",
        secret,
        "link.tsv",
        "../up/secret.tsv",
        "~/x",
        "/etc/passwd",
        "/proc/self/environ",
    ):
        told = read_tensor(logdir, path)
        assert "outside the logdir" in told or "cannot be read" in told, path
    elsewhere = logdir.parent / "elsewhere"
    write_projector_run(elsewhere)
    (logdir / "linked").symlink_to(elsewhere)
    with pytest.raises(ReadError, match="outside the logdir"):
        ProjectorFiles(logdir, logdir / "linked" / CONFIG_NAME, BLOB_BYTES_MAX).embeddings()


def test_what_is_no_file_or_no_tensor_is_said_and_nothing_hangs(logdir):
    os.mkfifo(logdir / "run" / "pipe")
    (logdir / "run" / "words.tsv").write_text("a\tb\n")
    (logdir / "run" / "uneven.tsv").write_text("1\t2\n3\n")
    (logdir / "run" / "empty.tsv").write_text("\n")
    for path, told in (
        *(
            ("pipe", "not a regular file"),
            (".", "not a regular file"),
            ("none", "cannot be read"),
            ("a\0b", "not a valid path"),
        ),
        *(("words.tsv", "neither"), ("uneven.tsv", "neither"), ("empty.tsv", "empty")),
    ):
        assert told in read_tensor(logdir, path), path


@pytest.mark.parametrize(
    "config", ["embeddings {", "\0", "x" * ((1 << 20) + 1), "embeddings {}" * 101]
)
def test_config_that_is_none_is_error_of_that_file(logdir, config):
    with pytest.raises(ReadError, match=CONFIG_NAME):
        files(logdir, config).embeddings()


def test_fields_of_other_versions_are_passed_over(logdir):
    assert files(logdir, "later: 'field'").embeddings() == ([], [])


def test_large_file_stays_on_disk(logdir, monkeypatch):
    monkeypatch.setattr(projector_files, "IN_MEMORY_BYTES_MAX", 100)
    _, points = write_projector_run(logdir / "run")
    blob = files(logdir).embeddings()[0][1].blobs[1]
    assert (blob.path, blob.size) == (logdir / "run" / "points.bytes", points.nbytes)
    assert blob.sha256 == hashlib.sha256(points.tobytes()).digest()


def test_state_changes_with_config_and_with_each_file(logdir):
    write_projector_run(logdir / "run")
    states = [files(logdir).state(), files(logdir).state()]
    assert states[0] == states[1]
    for name in ("points.bytes", "bookmarks.json", "00000/words/sprite.png", CONFIG_NAME):
        with (logdir / "run" / name).open("ab") as file:
            file.write(b"\n" if name != CONFIG_NAME else b"embeddings { tensor_name: 'new' }")
        states.append(files(logdir).state())
    assert len(set(states)) == len(states) - 1
