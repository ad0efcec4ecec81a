"""Behaviour that the frameworks' callbacks share: URL, proof, hyperparameters, and manners without a server."""

from __future__ import annotations

import copy
import pickle
import socket

import psutil
import pytest

from support.event_files import append_scalars
from tbupload.integrations.training_upload import TrainingUpload


@pytest.fixture
def training(configured, monkeypatch):  # noqa: ARG001 - it sets the variables
    """Make uploads for the tenant; what is running at the end is killed."""
    monkeypatch.setattr(TrainingUpload, "_is_away", False)
    made = []

    def make(**options):
        made.append(TrainingUpload(poll_seconds=0.05, **options))
        return made[-1]

    yield make
    for each in made:
        if each.upload is not None and each.upload.is_running:
            psutil.Process(each.upload._process._process.pid).kill()
            each.upload.stop()


def test_end_of_training_says_that_all_is_stored(training, uploader, reader, logdir, capsys):
    each = training(name="first")
    each.begin(str(logdir), {"lr": 0.5})
    url = each.upload.url
    append_scalars(logdir)
    each.end()
    assert capsys.readouterr().err.splitlines()[-2:] == [
        f"tbupload: {url}",
        f"tbupload: everything is uploaded: {url}",
    ]
    verified = uploader.run("verify", "--strict", "--logdir", logdir, "--experiment", url)
    assert verified.code == 0
    (session,) = read_sessions(reader, each.upload.experiment_id)
    assert session["name"] == "."
    assert session["hparams"] == {"lr": 0.5}
    assert session["status"] == "STATUS_SUCCESS"


def read_sessions(reader, experiment_id):
    answer = reader.http.post(
        f"/api/v1/experiments/{experiment_id}/hparams/session_groups",
        json={"allowedStatuses": ["STATUS_SUCCESS"], "sliceSize": 10},
    )
    groups = answer.raise_for_status().json()["sessionGroups"]
    return [
        {**session, "hparams": group["hparams"]}
        for group in groups
        for session in group["sessions"]
    ]


def test_training_after_one_that_raised_continues_it(training, logdir, capsys):
    each = training()
    for steps in (range(3), range(3, 6)):
        each.begin(str(logdir))
        append_scalars(logdir, steps)
        url = each.upload.url
    each.end()
    assert each.upload.result.is_complete
    assert capsys.readouterr().err.count(url) == 3  # twice as the URL, once as the proof


def test_copy_of_a_callback_has_no_upload(training, logdir):
    each = training()
    each.begin(str(logdir))
    pickled = pickle.dumps(each)
    for twin in (copy.deepcopy(each), pickle.loads(pickled)):  # noqa: S301  # our own
        assert twin.upload is None
        assert twin._options == each._options


def test_end_of_training_does_not_wait_for_absent_server(training, logdir, monkeypatch, caplog):
    monkeypatch.setenv("TBHUB_SERVER", "http://127.0.0.1:9")
    each = training()
    each.begin(str(logdir))
    append_scalars(logdir)
    each.end()
    assert "nothing is uploaded yet" in caplog.text


def test_end_of_training_waits_briefly_for_silent_server(training, logdir, monkeypatch, caplog):
    monkeypatch.setattr("tbupload.background_upload.process.EXPERIMENT_SECONDS", 10_000.0)
    monkeypatch.setattr("tbupload.integrations.training_upload.ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("TBHUB_SERVER", f"http://127.0.0.1:{silent.getsockname()[1]}")
        each = training()
        each.begin(str(logdir))
        append_scalars(logdir)
        each.end()
    assert "nothing is uploaded yet" in caplog.text
