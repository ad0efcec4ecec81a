"""`tbupload --end-with-process`: an upload that ends with another process."""

import os
import signal
import subprocess
import sys
import threading
import time

from support import event_files
from support.uploading import wait_until
from tbupload.upload import follow_control


def write(logdir, steps):
    events = [event_files.scalar_event("loss", step, float(step)) for step in steps]
    event_files.write_records(logdir / "run" / "tfevents.1", events, append=True)


def points(reader, experiment_id):
    runs = reader.get(experiment_id, "scalars")
    return runs.get("run", {}).get("loss", {}).get("count", 0)


def test_terminated_uploader_ends_although_training_continues(
    uploader, reader, logdir, monkeypatch
):
    grace_seconds = follow_control.SENDING_SECONDS_MIN + 1
    monkeypatch.setattr(follow_control, "STOP_GRACE_SECONDS", grace_seconds)
    before = signal.getsignal(signal.SIGTERM)
    terminated_at = []

    def terminate():
        wait_until(lambda: signal.getsignal(signal.SIGTERM) is not before)
        terminated_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    write(logdir, range(10))
    ended = uploader.run("--logdir", logdir, "--end-with-process", os.getpid())
    assert ended.code == 0, ended.err
    assert time.monotonic() - terminated_at[0] > 1
    assert points(reader, ended.experiment_id) == 10


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
