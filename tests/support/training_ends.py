"""Let trainings with a real writer end in one way, their writers closed before, after, or never:
what is in their files must be stored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import psutil

from support import training_script
from support.source_code import ROOT
from support.subprocesses import run_to_end
from support.training_script import LATER_POINTS, POINTS, TWICE
from support.uploading import SECONDS_MAX, wait_until

SCRIPT = Path(training_script.__file__)

TRAINING_SECONDS_MAX = 4 * SECONDS_MAX
"""TensorFlow takes long to import."""

CLOSED = ("before", "after", "never")
"""When the writer is closed: before the end of the block of `follow`, after it, or never."""

LOSES_QUEUE = ("os._exit", "SIGTERM", "SIGHUP", "SIGKILL")
"""Ends at which no Python code runs any more: what a writer holds never gets to its file."""

TRACEBACKS = {"exception": 1, "SIGINT": 1, TWICE: 1}
"""Tracebacks that Python prints itself: a second Ctrl-C prints no other one."""

EXIT_CODES = {
    "exception": 1,
    "SystemExit": 3,
    "SIGINT": -signal.SIGINT,
    TWICE: -signal.SIGINT,
    "SIGTERM": -signal.SIGTERM,
    "SIGHUP": -signal.SIGHUP,
    "SIGKILL": -signal.SIGKILL,
}
"""Other than 0."""


def check_end(uploader, reader, directory, python, writer, end):
    """Train in all ways of closing at once; fails unless all that is in the files is stored."""
    trainings = {
        closed: start(uploader, directory / closed, python, writer, closed, end)
        for closed in CLOSED
    }
    try:
        for closed, training in trainings.items():
            out, err = training.communicate(timeout=TRAINING_SECONDS_MAX)
            assert out, err
            experiment_id, process_id = out.split()
            end_uploader(int(process_id), directory / closed)
            check_stored(uploader, reader, experiment_id, directory / closed, end, err)
            assert training.returncode == EXIT_CODES.get(end, 0), err
            assert err.count("Traceback") == TRACEBACKS.get(end, 0), err
            assert ("interrupted; the rest is sent" in err) == (end == TWICE), err
    finally:
        for training in trainings.values():
            training.kill()
            training.communicate()


def start(uploader, logdir, python, writer, closed, end):
    logdir.mkdir()
    before = uploader.environment()
    paths = filter(None, [str(ROOT / "uploader"), before.get("PYTHONPATH")])
    own = {"PYTHONPATH": os.pathsep.join(paths), "TBHUB_CONFIG": str(logdir / "config.toml")}
    return subprocess.Popen(
        [python, SCRIPT, writer, closed, end, logdir],
        env=before | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_uploader(process_id, logdir):
    """Wait until the uploader has ended; SIGTERM makes it wait for quiet files less long."""
    with contextlib.suppress(psutil.NoSuchProcess):  # the files were quiet before
        process = psutil.Process(process_id)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert '"event": "done"' in (logdir / "follow.log").read_text()


def check_stored(uploader, reader, experiment_id, logdir, end, err):
    verified = uploader.run("verify", "--strict", "--logdir", logdir, "--experiment", experiment_id)
    assert verified.code == 0, (logdir, verified.out, err)
    if logdir.name != "never" or end not in LOSES_QUEUE:
        points = reader.count(experiment_id)
        assert points == POINTS + (LATER_POINTS if logdir.name == "after" else 0), (logdir, err)


def installed(python):
    """Return the writers that this Python can import."""
    run = run_to_end([python, SCRIPT, "installed"], check=True)
    return run.stdout.split()
