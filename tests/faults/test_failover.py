"""PostgreSQL loses recent commits under a running service: a lagging standby is promoted, or an
older copy is restored.

The service is not restarted. What it had acknowledged is lost in the database, and the uploader
sends it again.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pytest

from support import event_files
from support.fault_env import fault_env
from support.servers import database_name
from support.standby import Standby, restore, run_program, standby_of
from support.uploading import wait_until
from tbservice.db.cluster.citus import node_of
from tbservice.db.database import Database
from tbservice.local.embedded.postgres import Postgres

FLUSHES = 4
TAGS = 5


@pytest.fixture(scope="module")
def world(own_servers, tmp_path_factory):
    """A service on a PostgreSQL of its own."""
    directory = tmp_path_factory.mktemp("failover")
    with own_servers() as servers, fault_env(servers, directory) as made:
        yield made


class Job:
    """A training job and its upload: each phase of the job logs new tags."""

    def __init__(self, tenant, logdir) -> None:
        self.tenant = tenant
        self.logdir = logdir
        self.file = logdir / "train" / "events.out.tfevents.1.host"
        event_files.write_records(self.file, [event_files.version_event()])
        self.step = 0

    def log(self, phase: str, uploading) -> None:
        """Log some flushes, and wait after each until it is committed: each is a batch of its own."""
        experiment_id = uploading.wait_for_experiment()
        for _ in range(FLUSHES):
            self.step += 1
            events = [
                event_files.scalar_event(f"{phase}/{tag}", self.step, tag / 3)
                for tag in range(TAGS)
            ]
            event_files.write_records(self.file, events, append=True)
            size = self.file.stat().st_size
            wait_until(lambda size=size: self._cursor(experiment_id) == size)

    def _cursor(self, experiment_id: str) -> int:
        answer = self.tenant._reader().http.get(f"/api/v1/experiments/{experiment_id}/streams")
        return max((stream["offset"] for stream in answer.json().get("streams", ())), default=0)

    def check(self, ended) -> None:
        """Everything that was logged is stored, as `tbupload verify` proves."""
        assert ended.code == 0, ended.err
        verified = self.tenant.uploader.run_process(
            "verify", "--logdir", self.logdir, "--experiment", ended.experiment_id, "--json"
        )
        assert verified.code == 0, verified.out


class Pair(NamedTuple):
    """A server and its standby."""

    primary: Postgres
    standby: Standby


@contextmanager
def replicated(world, experiment_id, path):
    """Run a standby of the server, or of the cluster's node, that has the experiment's rows.

    Yields (both, what kills the server, what starts it again).
    """
    servers = world.servers
    if world.is_cluster:
        from support.citus_standby import standby_of_node  # noqa: PLC0415 - few runs have a cluster

        node = node_with(world, experiment_id)
        kill, restart = (
            partial(each, node) for each in (servers.cluster.kill, servers.cluster.start)
        )
        with standby_of_node(servers.cluster, node) as (primary, standby):
            yield Pair(primary, standby), kill, restart
    else:
        with standby_of(servers.instance, path) as standby:
            pair = Pair(servers.instance.postgres, standby)
            yield pair, servers.kill_postgres, servers.restart_postgres


def node_with(world, experiment_id):
    """Return the number of the node that has the experiment's rows."""
    database = Database(world.database_url, 1)
    with database.transaction() as db:
        port = node_of(db, experiment_id).port
    database.close()
    return [gate.port for gate in world.sql.gates.values()].index(port)


def has_told_of_promotion(world):
    """Ask for readiness; return whether the service has said that it found another timeline."""
    world.reader.http.get("/readyz")
    return "a standby was promoted" in (world.directory / "service.log").read_text()


@pytest.fixture
def job(tenant, tmp_path):
    (tmp_path / "logdir" / "train").mkdir(parents=True)
    return Job(tenant, tmp_path / "logdir")


@pytest.fixture
def uploading(job):
    with job.tenant.uploader.follow(job.logdir, "--retry-timeout", 60) as uploading:
        yield uploading


@pytest.mark.plain("pg_restore makes no distributed tables")
def test_restore_of_older_copy_under_service_loses_nothing(world, job, uploading, tmp_path):
    instance, database = world.servers.instance, database_name(world.database_url)
    job.log("before", uploading)
    dump = tmp_path / "dump"
    run_program(instance, "pg_dump", "--format=custom", f"--file={dump}", database)
    job.log("lost", uploading)
    restore(instance, database, dump)
    job.log("after", uploading)
    job.check(uploading.stop())


def test_failover_to_lagging_standby_loses_nothing(world, job, uploading, tmp_path):
    experiment_id = uploading.wait_for_experiment()
    with replicated(world, experiment_id, tmp_path / "standby") as (pair, kill, restart):
        job.log("before", uploading)
        wait_until(lambda: pair.standby.is_level_with(pair.primary))
        pair.standby.cut_off()
        job.log("lost", uploading)
        kill()
        try:
            pair.standby.promote()
            world.sql.redirect(pair.primary.url(), pair.standby.postgres.url())
            job.log("after", uploading)
            job.check(uploading.stop())
            wait_until(lambda: has_told_of_promotion(world))
        finally:  # the database and the service's end are still to be cleared away
            restart()
            world.sql.redirect(pair.primary.url(), pair.primary.url())
