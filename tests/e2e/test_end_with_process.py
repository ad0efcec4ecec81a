"""`tbupload --end-with-process`: an upload that ends with another process."""

import os
import signal
import subprocess
import sys
import time

from support import event_files
from support.uploading import wait_until


def write(logdir, steps):
    events = [event_files.scalar_event("loss", step, float(step)) for step in steps]
    event_files.write_records(logdir / "run" / "tfevents.1", events, append=True)


def points(reader, experiment_id):
    runs = reader.get(experiment_id, "scalars")
    return runs.get("run", {}).get("loss", {}).get("count", 0)


def test_terminated_uploader_ends_although_training_continues(uploader, reader, logdir):
    write(logdir, range(10))
    options = ("--end-with-process", os.getpid())
    with uploader.follow(logdir, *options) as following:
        experiment_id = following.wait_for_experiment()
        began = time.monotonic()
        assert following.stop(signal.SIGTERM).code == 0
    assert 10 < time.monotonic() - began < 25
    assert points(reader, experiment_id) == 10


def test_command_ends_with_another_process(uploader, reader, logdir):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    options = ("--end-with-process", other.pid, "--quiet-seconds", "0.5")
    with uploader.follow(logdir, *options) as following:
        experiment_id = following.wait_for_experiment()
        write(logdir, range(10))
        wait_until(lambda: points(reader, experiment_id) == 10)
        time.sleep(1)
        assert following.process.poll() is None
        other.communicate(b"\n")
        assert following.wait().code == 0


def test_options_that_need_or_exclude_others_are_wrong_usage(uploader, logdir):
    for options, text in (
        (("--one-shot", "--end-with-process", "1"), "exclude each other"),
        (("--commands-from-stdin",), "needs --end-with-process"),
    ):
        ended = uploader.run("--logdir", logdir, *options)
        assert (ended.code, text in ended.err) == (2, True)
