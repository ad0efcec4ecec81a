"""Uploads with reader processes: calls fail, readers and uploaders are killed, and everything is
stored once.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress

import psutil
import pytest

from support import event_files
from support.http_faults import FAULTS, http_faults
from support.process_kills import SyncPoint
from support.uploading import Uploader, wait_until
from tbupload.upload.readers.read_loop import BYTES_AHEAD

READERS = 2
RUNS = 3
PROGRAM = "tbupload.upload.readers.process_main"
TEXTS = READERS * BYTES_AHEAD >> 20
SCALARS = 2_000
POINTS = {"scalars": RUNS * SCALARS, "tensors": RUNS * TEXTS}
HELD_CALL = 5
"""A batch: there are readers by then, and more to read than these may be ahead."""

FAULTS_IN_TURN = sorted(
    FAULTS.keys() - {"429", "twice", "twice at once", "overtaken", "lost and late"}
)
"""Without those that wait for seconds, and those after which the uploader counts less than it sent: a
late call may be stored before the one that was sent again.
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """Runs of one file each, of more than the readers of all may read ahead."""
    logdir = tmp_path_factory.mktemp("backlog")
    for run in range(RUNS):
        texts = [
            event_files.text_event("note", step, f"{run} {step}" + "x" * (1 << 20))
            for step in range(TEXTS)
        ]
        scalars = [event_files.scalar_event("loss", step, step / 7) for step in range(SCALARS)]
        path = logdir / f"run_{run}" / "events.out.tfevents.1700000000.host"
        event_files.write_records(path, [event_files.version_event(), *texts, *scalars])
    return logdir


@pytest.fixture
def uploader(live_service, tmp_path):
    """`tbupload` through a proxy, `uploader.faults`, at its service."""
    with http_faults(live_service.url) as faults:
        yield FaultyUploader(faults.url, live_service.new_owner(), tmp_path, faults)


class FaultyUploader(Uploader):
    """`tbupload` with reader processes, through a proxy."""

    def __init__(self, server, token, directory, faults):
        super().__init__(server, token, directory)
        object.__setattr__(self, "faults", faults)

    @contextmanager
    def held(self, logdir, *arguments):
        """Upload until a batch has arrived, and hold it while the block lasts: readers must wait."""
        moment = SyncPoint()
        self.faults.arm({HELD_CALL: "unanswered"}, then=moment.wait_at)
        options = ("--readers", READERS, "--json", "--retry-timeout", 60, *arguments)
        with self.follow(logdir, *options) as uploading:
            yield uploading, moment

    def verify(self, logdir, experiment_id):
        """Compare every point with the stored ones; the experiment must have no others."""
        options = ("--experiment", experiment_id, "--deep", "--strict")
        return self.run("verify", "--logdir", logdir, *options)


def readers_of(uploading):
    """Return the reader processes of an uploader."""
    readers = []
    for child in psutil.Process(uploading.process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended, and its parent has not noticed
            if PROGRAM in child.cmdline():
                readers.append(child)
    return readers


def sent_by(ended):
    return {name: ended.done[name] for name in POINTS}


def test_calls_fail_and_readers_store_everything_once(uploader, logdir):
    faults = {2 * at: fault for at, fault in enumerate(FAULTS_IN_TURN, start=2)}
    uploader.faults.arm(faults)
    options = ("--one-shot", "--json", "--retry-timeout", 60, "--readers", READERS)
    ended = uploader.run("--logdir", logdir, *options)
    assert ended.code == 0, ended.err
    assert uploader.faults.hits == len(faults)
    assert sent_by(ended) == POINTS
    verified = uploader.verify(logdir, ended.experiment_id)
    assert verified.code == 0, verified.out + verified.err


def test_killed_readers_are_named_and_nothing_is_lost(uploader, logdir):
    with uploader.held(logdir, "--one-shot") as (uploading, moment):
        killed = []

        def kill():
            killed.extend(readers_of(uploading))
            for reader in killed:
                reader.kill()

        moment.run_at(kill)
        ended = uploading.wait()
    assert ended.code == 0, ended.err
    assert len(killed) == READERS
    for reader in killed:
        assert f"reader process {reader.pid} was ended by signal 9; " in ended.err
    assert f"read on without it: {logdir}" in ended.err
    assert sent_by(ended) == POINTS
    verified = uploader.verify(logdir, ended.experiment_id)
    assert verified.code == 0, verified.out + verified.err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_readers_end_with_their_uploader(uploader, logdir, number):
    with uploader.held(logdir) as (uploading, moment):
        readers = []

        def end():
            readers.extend(readers_of(uploading))
            uploading.process.send_signal(number)

        moment.run_at(end)
        uploading.wait()
    assert len(readers) == READERS
    psutil.wait_procs(readers, 60)
    assert not any(reader.is_running() for reader in readers)


def test_interrupted_upload_sends_the_rest_and_resumes(uploader, logdir):
    with uploader.held(logdir) as (uploading, moment):
        readers = []

        def interrupt():
            readers.extend(readers_of(uploading))
            # Not the readers, whose session is another one than the terminal's.
            uploading.process.send_signal(signal.SIGINT)

        moment.run_at(interrupt)
        ended = uploading.wait()
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert sent_by(ended) == POINTS
    assert not any(reader.is_running() for reader in readers)


def test_readers_end_when_the_backlog_is_sent(uploader, logdir):
    with uploader.follow(logdir, "--readers", READERS, "--json") as uploading:
        uploading.wait_for_experiment()
        wait_until(lambda: readers_of(uploading))
        wait_until(lambda: not readers_of(uploading))
        ended = uploading.stop()
    assert ended.code == 0, ended.err
    assert sent_by(ended) == POINTS
