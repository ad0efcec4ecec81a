"""Every process on the path of an upload is killed with SIGKILL: the upload completes, or can be
resumed and then completes.
"""

from __future__ import annotations

import itertools
import signal
import time
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pytest

from support import process_kills
from support.complete_logdir import write_complete_logdir
from support.fault_env import clean_upload, fault_env
from support.servers import database_name
from support.uploading import wait_until

RETRYING = ("--one-shot", "--json", "--retry-timeout", 60)
FIRST_CALL_WITH_AN_EXPERIMENT = 3
SOME_CALLS = (9,)


@pytest.fixture(scope="module")
def world(own_servers, tmp_path_factory):
    """A service with two workers, on a PostgreSQL and a SeaweedFS of its own, which these tests
    kill.
    """
    directory = tmp_path_factory.mktemp("kills")
    with (
        own_servers() as servers,
        fault_env(servers, directory, TBHUB_WORKERS="2") as made,
    ):
        yield made


@pytest.fixture(scope="module")
def clean(world, tmp_path_factory):
    """The complete logdir, uploaded without faults."""
    return clean_upload(
        world, write_complete_logdir(tmp_path_factory.mktemp("complete") / "logdir")
    )


@pytest.fixture
def instance(world):
    """The world's PostgreSQL and SeaweedFS."""
    return world.servers.instance


def upload_through(moment, action, tenant, clean):
    """Upload, and run an action at a sync point."""
    with tenant.uploader.follow(clean.logdir, *RETRYING) as uploading:
        moment.run_at(action)
        return uploading.wait()


def hold_statement(world, text, time_):
    """Return a sync point: the `time_`-th statement with this text, whose connection then breaks."""
    moment = process_kills.SyncPoint()
    hits = itertools.count(1)
    world.sql.arm(
        lambda *args: "before" if text in args[1] and next(hits) == time_ else "",
        then=moment.wait_at,
    )
    return moment


STATEMENTS = [
    pytest.param("INSERT INTO time_series", 3, id="in the middle of a batch"),
    pytest.param(
        "UPDATE experiments SET version",
        4,
        id="just before its commit",
        marks=pytest.mark.every_fault,
    ),
    pytest.param(
        "INSERT INTO scalar_blocks", 2, id="in the middle of a merge", marks=pytest.mark.every_fault
    ),
]


@pytest.mark.parametrize(("text", "time_"), STATEMENTS)
def test_worker_killed_at_work_is_replaced_unnoticed(world, clean, tenant, text, time_):
    moment = hold_statement(world, text, time_)
    before = process_kills.workers_of(world.live)
    ended = upload_through(
        moment, lambda: process_kills.kill_worker(world.live, world.sql.hit_port), tenant, clean
    )
    clean.check(tenant, ended)
    port = urlsplit(world.sql.url).port
    now = wait_until(
        lambda: len(workers := process_kills.started_workers(world.live, port)) == 2 and workers
    )
    assert {worker.pid for worker in now} != {worker.pid for worker in before}


def restart_after(kill, restart):
    kill()
    time.sleep(
        0.3
    )  # no event: calls that come meanwhile meet the server as it is, if there are any
    restart()


def test_postgresql_killed_in_transaction_loses_nothing(world, clean, tenant):
    moment = hold_statement(world, "UPDATE experiments SET version", 3)
    action = partial(restart_after, world.servers.kill_postgres, world.servers.restart_postgres)
    clean.check(tenant, upload_through(moment, action, tenant, clean))


def test_replaced_worker_waits_for_absent_postgresql(world):
    (killed, *others), port = process_kills.workers_of(world.live), urlsplit(world.sql.url).port
    world.servers.kill_postgres()
    killed.kill()
    wait_until(
        lambda: killed.pid not in {each.pid for each in process_kills.workers_of(world.live)}
    )
    wait_until(lambda: len(process_kills.workers_of(world.live)) == 2)
    # No event tells that nothing ends: a worker that failed to start would have ended all by now.
    time.sleep(2)
    world.servers.restart_postgres()
    wait_until(
        lambda: set(process_kills.started_workers(world.live, port)) - set(others)
    )  # they may have nothing to ask for
    assert set(others) < set(process_kills.workers_of(world.live))


def test_connections_that_postgresql_ends_are_replaced(world, clean, tenant):
    moment = hold_statement(world, "INSERT INTO time_series", 2)

    def end_all():
        for superuser in world.servers.superusers("postgres"):
            with suppress(psycopg.OperationalError), superuser:
                process_kills.end_backends(superuser, database_name(world.database_url))

    clean.check(tenant, upload_through(moment, end_all, tenant, clean))
    wait_until(lambda: is_up(world.servers))


def is_up(servers):
    try:
        for superuser in servers.superusers("postgres"):
            superuser.close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    "fault", [pytest.param("lost", marks=pytest.mark.every_fault), "unanswered"]
)
def test_seaweedfs_killed_keeps_acknowledged_objects(world, clean, tenant, instance, fault):
    moment = process_kills.SyncPoint()
    world.objects.arm({3: fault}, then=moment.wait_at)
    action = partial(
        restart_after,
        partial(process_kills.kill_seaweedfs, instance),
        partial(process_kills.restart_seaweedfs, instance),
    )
    clean.check(tenant, upload_through(moment, action, tenant, clean))


def killed_upload(tenant, logdir, wait, *arguments):
    """Start `tbupload`, and kill it when `wait` returns; return the experiment's id."""
    with tenant.uploader.follow(logdir, *RETRYING, *arguments) as uploading:
        experiment_id = uploading.wait_for_experiment()
        wait(uploading)
        uploading.process.kill()
        assert uploading.wait().code in {-signal.SIGKILL, 0}
    return experiment_id


def resume(tenant, clean, experiment_id):
    """Complete an upload that was killed."""
    tenant.world.disarm()
    ended = tenant.upload(clean.logdir, "--experiment", experiment_id)
    clean.check(tenant, ended, says_all=False)


@pytest.mark.parametrize(
    "fault", [pytest.param("lost", marks=pytest.mark.every_fault), "unanswered"]
)
def test_uploader_killed_at_call_is_resumed(world, clean, fault, is_everything_tried):
    calls = itertools.count(FIRST_CALL_WITH_AN_EXPERIMENT) if is_everything_tried else SOME_CALLS
    for at in calls:
        tenant = world.tenant()
        moment = process_kills.SyncPoint()
        world.disarm()
        world.http.arm({at: fault}, then=moment.wait_at)
        with tenant.uploader.follow(clean.logdir, *RETRYING) as uploading:
            wait_until(lambda: world.http.hits or uploading.process.poll() is not None)
            if not world.http.hits:
                break
            moment.run_at(uploading.process.kill)
            experiment_id = uploading.wait_for_experiment()
            assert uploading.wait().code == -signal.SIGKILL
        resume(tenant, clean, experiment_id)
    assert at >= FIRST_CALL_WITH_AN_EXPERIMENT


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.every_fault) for seed in range(1, 10))]
)
def test_uploader_killed_again_and_again_comes_to_its_end(world, clean, tenant, seed):
    rng = np.random.default_rng(seed)
    calls = range(4, 400, 4)
    world.http.arm(
        dict.fromkeys(calls, "503")
    )  # slows it down, so that there is something left to be killed
    arguments = ()
    for seconds in rng.uniform(0, 0.3, 3):
        experiment_id = killed_upload(
            tenant, clean.logdir, lambda _, pause=seconds: time.sleep(pause), *arguments
        )
        arguments = ("--experiment", experiment_id)
    resume(tenant, clean, experiment_id)
