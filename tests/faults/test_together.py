"""Several uploaders at once: on one logdir, on copies of it, and from different logdirs into one
experiment.
"""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.batches import ApiClient, scalars, segment, stream
from support.process_kills import SyncPoint
from support.uploading import Uploader

RETRYING = ("--one-shot", "--json", "--retry-timeout", 60)
MEDLEY = ("overtaken", "unanswered", "lost and late", "twice at once", "503")


@pytest.fixture
def experiment_id(world, tenant):
    """An empty experiment."""
    return ApiClient(world.reader.http, tenant.token).new_experiment()


def upload_at_once(tenant, experiment_id, logdirs, tmp_path):
    """Run `tbupload` for each log directory at once, as on several hosts; return the results."""

    def upload(number, logdir):
        directory = tmp_path / f"host{number}"
        directory.mkdir()
        uploader = Uploader(tenant.world.http.url, tenant.token, directory)
        return uploader.run_process("--logdir", logdir, "--experiment", experiment_id, *RETRYING)

    with ThreadPoolExecutor(len(logdirs)) as pool:
        return list(pool.map(upload, range(len(logdirs)), logdirs))


def faults_from(first):
    """Return faults for every third call, in rotation."""
    return {first + 3 * turn: MEDLEY[turn % len(MEDLEY)] for turn in range(60)}


def test_two_uploaders_on_one_logdir_store_it_once(world, clean, tenant, experiment_id, tmp_path):
    world.http.arm(faults_from(5))
    copy = Path(shutil.copytree(clean.logdir, tmp_path / "copy"))
    ended = upload_at_once(tenant, experiment_id, [clean.logdir, clean.logdir, copy], tmp_path)
    assert [upload.code for upload in ended] == [0, 0, 0], [upload.err for upload in ended]
    clean.check_stored(tenant, experiment_id)


def test_two_hosts_with_logdirs_of_their_own_fill_one_experiment(
    world, clean, both, tenant, experiment_id, tmp_path
):
    world.http.arm(faults_from(6))
    ended = upload_at_once(tenant, experiment_id, [clean.logdir, both.logdir], tmp_path)
    assert [upload.code for upload in ended] == [0, 0], [upload.err for upload in ended]
    both.check_stored(tenant, experiment_id, in_order=False)


def test_conflict_names_only_file_of_other_uploader(world, tenant, experiment_id):
    api = ApiClient(world.reader.http, tenant.token)
    first, second = stream(file_name="first"), stream(file_name="second")
    known = [segment(each, 0, 100, scalars("loss", range(10))) for each in (first, second)]
    api.write(experiment_id, *known)
    more = [segment(each, 100, 200, scalars("loss", range(10, 20))) for each in (first, second)]
    moment = SyncPoint()
    moves_cursors = re.compile("(INSERT INTO|UPDATE) upload_streams AS")  # UPDATE in a cluster
    world.sql.arm(
        lambda _, text, time: "held" if moves_cursors.search(text) and time == 1 else "",
        then=moment.wait_at,
    )
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(api.send, experiment_id, *more)
        moment.run_at(lambda: api.write(experiment_id, segment(first, 100, 150)))
    answer = sent.result().json()
    assert (answer["code"], answer["segment"], answer["offset"]) == ("cursor_conflict", 0, 150)
    streams = api.get(experiment_id, "streams")["streams"]
    assert {item["file_name"]: item["offset"] for item in streams} == {"first": 150, "second": 100}


def test_uploader_with_less_of_file_takes_nothing_away(clean, tenant, experiment_id, tmp_path):
    behind = Path(shutil.copytree(clean.logdir, tmp_path / "behind"))
    for path in behind.rglob("*tfevents*"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 2 // 3])
    ended = upload_at_once(tenant, experiment_id, [clean.logdir, behind], tmp_path)
    assert [upload.code for upload in ended] == [0, 0], [upload.err for upload in ended]
    # A shorter file counts as one that was truncated: it is a generation of its own, and brings the
    # same points again.
    clean.check_stored(tenant, experiment_id, in_order=False, same_files=False)
