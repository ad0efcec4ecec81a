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
def verify(configured, logdir, capsys):  # noqa: ARG001 - it sets the variables
    """Verifies the logdir against an experiment; answers the exit code and the verdict."""

    def verify(experiment_id, directory=logdir):
        capsys.readouterr()
        arguments = ["--logdir", directory, "--experiment", experiment_id, "--strict", "--json"]
        code = main(["verify", *map(str, arguments)])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    return verify


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
