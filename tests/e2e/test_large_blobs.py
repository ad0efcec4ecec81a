"""Large blobs end to end: bounded memory, resuming after a kill, and files that change meanwhile."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.event_files import image_event, scalar_event, version_event, write_records
from support.flaky_proxy import flaky_proxy
from support.uploading import Uploader, wait_until

LARGE = os.urandom(1 << 20) * 33

RECEIVED = 24 << 20
"""Bytes of the first three pieces."""


class Network:
    """A proxy's faults: it lets a number of writing requests pass, and then none until `heal`."""

    def __init__(self, passing: int) -> None:
        self.passing = passing
        self.passed = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            if self.passed < self.passing:
                self.passed += 1
                yield ""
            else:
                yield "lost"

    def heal(self) -> None:
        """Let everything pass from now on."""
        self.passing = 1 << 30


@pytest.fixture
def path(logdir):
    return logdir / "run" / "events.out.tfevents.1"


def write(path, image):
    """Write one large image between two points."""
    before, after = scalar_event("loss", 1, 1.0), scalar_event("loss", 2, 0.5)
    write_records(path, [version_event(), before, image_event("photo", 1, [image]), after])


def wait_for_three_pieces(reader, following):
    """The experiment, when the server has the first three pieces of the large image."""
    experiment = following.wait_for_experiment()
    digest = hashlib.sha256(LARGE).hexdigest()
    state = {"is_stored": False, "received_bytes": RECEIVED, "piece_bytes": 8 << 20}
    wait_until(lambda: reader.get(experiment, f"blobs/{digest}", size=len(LARGE)) == state)
    return experiment


def watch_memory(process):
    """Return the peak memory of a process in KiB, polled until it ends."""
    peaks = []
    status = Path("/proc", str(process.pid), "status")
    while process.poll() is None:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            peaks += [
                int(line.split()[1])
                for line in status.read_text().splitlines()
                if line.startswith("VmHWM")
            ]
        time.sleep(0.01)
    return max(peaks)


def assert_complete(reader, experiment, image):
    assert reader.blobs(experiment, "run", "photo")[0][2] == image
    assert sorted(reader.scalars(experiment)["run"]["loss"]) == [1, 2]


def test_follow_killed_in_large_blob_resumes_in_little_memory(uploader, reader, logdir, path):
    write(path, LARGE)
    network = Network(passing=5)  # the experiment, what comes before the image, three pieces of it
    with flaky_proxy(uploader.server, network) as url:
        through_it = Uploader(url, uploader.token, uploader.directory)
        with through_it.follow(logdir, "--one-shot", "--no-origin") as following:
            experiment = wait_for_three_pieces(reader, following)
            following.process.kill()
            following.process.wait()
        network.heal()
        with through_it.follow(
            logdir, "--one-shot", "--no-origin", "--experiment", experiment
        ) as following:
            peak_kib = watch_memory(following.process)
            assert following.wait().code == 0, following.err()
    # Two pieces, the image's batch, the last point's; one more if that was read after a batch's time.
    assert network.passed - 5 in {4, 5}
    assert peak_kib < 150 << 10
    assert_complete(reader, experiment, LARGE)


def test_follow_bounds_read_ahead_of_many_large_runs(uploader, logdir, reader):
    """Fifty runs, each longer than one read: chunks of all of them would be 200 MiB."""
    path = logdir / "run_00" / "events.out.tfevents.1"
    images = [os.urandom(200_000) for _ in range(22)]
    write_records(
        path,
        [
            version_event(),
            *(image_event("photo", step, [image]) for step, image in enumerate(images)),
        ],
    )
    for number in range(1, 50):
        other = logdir / f"run_{number:02d}" / path.name
        other.parent.mkdir()
        other.hardlink_to(path)
    with uploader.follow(logdir, "--one-shot") as following:
        experiment = following.wait_for_experiment()
        peak_kib = watch_memory(following.process)
        assert following.process.returncode == 0, following.err()
    assert {
        tags["photo"]["count"] for tags in reader.get(experiment, "blob_sequences").values()
    } == {len(images)}
    assert peak_kib < 150 << 10
