"""Hyperparameters that a job logs more than once, from event files to the page: by the writer that
PyTorch's SummaryWriter uses, and by tensorboardX.
"""

from __future__ import annotations

import base64
import json
from itertools import count
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from support.event_files import WALL_TIME
from support.hparams_records import START, values_of
from support.uploading import wait_until
from tbupload import Experiment
from tbupload.cli import main

DATA = Path(__file__).parent.parent / "data/hparams_again"
ALL = {"rate": 0.2, "kind": "adam", "deep": True, "extra": 1.0, "late": "x"}


class Writer:
    """One event file, as PyTorch's `add_hparams` and Lightning's `log_hyperparams` write it."""

    numbers = count()

    def __init__(self, directory):
        self._writer = EventFileWriter(str(directory), filename_suffix=f".{next(self.numbers)}")

    def log(self, values, at):
        """Logs hyperparameters at a wall time."""
        made = hparams_pb(values)
        self._writer.add_event(Event(summary=made, wall_time=WALL_TIME + at, step=0))
        self._writer.flush()

    def close(self):
        self._writer.close()


def stored(reader, experiment_id, run="run"):
    """The hyperparameters that the API has; none before the run is there."""
    series = reader.get(experiment_id, "tensors").get(run, {}).get(START)
    if series is None:
        return {}
    content = base64.b64decode(series["summary_metadata"]["content"])
    return values_of(parse_session_start_info_plugin_data(content))


@pytest.fixture
def verify(uploader, logdir, monkeypatch, capsys):
    """Verifies the logdir against an experiment; answers the exit code and the verdict."""
    for name, value in uploader.environment().items():
        if name.startswith("TBHUB_"):
            monkeypatch.setenv(name, value)

    def verify(experiment_id, directory=logdir):
        capsys.readouterr()
        arguments = ["--logdir", directory, "--experiment", experiment_id, "--strict", "--json"]
        code = main(["verify", *map(str, arguments)])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return verify


def write_all(logdir):
    """Two files of one run; the later file's first record is older than the first one's last."""
    first, second = Writer(logdir / "run"), Writer(logdir / "run")
    first.log({"rate": 0.1, "kind": "sgd", "deep": True}, 1)
    first.log({"rate": 0.2, "extra": 1.0}, 4)
    second.log({"rate": 0.3, "kind": "adam"}, 3)
    second.log({"late": "x"}, 5)
    first.close()
    second.close()


def test_second_log_adds_to_first(uploader, reader, logdir, verify):
    """Lightning's second `log_hyperparams({"extra": 1})` once left only `extra`."""
    writer = Writer(logdir / "run")
    writer.log({"rate": 0.1, "kind": "adam"}, 1)
    writer.log({"extra": 1}, 2)
    writer.close()
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert ended.code == 0, ended.err
    expected = {"rate": 0.1, "kind": "adam", "extra": 1.0}
    assert stored(reader, ended.experiment_id) == expected
    assert verify(ended.experiment_id)[0] == 0


def test_hparams_of_real_writer_are_united(uploader, reader, verify):
    ended = uploader.run("--logdir", DATA, "--one-shot")
    assert ended.code == 0, ended.err
    assert stored(reader, ended.experiment_id, "lightning") == {
        "rate": 1.1,
        "optimizer": "adam",
        "extra": 2.0,
        "only_0": True,
        "only_1": True,
    }
    assert verify(ended.experiment_id, DATA)[0] == 0


def test_all_hparams_are_on_page_and_in_notebook(uploader, reader, logdir, verify):
    write_all(logdir)
    ended = uploader.run("--logdir", logdir, "--one-shot")
    assert (ended.code, stored(reader, ended.experiment_id)) == (0, ALL)

    page = f"/experiment/{ended.experiment_id}/data/plugin/hparams/session_groups"
    asked = {"startIndex": 0, "sliceSize": 10, "allowedStatuses": [0, 1, 2, 3], "colParams": []}
    answer = reader.http.post(page, json=asked)
    (group,) = answer.raise_for_status().json()["sessionGroups"]
    assert group["hparams"] == ALL

    assert verify(ended.experiment_id)[0] == 0  # sets the environment for the client as well
    frame = Experiment(ended.experiment_id).hparams()
    row = frame.to_dict("records")[0]
    assert {name: row[f"hparams.{name}"] for name in ALL} == ALL


def test_following_gives_what_verify_expects(uploader, reader, logdir, verify):
    first, second = Writer(logdir / "run"), Writer(logdir / "run")
    logged = [
        (first, {"rate": 0.1, "kind": "sgd", "deep": True}, 1),
        (second, {"late": "x"}, 5),
        (first, {"rate": 0.2, "extra": 1.0}, 4),
        (second, {"rate": 0.3, "kind": "adam"}, 3),
        (first, {"rate": 0.2, "extra": 1.0}, 4),
    ]
    keys = set()
    with uploader.follow(logdir) as following:
        experiment_id = following.wait_for_experiment()
        for writer, values, at in logged:
            writer.log(values, at)
            keys |= values.keys()
            wait_until(lambda: keys <= stored(reader, experiment_id).keys())  # noqa: B023 - called here
        first.close()
        second.close()
        ended = following.stop()
    assert ended.code == 0, ended.err
    assert stored(reader, experiment_id) == ALL
    code, verdict = verify(experiment_id)
    assert (code, verdict["series"]["different"]) == (0, 0)


def test_resumed_upload_gives_what_verify_expects(uploader, reader, logdir, verify):
    writer = Writer(logdir / "run")
    writer.log({"rate": 0.1, "kind": "sgd"}, 1)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    for at, values in ((2, {"rate": 0.2, "extra": 1}), (3, {"kind": "adam"})):
        writer.log(values, at)
        resumed = uploader.run("--logdir", logdir, "--one-shot", "--experiment", experiment_id)
        assert resumed.code == 0, resumed.err
    writer.close()
    assert stored(reader, experiment_id) == {"rate": 0.2, "kind": "adam", "extra": 1.0}
    assert verify(experiment_id)[0] == 0


def test_export_of_united_hparams_uploads_to_same(uploader, reader, logdir, verify, tmp_path):
    write_all(logdir)
    ended = uploader.run("--logdir", logdir, "--one-shot")
    exported = tmp_path / "exported"
    what = ("--experiment", ended.experiment_id, "--format", "events", "--output", exported)
    assert uploader.run("export", *what).code == 0
    again = uploader.run("--logdir", exported, "--one-shot", "--new")
    assert again.code == 0, again.err
    assert stored(reader, again.experiment_id) == ALL
    assert verify(again.experiment_id)[0] == verify(ended.experiment_id, exported)[0] == 0
