"""`tbupload.follow` with real writers: whatever ends the training, all that is in the files arrives.

Some of the ends of the writers that the tests install are always tried. TBHUB_TRAINING_PYTHON names
an interpreter to train with, for example one that has PyTorch and TensorFlow as well: then, all ends
of all its writers are tried.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import training_script
from support.training_script import ENDS, LATER_POINTS, POINTS
from support.uploading import SECONDS_MAX, wait_until

OTHER_PYTHON = os.environ.get("TBHUB_TRAINING_PYTHON")
PYTHON = OTHER_PYTHON or sys.executable
SCRIPT = Path(training_script.__file__)
UPLOADER = str(Path(__file__).parents[2] / "uploader")
TRAINING_SECONDS_MAX = 4 * SECONDS_MAX
"""TensorFlow takes long to import."""

ALWAYS = {
    "tensorboard": ("return", "SIGINT", "SIGKILL"),
    "tensorboardX": ("return", "os._exit"),
}
"""Writers that the tests install, and ends that are always tried: those that differ in what of
Python still runs.
"""

CLOSED = ("before", "after", "never")
LOSES_QUEUE = ("os._exit", "SIGTERM", "SIGHUP", "SIGKILL")
"""Ends at which no Python code runs any more: what a writer holds never gets to its file."""


def installed():
    run = subprocess.run(
        [PYTHON, SCRIPT, "installed"], capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.split()


def environment(uploader):
    before = uploader.environment()
    paths = [UPLOADER, before.get("PYTHONPATH")]
    return before | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def test_writers_of_these_tests_are_installed():
    missing = set(ALWAYS) - set(installed())
    assert not missing or OTHER_PYTHON


def cases():
    """Return the writers and ends to try."""
    if OTHER_PYTHON:
        return [(writer, end) for writer in sorted(installed()) for end in ENDS]
    return [(writer, end) for writer, ends in ALWAYS.items() for end in ends]


@pytest.mark.parametrize(("writer", "end"), cases())
def test_follow_uploads_all_files_however_training_ends(uploader, reader, tmp_path, writer, end):
    trainings = {
        closed: start(uploader, tmp_path / closed, writer, closed, end) for closed in CLOSED
    }
    for closed, training in trainings.items():
        out, err = training.communicate(timeout=TRAINING_SECONDS_MAX)
        assert out, err
        experiment_id, process_id = out.split()
        end_uploader(int(process_id), tmp_path / closed)
        verified = uploader.run(
            *("verify", "--strict", "--logdir", tmp_path / closed, "--experiment", experiment_id)
        )
        assert verified.code == 0, (closed, verified.out, err)
        if closed != "never" or end not in LOSES_QUEUE:
            points = reader.get(experiment_id, "scalars")["run"]["loss"]["count"]
            assert points == POINTS + (LATER_POINTS if closed == "after" else 0), (closed, err)


def start(uploader, logdir, writer, closed, end):
    logdir.mkdir()
    own = {"TBHUB_CONFIG": str(logdir / "config.toml")}
    return subprocess.Popen(
        [PYTHON, SCRIPT, writer, closed, end, logdir],
        env=environment(uploader) | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_uploader(process_id, logdir):
    """Wait until the uploader has ended; SIGTERM makes it wait for quiet files less long."""
    process = psutil.Process(process_id)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert '"event": "done"' in (logdir / "follow.log").read_text()
