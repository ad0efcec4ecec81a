"""Several uploaders at once: on one logdir, on copies of it, and from different logdirs into one experiment."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.batches import Api
from support.uploading import Uploader

PATIENCE = ("--one-shot", "--json", "--give-up-seconds", 60)
MEDLEY = ("overtaken", "unanswered", "lost and late", "twice at once", "503")


@pytest.fixture
def experiment_id(world, person):
    """An empty experiment."""
    return Api(world.reader.http, person.token).new_experiment()


def upload_at_once(person, experiment_id, logdirs, tmp_path):
    """Runs a `tbupload` for each logdir at once, as on machines of their own; how they ended."""

    def upload(number, logdir):
        directory = tmp_path / f"host{number}"
        directory.mkdir()
        uploader = Uploader(person.world.http.url, person.token, directory)
        return uploader.run("--logdir", logdir, "--experiment", experiment_id, *PATIENCE)

    with ThreadPoolExecutor(len(logdirs)) as pool:
        return list(pool.map(upload, range(len(logdirs)), logdirs))


def faults_from(first):
    """Every third call fails, in turns of the medley."""
    return {first + 3 * turn: MEDLEY[turn % len(MEDLEY)] for turn in range(60)}


@pytest.mark.parametrize("faults", [{}, faults_from(5)], ids=["a good network", "a bad network"])
def test_two_uploaders_on_one_logdir_store_it_once(world, clean, person, experiment_id, tmp_path, faults):
    world.http.arm(faults)
    copy = Path(shutil.copytree(clean.logdir, tmp_path / "copy"))
    ended = upload_at_once(person, experiment_id, [clean.logdir, clean.logdir, copy], tmp_path)
    assert [one.code for one in ended] == [0, 0, 0], [one.err for one in ended]
    clean.check_stored(person, experiment_id)
    if not faults:
        assert sum(one.done["scalars"] for one in ended) <= 2 * clean.done["scalars"]


def test_two_hosts_with_logdirs_of_their_own_fill_one_experiment(world, clean, both, person, experiment_id, tmp_path):
    world.http.arm(faults_from(6))
    ended = upload_at_once(person, experiment_id, [clean.logdir, both.logdir], tmp_path)
    assert [one.code for one in ended] == [0, 0], [one.err for one in ended]
    both.check_stored(person, experiment_id, in_order=False)
