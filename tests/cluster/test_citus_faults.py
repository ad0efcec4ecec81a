"""Nodes of a cluster are added, killed and started again while training jobs upload through it."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from support import citus, event_files
from support.servers import database_name, live_service, new_owner
from support.uploading import Uploader, wait_until
from tbservice.db import migrate
from tbservice.db.cluster.citus import NODE_SECONDS_MAX, node_of
from tbservice.db.database import Database

pytestmark = pytest.mark.cluster

JOBS = 4
TAGS = 5
COORDINATOR = 0


class World:
    """A service on a cluster that tests may break, and jobs that upload to it."""

    def __init__(self, cluster, live, directory: Path) -> None:
        self.cluster = cluster
        self.live = live
        self.database = database_name(live.database_url)
        self.directory = directory
        self.token = live.new_owner()
        self._jobs = 0

    def job(self, stack: ExitStack) -> Job:
        """Start a job, whose experiment exists."""
        self._jobs += 1
        directory = self.directory / f"job{self._jobs}"
        (directory / "logdir" / "train").mkdir(parents=True)
        job = Job(Uploader(self.live.url, self.token, directory), directory / "logdir")
        job.uploading = stack.enter_context(job.uploader.follow(job.logdir, "--retry-timeout", 120))
        job.experiment_id = job.uploading.wait_for_experiment()
        return job

    def node_of(self, job: Job) -> int:
        """Return the node that has the job's experiment."""
        database = Database(self.live.database_url, 1)
        try:
            with database.transaction() as db:
                node = node_of(db, job.experiment_id)
        finally:
            database.close()
        assert node is not None
        return node.port - self.cluster.port

    def jobs_on_both_workers(self, stack: ExitStack) -> dict[int, Job]:
        """Start jobs until each worker has one; return one of each by worker."""
        jobs: dict[int, Job] = {}
        while set(jobs) != {1, 2}:
            job = self.job(stack)
            jobs.setdefault(self.node_of(job), job)
            assert self._jobs < 20
        return jobs


class Job:
    """A training job that logs to a file, and its upload."""

    def __init__(self, uploader: Uploader, logdir: Path) -> None:
        self.uploader = uploader
        self.logdir = logdir
        self.file = logdir / "train" / "events.out.tfevents.1.host"
        event_files.write_records(self.file, [event_files.version_event()])
        self.step = 0
        self.uploading = None
        self.experiment_id = ""

    def log(self, flushes: int = 3) -> None:
        """Log some flushes."""
        for _ in range(flushes):
            self.step += 1
            events = [
                event_files.scalar_event(f"tag{tag}", self.step, tag / 3) for tag in range(TAGS)
            ]
            event_files.write_records(self.file, events, append=True)
            time.sleep(0.1)

    def wait_until_stored(self, world: World) -> None:
        """Wait until the last step is stored."""
        from support.uploading import Reader  # noqa: PLC0415 - made in the world's own way

        reader = Reader(world.live.url, world.token)
        path = f"/api/v1/experiments/{self.experiment_id}/streams"
        size = self.file.stat().st_size
        wait_until(
            lambda: (
                size in [each["offset"] for each in reader.http.get(path).json().get("streams", ())]
            )
        )
        reader.http.close()

    def check(self) -> None:
        """End the upload; everything is stored, as `tbupload verify` proves."""
        ended = self.uploading.stop()
        assert ended.code == 0, ended.err
        verified = self.uploader.run_process(
            "verify", "--logdir", self.logdir, "--experiment", self.experiment_id, "--json"
        )
        assert verified.code == 0, verified.out + verified.err


def run_migrate(cluster) -> None:
    """Do what `tbservice migrate` does."""
    migrate.upgrade(cluster.url_for_migration(citus.OWNER, citus.SHARDS))


@pytest.fixture
def world(cluster, servers, tmp_path):
    with citus.running_cluster(cluster.port + cluster.workers + 1) as own:
        run_migrate(own)
        with entered_by(own, COORDINATOR, servers, tmp_path) as world:
            yield world


@contextmanager
def entered_by(cluster, node, servers, directory):
    """Run a service that enters the cluster by a node; yield its World."""
    directory.mkdir(exist_ok=True)
    with (
        servers.settings(cluster.url(node=node)) as settings,
        live_service(settings, directory / "service.log") as live,
    ):
        yield World(cluster, live, directory)


def count_shards(world) -> Counter[int]:
    """Return how many shards of experiments each node has."""
    with world.cluster.connect(world.database) as db:
        rows = db.execute(
            "SELECT nodeport FROM citus_shards WHERE table_name = 'experiments'::regclass"
        )
        return Counter(row[0] - world.cluster.port for row in rows)


def test_worker_is_added_and_gets_shards_under_load(world):
    with ExitStack() as stack:
        jobs = [world.job(stack) for _ in range(JOBS)]
        for job in jobs:
            job.log()
        world.cluster.add_worker()
        run_migrate(world.cluster)  # for the rights to the views of share links
        with psycopg.connect(world.cluster.url(node=3)) as db:
            assert db.execute("SELECT count(*) FROM link_views.runs").fetchone() == (0,)
        with world.cluster.connect(world.database) as db:
            db.execute("SELECT citus_rebalance_start()")
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:
                for job in jobs:
                    job.log(1)
                if count_shards(world)[3]:
                    break
            db.execute("SELECT citus_rebalance_wait()")
        assert count_shards(world)[3], "no shard was moved to the new worker"
        for job in jobs:
            job.log()
            job.check()


def test_worker_down_stops_its_own_experiments_only(world):
    with ExitStack() as stack:
        jobs = world.jobs_on_both_workers(stack)
        for job in jobs.values():
            job.log()
            job.wait_until_stored(world)
        world.cluster.kill(1)
        for job in jobs.values():
            job.log()
        jobs[2].wait_until_stored(world)
        world.cluster.start(1)
        for job in jobs.values():
            job.log()
            job.check()


def test_coordinator_is_killed_and_comes_back(world, servers, tmp_path):
    """Who entered by it waits for it; who entered by a worker continues, and ends."""
    with ExitStack() as stack:
        by_worker = stack.enter_context(entered_by(world.cluster, 1, servers, tmp_path / "second"))
        jobs, others = world.jobs_on_both_workers(stack), by_worker.jobs_on_both_workers(stack)
        for job in (*jobs.values(), *others.values()):
            job.log()
        world.cluster.kill(COORDINATOR)
        time.sleep(NODE_SECONDS_MAX)  # nobody remembers where an experiment is
        for job in (*jobs.values(), *others.values()):
            job.log()
        for job in others.values():
            job.wait_until_stored(by_worker)
            job.check()
        world.cluster.start(COORDINATOR)
        for job in jobs.values():
            job.log()
            job.check()
        assert new_owner(world.live.database_url)
