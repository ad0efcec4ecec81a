"""Several uploaders at once: on one logdir, on copies of it, and from different logdirs into one
experiment.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.process_kills import SyncPoint
from support.uploading import Uploader

PATIENCE = ("--one-shot", "--json", "--retry-timeout", 60)
MEDLEY = ("overtaken", "unanswered", "lost and late", "twice at once", "503")


@pytest.fixture
def experiment_id(world, person):
    """An empty experiment."""
    return ApiClient(world.reader.http, person.token).new_experiment()


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
def test_two_uploaders_on_one_logdir_store_it_once(
    world, clean, person, experiment_id, tmp_path, faults
):
    world.http.arm(faults)
    copy = Path(shutil.copytree(clean.logdir, tmp_path / "copy"))
    ended = upload_at_once(person, experiment_id, [clean.logdir, clean.logdir, copy], tmp_path)
    assert [one.code for one in ended] == [0, 0, 0], [one.err for one in ended]
    clean.check_stored(person, experiment_id)
    if not faults:
        assert sum(one.done["scalars"] for one in ended) <= 2 * clean.done["scalars"]


def test_two_hosts_with_logdirs_of_their_own_fill_one_experiment(
    world, clean, both, person, experiment_id, tmp_path
):
    world.http.arm(faults_from(6))
    ended = upload_at_once(person, experiment_id, [clean.logdir, both.logdir], tmp_path)
    assert [one.code for one in ended] == [0, 0], [one.err for one in ended]
    both.check_stored(person, experiment_id, in_order=False)


def test_conflict_names_only_file_of_other_uploader(world, person, experiment_id):
    api = ApiClient(world.reader.http, person.token)
    first, second = stream(file_name="first"), stream(file_name="second")
    known = [segment(each, 0, 100, scalars("loss", range(10))) for each in (first, second)]
    api.write(experiment_id, *known)
    more = [segment(each, 100, 200, scalars("loss", range(10, 20))) for each in (first, second)]
    moment = SyncPoint()
    is_cursors = "INSERT INTO upload_streams"
    world.sql.arm(
        lambda _, text, time: "held" if is_cursors in text and time == 1 else "",
        then=moment.wait_at,
    )
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(api.send, experiment_id, *more)
        moment.run_at(lambda: api.write(experiment_id, segment(first, 100, 150)))
    answer = sent.result().json()
    assert (answer["code"], answer["segment"], answer["offset"]) == ("cursor_conflict", 0, 150)
    streams = api.get(experiment_id, "streams")["streams"]
    assert {one["file_name"]: one["offset"] for one in streams} == {"first": 150, "second": 100}


def test_uploader_with_less_of_file_takes_nothing_away(clean, person, experiment_id, tmp_path):
    behind = Path(shutil.copytree(clean.logdir, tmp_path / "behind"))
    for path in behind.rglob("*tfevents*"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])
    ended = upload_at_once(person, experiment_id, [clean.logdir, behind], tmp_path)
    assert [one.code for one in ended] == [0, 0], [one.err for one in ended]
    # A shorter file counts as one that was truncated: it is a generation of its own, and brings the
    # same points again.
    clean.check_stored(person, experiment_id, in_order=False, same_files=False)
