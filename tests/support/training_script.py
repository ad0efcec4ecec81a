"""A training script with a real event writer; run with WRITER, CLOSED, END and a log directory.

It writes 150 points in a block of `tbupload.follow` and, if its writer is closed after the block,
50 more there. It prints the experiment and the uploader's process, and ends as END says. With
`installed` as the only argument, it prints the writers that can be imported.
"""

# ruff: noqa: PLC0415, T201 - it imports one framework, and is a script

from __future__ import annotations

import atexit
import importlib.util
import os
import signal
import sys
import time

POINTS = 150
LATER_POINTS = 50

TWICE = "SIGINT twice"
SECOND_SIGINT_SECONDS = 1
"""After the script has begun to exit, which flushes its writers first."""
EXIT_SECONDS = 60


class TensorBoard:
    module = "tensorboard"

    def __init__(self, logdir):
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.event, self.summary = event_pb2.Event, summary_pb2.Summary
        self.writer = EventFileWriter(logdir)

    def add(self, step):
        value = self.summary.Value(tag="loss", simple_value=step)
        self.writer.add_event(
            self.event(wall_time=time.time(), step=step, summary=self.summary(value=[value]))
        )

    def close(self):
        self.writer.close()


class TensorBoardX:
    module = "tensorboardX"

    def __init__(self, logdir):
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(logdir)

    def add(self, step):
        self.writer.add_scalar("loss", step, step)

    def close(self):
        self.writer.close()


class Torch(TensorBoardX):
    module = "torch"

    def __init__(self, logdir):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(logdir)


class TensorFlow:
    module = "tensorflow"

    def __init__(self, logdir):
        import tensorflow as tf

        self.scalar = tf.summary.scalar
        self.writer = tf.summary.create_file_writer(logdir)

    def add(self, step):
        with self.writer.as_default():
            self.scalar("loss", step, step)

    def close(self):
        self.writer.close()


class Clu:
    module = "clu"

    def __init__(self, logdir):
        from clu import metric_writers

        self.writer = metric_writers.AsyncWriter(metric_writers.SummaryWriter(logdir))

    def add(self, step):
        self.writer.write_scalars(step, {"loss": step})

    def close(self):
        self.writer.close()


WRITERS = {kind.module: kind for kind in (TensorBoard, TensorBoardX, Torch, TensorFlow, Clu)}


def kill(number):
    """Send this process a signal, which ends it."""
    os.kill(os.getpid(), number)
    time.sleep(60)


def interrupt_twice(uploader_id):
    """Send SIGINT, and a second one while `tbupload` waits at the exit for its uploader.

    Until then, the uploader is stopped: it would be ready before.
    """
    atexit.register(os.kill, uploader_id, signal.SIGSTOP)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, SECOND_SIGINT_SECONDS)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    kill(signal.SIGINT)


ENDS = {
    "return": lambda _: None,
    "exception": lambda _: [].pop(),
    "SystemExit": lambda _: sys.exit(3),
    "os._exit": lambda _: os._exit(0),
    "SIGINT": lambda _: kill(signal.SIGINT),
    TWICE: interrupt_twice,
    "SIGTERM": lambda _: kill(signal.SIGTERM),
    "SIGHUP": lambda _: kill(signal.SIGHUP),
    "SIGKILL": lambda _: kill(signal.SIGKILL),
}
"""Functions that end the script, each called with the process id of the uploader."""


def main(name, closed, end, logdir):
    import tbupload

    # A shell that starts the tests in the background has its processes ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    writer = WRITERS[name](f"{logdir}/run")
    end_seconds = EXIT_SECONDS if end == TWICE else 0
    with tbupload.follow(logdir, poll_seconds=0.05, end_seconds=end_seconds) as upload:
        uploader_id = upload._process._process.pid
        print(upload.experiment_id, uploader_id, flush=True)
        for step in range(POINTS):
            writer.add(step)
        if closed == "before":
            writer.close()
        if closed != "after":
            ENDS[end](uploader_id)
    if closed == "after":
        for step in range(POINTS, POINTS + LATER_POINTS):
            writer.add(step)
        writer.close()
        ENDS[end](uploader_id)


if __name__ == "__main__":
    if sys.argv[1:] == ["installed"]:
        print(*(name for name in WRITERS if importlib.util.find_spec(name)))
    else:
        main(*sys.argv[1:])
